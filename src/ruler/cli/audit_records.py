"""Files of groups and of model inputs -> arrays, read without running anything that they contain."""

import csv
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, MissingPackageError
from ruler.core.optional import load_optional
from ruler.embeddings.formats.entries import check_unfolded_size

T = TypeVar("T")
_SIDES = ("forget", "retain", "held_out")
_ARRAYS = {"inputs", "labels", "ids", "groups", "strata"}
_LONGEST_REASON = 300


def load_groups(path: Path) -> Any:
    """One label per forget record, or by side: whose record is it?

    Args:
        path: ``.csv`` or ``.parquet`` with a column ``group`` (or one column only) and, for several sides, a column
            ``side``; ``.npy`` with one label per forget record; ``.npz`` with ``forget``, ``retain``, ``held_out``.

    Returns:
        (n,) labels of the forget records, or a dict of them by side.

    Raises:
        FileFormatError: Another ending, a file that cannot be read safely, or records without a label.
    """
    readers: dict[str, Callable[[Path], Any]] = {
        ".csv": _read_csv,
        ".parquet": _read_parquet,
        ".npy": lambda file: _check_labels(_load_npy(file), file),
        ".npz": lambda file: {side: _check_labels(labels, file) for side, labels in _load_npz(file).items()},
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileFormatError(f"{path} must end in one of {', '.join(readers)}; got {path.suffix or 'no ending'!r}.")
    return read_safely(reader, path)


def load_records(path: Path) -> Any:
    """Inputs of a model, with what else the file says of the records, as `embed` takes them.

    Args:
        path: ``.npy`` with the inputs (n, ...), or ``.npz`` with ``inputs`` and, if known, ``labels``, ``ids``,
            ``groups`` and ``strata``.

    Raises:
        FileFormatError: Another ending, unknown or missing arrays, or a file that cannot be read safely.
    """
    arrays = load_arrays(path)
    parts = tuple(arrays[name] for name in ("inputs", "labels") if name in arrays)
    beside = {name: arrays[name] for name in ("ids", "groups", "strata") if name in arrays}
    if beside:
        return NamedRecords(parts, **beside)
    return parts if len(parts) > 1 else parts[0]


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The array ``inputs`` of a file and, where it has them, ``labels``, ``ids``, ``groups`` and ``strata``.

    Args:
        path: As `load_records` takes it.

    Raises:
        FileFormatError: Another ending, unknown or missing arrays, or a file that cannot be read safely.
    """
    if path.suffix.lower() == ".npy":
        return {"inputs": read_safely(_load_npy, path)}
    _check_file(path)
    if path.suffix.lower() != ".npz":
        raise FileFormatError(f"{path} must be a .npy or .npz file of inputs; got {path.suffix or 'no ending'!r}.")
    arrays = read_safely(_load_npz, path)
    if "inputs" not in arrays or not arrays.keys() <= _ARRAYS:
        raise FileFormatError(
            f"{path} must hold the array inputs and at most labels, ids, groups and strata beside it; got "
            f"{', '.join(arrays)}."
        )
    if len({len(array) for array in arrays.values() if array.ndim}) != 1 or not all(a.ndim for a in arrays.values()):
        raise FileFormatError(f"{path} must hold as many labels, ids, groups and strata as inputs.")
    return arrays


class NamedRecords:
    """Records with ids, groups or strata, as a Dataset that `embed` reads."""

    def __init__(
        self,
        parts: tuple[npt.NDArray[Any], ...],
        ids: npt.NDArray[Any] | None = None,
        groups: npt.NDArray[Any] | None = None,
        strata: npt.NDArray[Any] | None = None,
    ) -> None:
        self._parts, self.ids, self.groups, self.strata = parts, ids, groups, strata

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, row: int) -> Any:
        record = tuple(part[row] for part in self._parts)
        return record if len(record) > 1 else record[0]


def read_safely(read: Callable[[Path], T], path: Path) -> T:
    """What ``read`` makes of a file; whatever a broken or hostile one makes it raise is said in one line.

    Raises:
        FileFormatError: No such file, or one that cannot be read.
    """
    _check_file(path)
    try:
        return read(path)
    except (FileFormatError, MissingPackageError):
        raise
    except Exception as error:  # a hostile file makes parsers raise anything
        raise FileFormatError(
            f"{path} must be a sound {path.suffix} file; it cannot be read: {shorten(error)}"
        ) from error


def _check_file(path: Path) -> None:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        raise FileFormatError(f"{path} must be a file; got {found}. Check the path.")


def _load_npy(path: Path) -> npt.NDArray[Any]:
    return np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects and files that are too short


def _load_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    with zipfile.ZipFile(path) as archive:
        check_unfolded_size(sum(info.file_size for info in archive.infolist()), path)
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _read_csv(path: Path) -> Any:
    with path.open(newline="", encoding="utf-8-sig") as stream:
        rows = [row for row in csv.reader(stream) if row]
    if not rows:
        raise FileFormatError(f"{path} must hold one group per record; got an empty file.")
    if "group" not in rows[0] and len(rows[0]) == 1:
        return _check_labels(np.array([row[0] for row in rows]), path)
    header = {name: place for place, name in enumerate(rows[0])}
    columns = {name: [row[place] for row in rows[1:]] for name, place in header.items() if name in ("group", "side")}
    return _by_side(columns, path)


def _read_parquet(path: Path) -> Any:
    table = load_optional("pyarrow.parquet", "reading .parquet").read_table(str(path))
    if table.num_columns == 1:
        return _check_labels(np.array(table.column(0).to_pylist()), path)
    return _by_side({name: table.column(name).to_pylist() for name in table.column_names}, path)


def _by_side(columns: Mapping[str, list[Any]], path: Path) -> Any:
    if "group" not in columns:
        raise FileFormatError(
            f"{path} must have a column group, or one column only; got {', '.join(columns) or 'others'}."
        )
    labels = _check_labels(np.array(columns["group"]), path)
    if "side" not in columns:
        return labels
    sides = np.array(columns["side"])
    unknown = sorted(set(map(str, sides.tolist())) - set(_SIDES))
    if unknown:
        raise FileFormatError(f"{path} must name the sides {', '.join(_SIDES)}; got {unknown[0]!r}.")
    return {side: labels[sides == side] for side in _SIDES if (sides == side).any()}


def _check_labels(labels: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    is_text = labels.dtype.kind == "U"
    if labels.ndim != 1 or not (is_text or labels.dtype.kind in "iu") or (is_text and (labels == "").any()):
        raise FileFormatError(
            f"{path} must hold one group per record, as whole numbers or text, none missing; got {labels.dtype}, "
            f"shape {labels.shape}. Fill in the missing ones."
        )
    return np.array(labels)


def shorten(error: BaseException) -> str:
    """An error of somebody else's code in one sentence.

    Example:
        >>> shorten(ValueError("bad\\nnews"))
        'bad news.'
    """
    return (" ".join(str(error).split()) or type(error).__name__)[:_LONGEST_REASON].rstrip(".") + "."
