"""Rows of records as people hold them in memory: tables of several libraries, dicts of columns and paths of files."""

import difflib
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import Embeddings
from ruler.embeddings.files import load_embeddings
from ruler.embeddings.formats import BESIDE_NAMES, MATRIX_NAMES, find_beside, find_named, storable


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
    """Neither a model nor its weights stand where rows are expected.

    Raises:
        InputError: One of them does; the message says which function takes it.
    """
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
