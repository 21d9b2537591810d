"""The forget, retain and held-out rows of one model as people hold them: folders of files, tables and dicts."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.arrays import open_npy
from ruler.core.readers.safety import reading_safely
from ruler.core.types import Embeddings
from ruler.embeddings.files import FORMATS, has_format, load_embeddings
from ruler.embeddings.formats import BESIDE_NAMES, MATRIX_NAMES, find_beside, find_named, storable

SIDES = ("forget", "retain", "held_out")
_BESIDE_FILES = (*BESIDE_NAMES, "features")


def load_model_folder(path: str | os.PathLike[str], *, strata: str | None = None) -> tuple[Embeddings, ...]:
    """Which forget, retain and held-out rows does this folder hold of one model?

    The folder has a file ``forget``, ``retain`` and, if there are held-out records, ``held_out``, each ending in .npy,
    .npz, .parquet, .safetensors or .pt, or a sub-folder of shards of that name; all are read by `load_embeddings`. What
    a file has no room for may lie beside it: ``forget_ids.npy``, ``forget_labels.npy``, ``forget_losses.npy``,
    ``forget_groups.npy``, ``forget_strata.npy`` and ``forget_features.npy``, and the same for the other sides. Other
    files are not looked at.

    Args:
        path: Of the folder.
        strata: The column or array of the files that serves as strata, as `load_embeddings` takes it.

    Returns:
        (forget, retain), or (forget, retain, held_out) where the folder has held-out records.

    Raises:
        FileFormatError: No such folder, a side that is missing or there twice, a file that cannot be read safely, or
            labels, losses and the like that are not one per record.
        MissingPackageError: A format's package is not installed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> np.save(folder / "forget.npy", np.eye(2))
        >>> np.save(folder / "retain.npy", np.eye(3))
        >>> np.save(folder / "forget_labels.npy", np.array(["cat", "dog"]))
        >>> forget, retain = load_model_folder(folder)
        >>> forget.labels.tolist(), retain.shape
        (['cat', 'dog'], (3, 3))
    """
    folder = Path(path)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing there"
        raise FileFormatError(
            f"{folder} must be a folder with forget.*, retain.* and, if you have them, held_out.*; got {found}. "
            "Check the path."
        )
    with reading_safely(folder):
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    rows = {entry: entry.name for entry in entries if entry.is_dir()}
    rows |= {entry: entry.stem for entry in entries if not entry.is_dir() and has_format(entry)}
    places: dict[str, Path] = {}
    for side in SIDES:
        matches = [entry for entry, name in rows.items() if name == side]
        if len(matches) > 1:
            raise FileFormatError(
                f"{folder} must hold the {side} records once; got {' and '.join(entry.name for entry in matches)}. "
                "Remove all but one."
            )
        if matches:
            places[side] = matches[0]
        elif side != "held_out":
            listed = ", ".join(f"{entry.name}{'/' * entry.is_dir()}" for entry in entries[:5]) or "nothing"
            other = next((entry.name for entry in entries if entry.stem == side), None)
            advice = f"Save {other} in one of these formats" if other else "Name the files forget, retain and held_out"
            raise FileFormatError(
                f"{folder} must hold {side}.* (one of {', '.join(FORMATS)}, or a sub-folder of shards); got {listed}. "
                f"{advice}."
            )
        elif "test" in rows.values():
            raise FileFormatError(
                f"{folder} must hold records that no model was trained on as held_out.*; got test. "
                "Rename it to held_out."
            )
    return tuple(_load_side(place, side, entries, strata) for side, place in places.items())


def load_losses(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]] | None:
    """The losses of a model of which a folder holds nothing else: ``forget_losses.npy`` and the like, by side.

    None for a path that is no folder, and for one that holds rows too.

    Raises:
        FileFormatError: A file that cannot be read safely, or that holds no plain numbers.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> np.save(folder / "forget_losses.npy", np.array([0.5, 2.0]))
        >>> {side: losses.tolist() for side, losses in load_losses(folder).items()}
        {'forget': [0.5, 2.0]}
    """
    folder = Path(path)
    files = {side: folder / f"{side}_losses.npy" for side in SIDES}
    if not files["forget"].is_file():
        return None
    with reading_safely(folder):
        if any(entry.stem == "forget" or entry.name == "forget" for entry in folder.iterdir()):
            return None
    found: dict[str, npt.NDArray[Any]] = {}
    for side, file in files.items():
        if file.is_file():
            with reading_safely(file):
                found[side] = np.array(open_npy(file))
            if found[side].dtype.kind not in "iuf":
                raise FileFormatError(f"{file} must hold numbers; got {found[side].dtype}. Save one loss per record.")
    return found


def _load_side(place: Path, side: str, entries: list[Path], strata: str | None) -> Embeddings:
    """The rows of a side with everything that lies beside them."""
    rows = load_embeddings(place, strata=strata)
    for file in entries:
        kind = file.stem.removeprefix(f"{side}_")
        if file.suffix.lower() != ".npy" or kind == file.stem:
            continue
        if kind not in _BESIDE_FILES:
            raise FileFormatError(
                f"{file} must be named {side}_ and one of {', '.join(_BESIDE_FILES)}; got {kind!r}. "
                "Rename or remove it."
            )
        is_known = getattr(rows, kind) is not None
        if kind == "ids":
            is_known = not np.array_equal(rows.ids, np.arange(len(rows)))
        if is_known:
            raise FileFormatError(f"{file} must not repeat what {place.name} holds; both have {kind}. Remove one.")
        with reading_safely(file):
            array = open_npy(file)
            if array.dtype.kind not in "biufU":
                raise FileFormatError(f"{file} must hold numbers or text; got {array.dtype}. Save a plain array.")
            beside: dict[str, Any] = {kind: np.array(array if kind == "features" else storable(kind, array))}
            rows = replace(rows, **beside)
    return rows


def as_rows(value: Any, name: str) -> Any:
    """Tables, dicts of columns and paths as `Embeddings`; arrays, `Embeddings` and dicts by layer as they are.

    A table is a DataFrame of pandas or polars, a LazyFrame, a ``datasets.Dataset`` or a pyarrow Table. As in files, its
    vectors are the column ``embedding`` (or ``embeddings``, ``values``), else all columns of numbers, in their order;
    ``id``, ``label``, ``loss``, ``group`` and ``strata`` stand beside them.

    Args:
        value: One side of one model.
        name: What errors call it, such as "unlearned forget".

    Raises:
        InputError: A model, its weights or a sparse matrix instead of rows, or a table whose columns do not fit.
        FileFormatError: A file that cannot be read safely.

    Example:
        >>> rows = as_rows({"embedding": [[1.0, 2.0], [3.0, 4.0]], "label": ["a", "b"]}, "forget")
        >>> rows.shape, rows.labels.tolist()
        ((2, 2), ['a', 'b'])
    """
    if isinstance(value, str | PathLike):
        return load_embeddings(value)
    if isinstance(value, Embeddings | np.ndarray):
        return value
    check_no_model(value, name)
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        raise InputError(
            f"{name} must be a dense array; got a sparse {type(value).__name__} of shape {value.shape}. "
            "Give its .toarray(), or embed the records with a model."
        )
    if isinstance(value, Mapping):
        return _read_columns(dict(value), name) if any(key in value for key in MATRIX_NAMES) else value
    if hasattr(value, "collect_schema") and hasattr(value, "collect"):
        value = value.collect()  # a LazyFrame of polars
    names = getattr(value, "column_names", None) or getattr(value, "columns", None)
    if names is None or callable(names) or not hasattr(value, "__getitem__"):
        return value
    return _read_columns({str(column): value[column] for column in names}, name)


def check_no_model(value: Any, name: str) -> None:
    """Neither a model nor its weights stand where rows are expected."""
    if hasattr(value, "state_dict") and hasattr(value, "parameters"):
        raise InputError(
            f"{name} must be embeddings; got a model, {type(value).__name__}. Give models to ruler.audit_models, "
            "or embed the records with ruler.embed."
        )
    if isinstance(value, Mapping):
        weight = next((key for key in value if str(key).endswith((".weight", ".bias", "_proj", ".running_mean"))), None)
        if weight is not None:
            raise InputError(
                f"{name} must be embeddings; got the weights of a model (a state_dict with {str(weight)!r}). Load them "
                "with model.load_state_dict and give the model to ruler.audit_models or ruler.embed."
            )


def _read_columns(columns: dict[str, Any], name: str) -> Embeddings:
    vector, beside = find_named(columns, name), find_beside(columns, name)
    apart = {alias for aliases in BESIDE_NAMES.values() for alias in aliases}
    fields: dict[str, Any] = {
        part: storable(part, np.asarray(_as_values(columns[column]))) for part, column in beside.items()
    }
    if vector is not None:
        return Embeddings(_stack(columns[vector], f"{name}, column {vector!r},"), **fields)
    numbers = {column: np.asarray(_as_values(values)) for column, values in columns.items() if column not in apart}
    if not numbers:
        raise InputError(f"{name} must have a column of embeddings; got only {', '.join(columns) or 'none'}.")
    for column, values in numbers.items():
        if values.ndim == 2 or (values.dtype.kind == "O" and len(values) and np.ndim(values[0]) == 1):
            near = difflib.get_close_matches(column.lower(), MATRIX_NAMES, n=1) or ["embedding"]
            raise InputError(
                f"{name} must name its column of vectors one of {', '.join(MATRIX_NAMES)}; got {column!r}. "
                f"Rename it to {near[0]!r}."
            )
        if values.dtype.kind not in "fiub":
            near = difflib.get_close_matches(column.lower(), sorted(apart), n=1)
            raise InputError(
                f"{name} must hold numbers but for its {', '.join(BESIDE_NAMES)}; got column {column!r} of "
                f"{values.dtype}. " + (f"Did you mean {near[0]!r}?" if near else "Drop it, or embed its records.")
            )
    return Embeddings(np.column_stack(list(numbers.values())), columns=tuple(numbers), **fields)


def _as_values(column: Any) -> Any:
    """A column of any library as something that NumPy takes."""
    for convert in ("to_pylist", "to_numpy", "numpy"):
        if hasattr(column, convert):
            return getattr(column, convert)()
    return column if isinstance(column, np.ndarray) else list(column)


def _stack(column: Any, name: str) -> npt.NDArray[Any]:
    """A column of vectors as (n, p)."""
    try:
        return np.stack([np.asarray(vector) for vector in _as_values(column)])
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name} must hold vectors of one length; got {str(error).rstrip('.')}. Drop or repair odd records."
        ) from error
