"""Where files lie on this machine; files written whole or not at all; and one line for a disk that refuses them."""

import errno
import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ruler.core.errors import RulerError, WriteError
from ruler.core.optional import load_optional

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)
FAULTS_OF_THE_DISK = (*_NO_ROOM, *_NO_RIGHTS)


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


@contextmanager
def writing_safely(path: Path) -> Iterator[None]:
    """Turn what the system raises while something is written there into a `WriteError` in one line.

    Example:
        >>> with writing_safely(Path("report")):
        ...     raise OSError(errno.ENOSPC, "No space left on device")
        Traceback (most recent call last):
            ...
        ruler.core.errors.WriteError: report must be writable; got: No space left on device. Free some space there, or choose another folder.
    """  # noqa: E501
    try:
        yield
    except RulerError:
        raise
    except OSError as error:
        advice = "Choose another folder."
        if error.errno in _NO_ROOM:
            advice = "Free some space there, or choose another folder."
        elif error.errno in _NO_RIGHTS:
            advice = "Check the rights, or choose another folder."
        reason = error.strerror or str(error) or type(error).__name__
        raise WriteError(f"{path} must be writable; got: {reason}. {advice}") from error


def check_writable(folder: Path) -> None:
    """Refuse a folder, or one that is still to be made, before hours are spent on what could not be saved there."""
    with writing_safely(folder):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is a file")
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryFile(dir=there, prefix=".writing-") as probe:
            probe.write(b"0")


@contextmanager
def writing_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose file appears under its name only once all is written; missing folders are made.

    Readers, and a killed writer, only ever leave the old file or the new one.

    Raises:
        WriteError: The disk is full, or the folder is read-only or no folder.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "tables" / "one.csv"
        >>> with writing_atomically(path) as stream:
        ...     _ = stream.write(b"a,b")
        ...     path.exists()
        False
        >>> path.read_text()
        'a,b'
    """
    draft = path.with_name(f".writing-{secrets.token_hex(8)}.tmp")
    with writing_safely(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as stream:
                yield stream
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write bytes, or text as UTF-8, by `writing_atomically`."""
    with writing_atomically(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def hash_file(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "empty"
        >>> path.touch()
        >>> hash_file(path)[:8]
        'e3b0c442'
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
