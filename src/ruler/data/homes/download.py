"""A published file -> a verified file on this machine, for as long as it is needed."""

import contextlib
import hashlib
import http.client
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ruler.core.errors import DownloadError
from ruler.core.locations import cache_folder
from ruler.core.progress import show_progress

_CHUNK = 1 << 20
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class RemoteFile:
    """One file at its public home.

    Args:
        url: Where it is.
        algorithm, checksum: As its publisher states them.
        max_bytes: More than this is refused, whatever the server says.
    """

    url: str
    algorithm: str
    checksum: str
    max_bytes: int


@contextlib.contextmanager
def downloaded(remote: RemoteFile, *, title: str, file: str, progress: bool = False) -> Iterator[Path]:
    """Fetch a file into the cache, check it, and remove it again after use.

    Args:
        remote: What to fetch.
        title: What the user knows it as.
        file: Where a copy would lie in a data folder, for the error.
        progress: Show on stderr, if it is a terminal, how far the download is.

    Yields:
        Path of the complete file with the published checksum.

    Raises:
        DownloadError: It cannot be reached, is too large, is cut short, or has another checksum.
    """
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache_folder()) as folder:
        path = Path(folder) / "file"
        try:
            _fetch(remote, path, title=title, is_shown=progress)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise DownloadError(
                f"{title} must come from {remote.url}; got {type(error).__name__}: {error}. Check the connection, or "
                f"put {file} into the folder that RULER_DATA names."
            ) from error
        yield path


def _fetch(remote: RemoteFile, path: Path, *, title: str, is_shown: bool) -> None:
    request = urllib.request.Request(remote.url, headers={"User-Agent": "ruler-audit"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer, path.open("wb") as file:
        promised = int(answer.headers.get("Content-Length") or 0)
        if promised > remote.max_bytes:
            raise ValueError(f"{promised} bytes, more than the {remote.max_bytes} that are expected")
        digest = hashlib.new(remote.algorithm)
        bar = show_progress(f"Fetching {title}", promised or remote.max_bytes) if is_shown else _silence()
        with bar as advance:
            n_bytes = 0
            for chunk in _read_chunks(answer):
                n_bytes += len(chunk)
                if n_bytes > remote.max_bytes:
                    raise ValueError(f"more than the {remote.max_bytes} bytes that are expected")
                digest.update(chunk)
                file.write(chunk)
                advance(len(chunk))
    if n_bytes < promised:
        raise ValueError(f"only {n_bytes} of {promised} bytes")
    if digest.hexdigest() != remote.checksum:
        raise ValueError(f"{remote.algorithm} {digest.hexdigest()} instead of the published {remote.checksum}")


def _read_chunks(answer: IO[bytes]) -> Iterator[bytes]:
    while chunk := answer.read(_CHUNK):
        yield chunk


@contextlib.contextmanager
def _silence() -> Iterator[Any]:
    yield lambda amount: None
