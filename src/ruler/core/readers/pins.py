"""Inputs pinned by their SHA-256: what changes while it is measured is no evidence, and what shrinks ends the audit."""

import ctypes
import hashlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from ruler.core.errors import FileFormatError
from ruler.core.files import hash_file
from ruler.core.readers.safety import reading_safely
from ruler.core.text import show_text

READ_ENDINGS = (
    *(".npy", ".npz", ".parquet", ".safetensors", ".pt", ".pth", ".arrow"),
    *(".csv", ".jsonl", ".json", ".toml", ".txt", ".model", ".py"),
    *(".png", ".jpg", ".jpeg"),
)
"""Of files in folders that readers open; others in a folder may change."""

_MOST_LISTED = 1000
_MISUSE = 2  # the exit status
Digests = str | dict[str, str]


@dataclass(frozen=True)
class _Pin:
    """A file as it was: what its bytes hash to; and its size, its place on the disk and when it was last written to."""

    sha256: str
    state: tuple[int, int, int, int]


class PinnedInputs:
    """Files and folders, hashed when this is made and again by `check`.

    As a context, it checks them at its end, and says meanwhile which one became shorter if that ends the process.

    Args:
        places: By name, such as ``unlearned``, the file or folder, or several.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "forget.npy"
        >>> _ = path.write_bytes(b"rows")
        >>> pins = PinnedInputs({"unlearned": path.parent})
        >>> pins.check()
        >>> _ = path.write_bytes(b"other rows")
        >>> pins.check()
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: ... must stay as it is while it is audited; it was written to. ...
    """

    def __init__(self, places: Mapping[str, Path | Iterable[Path]]) -> None:
        self._files: dict[str, dict[Path, str]] = {}
        for name, place in places.items():
            for number, one in enumerate([place] if isinstance(place, Path) else place, 1):
                with reading_safely(one):
                    self._files[name if number == 1 else f"{name} {number}"] = dict(_list_files(one))
        paths = {path for files in self._files.values() for path in files}
        self._pins = dict(zip(paths, _hash_all(paths), strict=True))

    def __enter__(self) -> "PinnedInputs":
        with _lock:
            _watched.append(self)
            if len(_watched) == 1:
                _earlier[:] = [_install(ctypes.cast(_handler, ctypes.c_void_p).value)]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with _lock:
            _watched.remove(self)
            if not _watched:
                _install(_earlier[0])
        if kind is None:
            self.check()

    def check(self) -> None:
        """Hash all again."""
        for path, pin in self._pins.items():  # at once, before any is hashed
            if not path.is_file():
                raise _changed(path, "it is gone")
            if _stat(path) != pin.state:
                raise _changed(path, "it was written to")
        for (path, pin), now in zip(self._pins.items(), _hash_all(self._pins), strict=True):
            if now.state != pin.state:
                raise _changed(path, "it was written to")
            if now.sha256 != pin.sha256:
                raise _changed(path, "it was changed")

    def describe(self) -> dict[str, Digests]:
        """SHA-256 by place and file; of a folder with more than 1,000 files, one of its list of names and hashes."""
        found: dict[str, Digests] = {}
        for name, files in self._files.items():
            digests = {inner: self._pins[path].sha256 for path, inner in files.items()}
            if list(digests) == [""]:
                found[name] = digests[""]
            elif len(digests) > _MOST_LISTED:
                lines = "".join(f"{digest}  {inner}\n" for inner, digest in sorted(digests.items()))
                found[name] = hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
            else:
                found[name] = digests
        return found

    def find_shrunk(self) -> list[Path]:
        """Files that are shorter than they were, or gone."""
        return [path for path, pin in self._pins.items() if not path.is_file() or path.stat().st_size < pin.state[0]]


def _changed(path: Path, how: str) -> FileFormatError:
    return FileFormatError(
        f"{path} must stay as it is while it is audited; {how}. Audit a copy that nothing writes to."
    )


def _list_files(place: Path) -> Iterator[tuple[Path, str]]:
    """The files of a place with their names inside it, "" for the place itself; what is not there is reported later."""
    if place.is_file():
        yield place, ""
        return
    seen = set()
    for folder, folders, files in os.walk(place, followlinks=True):
        inside = Path(folder)
        if inside.resolve() in seen:
            folders.clear()  # a link to a folder above
            continue
        seen.add(inside.resolve())
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = inside / name
            if path.suffix.lower() in READ_ENDINGS and not name.startswith(".") and path.is_file():
                yield path, path.relative_to(place).as_posix()


def _hash_all(paths: Iterable[Path]) -> Iterator[_Pin]:
    def pin(path: Path) -> _Pin:
        with reading_safely(path):
            state = _stat(path)  # first, so that a change while it is hashed is seen later
            return _Pin(hash_file(path), state)

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing leaves the interpreter free
        yield from pool.map(pin, paths)


def _stat(path: Path) -> tuple[int, int, int, int]:
    found = path.stat()
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


_lock = Lock()
_watched: list[PinnedInputs] = []
_earlier: list[int | None] = []
"""The address of the function that C called before on this signal."""


def _tell(_: int) -> None:
    """Say which file shrank and end the process. Nothing else is done: memory may be in any state.

    Reading beyond the new end of a mapped file raises SIGBUS. Python's own signal handlers run only after the
    instruction that failed, which fails again, for ever; so C calls this one at once.
    """
    names = ", ".join(show_text(path) for pins in _watched for path in pins.find_shrunk()) or "an input file"
    line = f"ruler: {names} must stay as it is while it is audited; it became shorter, or its disk failed. "
    os.write(2, f"{line}Audit a copy that nothing writes to.\n".encode(errors="backslashreplace"))
    os._exit(_MISUSE)


_handler: Any = ctypes.CFUNCTYPE(None, ctypes.c_int)(_tell)


def _install(handler: int | None) -> int | None:
    """Let C call another function on SIGBUS, where there is that signal; returns the one before."""
    if not hasattr(signal, "SIGBUS"):
        return None
    install = ctypes.CDLL(None).signal
    install.restype, install.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    earlier: int | None = install(int(signal.SIGBUS), handler)
    return earlier
