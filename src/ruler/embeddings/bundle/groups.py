"""A file with one label per record -> whose record each is, or what it is called."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, suggest
from ruler.core.readers.arrays import open_npy, read_npz
from ruler.core.readers.safety import check_text_array, pack_texts, reading_safely
from ruler.core.readers.tables import read_csv, read_parquet, read_rows
from ruler.embeddings.folders import SIDES

Labels = npt.NDArray[Any]


def load_groups(path: Path, column: str = "group") -> Labels | dict[str, Labels]:
    """One label per forget record, or by side: whose record is it?

    Args:
        path: ``.csv`` or ``.parquet`` with a column ``group`` (or one column only) and, for several sides, a column
            ``side``; ``.npy`` with one label per forget record; ``.npz`` with ``forget``, ``retain``, ``held_out``.
        column: Of the table: "group", or "id" for the names of the records.

    Returns:
        (n,) labels of the forget records, or a dict of them by side.

    Raises:
        FileFormatError: Another ending, a file that cannot be read safely, or records without a label.
    """
    ending = path.suffix.lower()
    if ending == ".npy":
        return _check_labels(open_npy(path), path, column)
    if ending == ".npz":
        return {side: _check_labels(labels, path, column) for side, labels in read_npz(path).items()}
    if ending == ".csv":
        lines = read_csv(path)
        if not lines:
            raise FileFormatError(f"{path} must hold one {column} per record; got an empty file.")
        if column not in lines[0] and len(lines[0]) == 1:
            return _check_labels([line[0] for line in lines], path, column)
        rows = read_rows(path)
        columns = {name: [row[name] for row in rows] for name in lines[0]}
    elif ending == ".parquet":
        columns = read_parquet(path).to_pydict()
        if len(columns) == 1:
            columns = {column: next(iter(columns.values()))}
    else:
        raise FileFormatError(
            f"{path} must end in one of .csv, .parquet, .npy, .npz; got {path.suffix or 'no ending'!r}."
        )
    if column not in columns:
        raise FileFormatError(
            f"{path} must have a column {column}, or one column only; got {', '.join(columns)}."
            f"{suggest(column, columns)}"
        )
    labels = _check_labels(columns[column], path, column)
    if "side" not in columns:
        return labels
    sides = np.array(columns["side"])
    unknown = sorted(set(map(str, sides.tolist())) - set(SIDES))
    if unknown:
        raise FileFormatError(f"{path} must name the sides {', '.join(SIDES)}; got {unknown[0]!r}.")
    return {side: labels[sides == side] for side in SIDES if (sides == side).any()}


def _check_labels(found: npt.NDArray[Any] | list[Any], path: Path, column: str) -> Labels:
    with reading_safely(path):
        if isinstance(found, list):
            labels = pack_texts(found, f"{column}s") if set(map(type, found)) == {str} else np.array(found)
        else:
            check_text_array(found, f"{column}s")
            labels = found
    is_text = labels.dtype.kind == "U"
    if labels.ndim != 1 or not (is_text or labels.dtype.kind in "iu") or (is_text and (labels == "").any()):
        raise FileFormatError(
            f"{path} must hold one {column} per record, as whole numbers or text, none missing; got {labels.dtype}, "
            f"shape {labels.shape}. Fill in the missing ones."
        )
    return np.array(labels)
