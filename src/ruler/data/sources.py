"""Finding a published set: the data folder, then the cache, then a download."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from ruler.core.errors import InputError, UnknownNameError
from ruler.core.locations import cache_folder, data_folder
from ruler.core.registry import Registry

T = TypeVar("T")
Place = Literal["RULER_DATA", "cache", "scikit-learn", "to download"]


class PublishedSet(Protocol):
    """What all published sets have in common: tables, images, faces and texts."""

    @property
    def key(self) -> str:
        """Name in code."""

    @property
    def file(self) -> str | None:
        """Where its file lies in a data folder; None for a set that scikit-learn brings along."""


@dataclass(frozen=True)
class Location:
    """Where a published set is now; ``path`` is None where there is no file of it."""

    place: Place
    path: Path | None = None


def locate(entry: PublishedSet, root: Path | None = None) -> Location:
    """Where is this set now? Looks, and never downloads.

    Args:
        entry: A published set, such as one of ``TABULAR_SETS``.
        root: Folder laid out as ``RULER_DATA``, instead of the one in the environment.
    """
    if entry.file is None:
        return Location("scikit-learn")
    cached = cached_file(entry)
    found = (root or data_folder()) / entry.file
    if found.is_file() and found != cached:
        return Location("RULER_DATA", found)
    return Location("cache", cached) if cached.is_file() else Location("to download")


def cached_file(entry: PublishedSet) -> Path:
    """Where a download of this set is kept."""
    return cache_folder() / (entry.file or entry.key)


def is_path(name_or_path: str | os.PathLike[str], known: Collection[str], suffixes: tuple[str, ...] = ()) -> bool:
    """Whether a user means a file or folder of his own, and not the name of a published set.

    A name of a published set is that set, even where a folder of the same name lies around.
    """
    if not isinstance(name_or_path, str):
        return True
    if name_or_path in known:
        return False
    looks_like_one = name_or_path.lower().endswith(suffixes) or "/" in name_or_path or os.sep in name_or_path
    return looks_like_one or Path(name_or_path).exists()


def find_set(name: str, known: Registry[T]) -> T:
    """The published set of that name, where `is_path` found nothing of that name on this machine.

    Raises:
        UnknownNameError: No such set; says the nearest, and that there is no such path.
    """
    try:
        return known[name]
    except UnknownNameError as error:
        raise UnknownNameError(f"{error} There is no file or folder of that name either.") from None


def check_exists(path: Path) -> None:
    """There is a file or folder at that path.

    Raises:
        InputError: There is nothing.
    """
    if not path.exists():
        raise InputError(f"path must be an existing file or folder; got {str(path)!r}. Check the spelling.")


def write_table(table: Any, path: Path) -> None:
    """Write a ``.csv.gz`` that ``read_table`` gives back unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, compression={"method": "gzip", "mtime": 0})
