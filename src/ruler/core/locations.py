"""Where files lie on this machine: the data folder and the cache."""

import os
from pathlib import Path

from ruler.core.optional import load_optional


def cache_folder() -> Path:
    """The folder for trained models and downloads: ``RULER_CACHE``, or the user's cache folder.

    The folder need not exist yet.

    Example:
        >>> import os
        >>> os.environ["RULER_CACHE"] = "/var/ruler-cache"
        >>> cache_folder().as_posix()
        '/var/ruler-cache'
        >>> del os.environ["RULER_CACHE"]
    """
    named = os.environ.get("RULER_CACHE")
    if named:
        return Path(named).expanduser()
    folders = load_optional("platformdirs", "finding the cache folder")
    return Path(folders.user_cache_dir("ruler", appauthor=False, opinion=False))


def data_folder() -> Path:
    """The folder laid out as ``tabular/ images/ text/ checkpoints/``: ``RULER_DATA``, or the cache.

    Example:
        >>> import os
        >>> before = os.environ.get("RULER_DATA")
        >>> os.environ["RULER_DATA"] = "/var/ruler-data"
        >>> data_folder().as_posix()
        '/var/ruler-data'
        >>> _ = os.environ.pop("RULER_DATA") if before is None else os.environ.update(RULER_DATA=before)
    """
    named = os.environ.get("RULER_DATA")
    return Path(named).expanduser() if named else cache_folder()
