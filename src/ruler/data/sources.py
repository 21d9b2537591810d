"""Finding a dataset: in the data folder, then in the cache, then at its home."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy.typing as npt

from ruler.core.errors import DownloadError, FileFormatError, InputError, UnknownNameError
from ruler.core.files import cache_folder, data_folder, write_atomically
from ruler.core.readers.arrays import read_npz
from ruler.core.registry import Registry
from ruler.data.catalog import DATASETS
from ruler.data.datasets import Dataset

D = TypeVar("D", bound=Dataset)
Place = Literal["RULER_DATA", "cache", "a package", "to download"]


@dataclass(frozen=True)
class Location:
    """Where a dataset is now; ``path`` is None where there is no file of it."""

    place: Place
    path: Path | None = None


def locate(dataset: Dataset, root: str | os.PathLike[str] | None = None) -> Location:
    """Where is this dataset now? Looks, and never downloads.

    Args:
        dataset: Such as one of ``DATASETS``.
        root: Folder laid out as ``RULER_DATA``, instead of the one in the environment.

    Example:
        >>> locate(DATASETS["breast_cancer"]).place
        'a package'
    """
    if dataset.file is None:
        return Location("a package")
    cached = cache_folder() / dataset.file
    found = (data_folder() if root is None else Path(root)) / dataset.file
    if found.is_file() and found != cached:
        return Location("RULER_DATA", found)
    return Location("cache", cached) if cached.is_file() else Location("to download")


def resolve(source: str | os.PathLike[str] | Dataset, kind: type[D], suffixes: tuple[str, ...] = ()) -> D | Path:
    """The dataset of a kind that is meant by a name, or the path to data of the user's own.

    A name of a dataset is that dataset, even where a folder of the same name lies around.
    """
    if isinstance(source, Dataset) or source in DATASETS:
        dataset = source if isinstance(source, Dataset) else DATASETS[str(source)]
        if isinstance(dataset, kind):
            return dataset
        if isinstance(source, Dataset) or not Path(source).exists():
            raise InputError(
                f"{dataset.key} must be of kind {kind.kind} to be loaded here; got kind {dataset.kind}. "
                "load_dataset takes every kind."
            )
    if not isinstance(source, str):
        return Path(source)
    if source.lower().endswith(suffixes) or "/" in source or os.sep in source or Path(source).exists():
        return Path(source)
    known = Registry(f"{kind.kind} dataset", {key: entry for key, entry in DATASETS.items() if isinstance(entry, kind)})
    try:
        return known[source]
    except UnknownNameError as error:
        raise UnknownNameError(f"{error} There is no file or folder of that name either.") from None


def find_home(dataset: Dataset) -> tuple[Path, Callable[[Any, bool], Any]]:
    """Where in the cache a download of this dataset is kept, and the function that downloads it."""
    if dataset.file is None:
        raise InputError(
            f"name must be a dataset that can be downloaded; got {dataset.key!r}. It comes with {dataset.origin}."
        )
    if dataset.download is None:
        raise DownloadError(
            f"{dataset.title} must be put there by hand; got no copy on this machine, and no program can get it from "
            f"{dataset.origin}. {dataset.by_hand}, and put it at {dataset.file} in the folder that RULER_DATA names."
        )
    return cache_folder() / dataset.file, dataset.download


def check_exists(path: Path) -> None:
    """Raise InputError if there is no file or folder at that path."""
    if not path.exists():
        raise InputError(f"path must be an existing file or folder; got {str(path)!r}. Check the spelling.")


def read_arrays(path: Path, needed: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """Every array of an ``.npz`` file."""
    arrays = read_npz(path)
    absent = [name for name in needed if name not in arrays]
    if absent:
        raise FileFormatError(
            f"{path} must hold the arrays {', '.join(needed)}; got none named {', '.join(absent)}. "
            "Save them with numpy.savez_compressed."
        )
    return arrays


def write_table(table: Any, path: Path) -> None:
    """Write a ``.csv.gz`` that ``read_table`` gives back unchanged."""
    content = io.BytesIO()
    table.to_csv(content, index=False, compression={"method": "gzip", "mtime": 0})
    write_atomically(path, content.getvalue())
