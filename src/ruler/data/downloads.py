"""Files of published datasets, fetched into the cache, bounded and checked."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ruler.core.errors import DownloadError, RulerError, WriteError
from ruler.core.files import FAULTS_OF_THE_DISK, cache_folder, writing_safely
from ruler.core.optional import load_optional
from ruler.core.progress import show_progress
from ruler.data.datasets import Dataset, RemoteFile

_CHUNK = 1 << 20
_TIMEOUT_S = 60.0


class _Limit:
    """A progress bar in pooch's form that stops a download which grows too large: pooch itself has no bound."""

    def __init__(self, max_bytes: int, advance: Callable[[float], None]) -> None:
        self._max_bytes, self._advance, self._n_bytes = max_bytes, advance, 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "total" and value > self._max_bytes:
            raise ValueError(f"{value} bytes, more than the {self._max_bytes} that are expected")
        super().__setattr__(name, value)

    def update(self, n_bytes: int) -> None:
        """Count a chunk, which pooch has written already; the last one may be shorter than it says."""
        if self._n_bytes >= self._max_bytes:
            raise ValueError(f"more than the {self._max_bytes} bytes that are expected")
        self._n_bytes += n_bytes
        self._advance(n_bytes)

    def reset(self) -> None:
        """Start anew, as pooch does at the end to count the whole file at once."""
        self._n_bytes, self._advance = 0, _ignore

    def close(self) -> None:
        """Do nothing: whoever opened the bar closes it."""


@contextlib.contextmanager
def downloaded(remote: RemoteFile, dataset: Dataset, *, progress: bool = False) -> Iterator[Path]:
    """Fetch a file into the cache, check it, and remove it again after use.

    Yields:
        Path of the complete file with the published checksum.

    Raises:
        DownloadError: It cannot be reached, is too large, is cut short, or has another checksum.
    """
    pooch = load_optional("pooch", "downloading a dataset")
    pooch.get_logger().setLevel("WARNING")
    bar = show_progress(f"Fetching {dataset.title}", remote.max_bytes) if progress else contextlib.nullcontext(_ignore)
    with making_aside() as folder:
        try:
            with bar as advance:
                fetch = pooch.HTTPDownloader(
                    progressbar=_Limit(remote.max_bytes, advance),
                    chunk_size=_CHUNK,
                    timeout=_TIMEOUT_S,
                    headers={"User-Agent": "ruler-audit", "Accept-Encoding": "identity"},
                )
                path = pooch.retrieve(remote.url, remote.checksum, fname="file", path=folder, downloader=fetch)
        except (OSError, ValueError) as error:
            raise explain(error, dataset, remote.url) from error
        yield Path(path)


@contextlib.contextmanager
def making_aside() -> Iterator[str]:
    """A folder in the cache for what is not verified yet; it is removed at the end.

    Raises:
        WriteError: The cache cannot be written.
    """
    with writing_safely(cache_folder()):
        cache_folder().mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(prefix=".download-", dir=cache_folder(), ignore_cleanup_errors=True)
    with aside as folder:
        yield folder


def explain(error: Exception, dataset: Dataset, origin: str) -> RulerError:
    """What to raise for a failed download: a fault of the disk, or of the connection."""
    if isinstance(error, OSError) and error.errno in FAULTS_OF_THE_DISK:
        return WriteError(
            f"{cache_folder()} must be writable; got: {error.strerror}. "
            "Free some space there, or name another folder with RULER_CACHE."
        )
    return DownloadError(
        f"{dataset.title} must come from {origin}; got {type(error).__name__}: {error}. Check the "
        f"connection, or put {dataset.file} into the folder that RULER_DATA names."
    )


def _ignore(amount: float) -> None:
    pass
