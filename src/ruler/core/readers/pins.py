"""Inputs pinned by their SHA-256: what changes while it is measured is no evidence."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ruler.core.errors import FileFormatError
from ruler.core.files import hash_file
from ruler.core.readers.safety import reading_safely
from ruler.core.readers.shrinking import telling_of_shrunk_files

READ_ENDINGS = (
    *(".npy", ".npz", ".parquet", ".safetensors", ".pt", ".pth", ".arrow"),
    *(".csv", ".jsonl", ".json", ".toml", ".txt", ".model", ".py"),
    *(".png", ".jpg", ".jpeg"),
)
"""Of files in folders that readers open; others in a folder may change."""

_MOST_LISTED = 1000
Digests = str | dict[str, str]


@dataclass(frozen=True)
class _Pin:
    """A file as it was: what its bytes hash to, its size, and when it was last written to, by the system's clock."""

    sha256: str
    n_bytes: int
    written_ns: tuple[int, int, int]


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
        self._watch = ExitStack()
        for name, place in places.items():
            for number, one in enumerate([place] if isinstance(place, Path) else place, 1):
                with reading_safely(one):
                    self._files[name if number == 1 else f"{name} {number}"] = dict(_list_files(one))
        paths = {path for files in self._files.values() for path in files}
        self._pins = dict(zip(paths, _hash_all(paths), strict=True))

    def __enter__(self) -> "PinnedInputs":
        self._watch.enter_context(telling_of_shrunk_files(self.find_shrunk))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._watch.close()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Hash all again.

        Raises:
            FileFormatError: A file was changed, written to, or is gone.
        """
        for path, pin in self._pins.items():
            self._compare(path, pin, _stat(path) if path.is_file() else None)
        for path, now in zip(self._pins, _hash_all(self._pins), strict=True):
            self._compare(path, self._pins[path], (now.n_bytes, now.written_ns))
            if now.sha256 != self._pins[path].sha256:
                raise FileFormatError(_complain(path, "it was changed"))

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
        return [path for path, pin in self._pins.items() if not path.is_file() or path.stat().st_size < pin.n_bytes]

    @staticmethod
    def _compare(path: Path, pin: _Pin, now: tuple[int, tuple[int, int, int]] | None) -> None:
        if now is None:
            raise FileFormatError(_complain(path, "it is gone"))
        if now != (pin.n_bytes, pin.written_ns):
            raise FileFormatError(_complain(path, "it was written to"))


def _complain(path: Path, what: str) -> str:
    return f"{path} must stay as it is while it is audited; {what}. Audit a copy that nothing writes to."


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
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing leaves the interpreter free
        yield from pool.map(_hash, paths)


def _hash(path: Path) -> _Pin:
    with reading_safely(path):
        n_bytes, written_ns = _stat(path)  # first, so that a change while it is hashed is seen later
        return _Pin(hash_file(path), n_bytes, written_ns)


def _stat(path: Path) -> tuple[int, tuple[int, int, int]]:
    found = path.stat()
    return found.st_size, (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
