"""A table of numbers and text -> a matrix of numbers, by the paper's rules."""

from typing import Any

import numpy as np

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray, IndexArray

_NUMBER_KINDS = ("integer", "floating", "mixed-integer-float", "decimal")


def encode_features(table: Any) -> FloatArray:
    """What does a model see of this table?

    A text column becomes integer codes in sorted (ASCII) order of its categories, and a missing text gets
    the code after the last category. A missing number becomes the median of its column.

    Args:
        table: DataFrame, one row per record.

    Returns:
        (n, d) float64, finite.

    Raises:
        InputError: A column without any value, with inf, or with something other than numbers and text.

    Example:
        >>> import pandas as pd
        >>> encode_features(pd.DataFrame({"age": [30, None, 50], "job": ["smith", "baker", None]})).tolist()
        [[30.0, 1.0], [40.0, 0.0], [50.0, 2.0]]
    """
    encoded = np.empty(table.shape)
    for position, name in enumerate(table.columns):
        encoded[:, position] = _encode_column(table.iloc[:, position], str(name))
    return encoded


def encode_classes(labels: Any, name: str) -> tuple[IndexArray, tuple[str, ...]]:
    """Which class does each record belong to, counted from 0 in sorted order of the labels?

    Args:
        labels: Series of (n,) labels; numbers sort by value, text by ASCII.
        name: What the column is called in errors.

    Returns:
        (n,) codes 0..c-1 and the c labels that they stand for.

    Raises:
        InputError: Missing labels, fewer than two classes, or measurements instead of classes.

    Example:
        >>> import pandas as pd
        >>> encode_classes(pd.Series(["no", "yes", "no"]), "loan")
        (array([0, 1, 0]), ('no', 'yes'))
    """
    n_missing = int(labels.isna().sum())
    if n_missing:
        raise InputError(
            f"target column {name!r} must have a label in every row; got {n_missing} rows without. "
            "Drop or label these rows."
        )
    values = _as_numbers(labels)
    if values is None:
        codes, classes = _encode_text(labels)
    else:
        is_class = np.isfinite(values) & (values == np.floor(values))
        if not is_class.all():
            raise InputError(
                f"target column {name!r} must hold classes; got measurements, such as "
                f"{values[~is_class][0]}. Bin them, or name the column with the classes."
            )
        distinct, codes = np.unique(values, return_inverse=True)
        classes = tuple(str(int(value)) for value in distinct)
    if len(classes) < 2:
        raise InputError(
            f"target column {name!r} must hold at least two classes; got only {classes[0]!r}. Name another column."
        )
    return codes.astype(np.int64), classes


def _encode_column(column: Any, name: str) -> FloatArray:
    if column.isna().all():
        raise InputError(f"column {name!r} must hold at least one value; got none. Drop the column.")
    values = _as_numbers(column)
    if values is None:
        pandas = load_optional("pandas", "reading a table")
        first = column.dropna().iloc[0]
        if not pandas.api.types.is_scalar(first) or isinstance(first, (bytes, complex)):
            raise InputError(
                f"column {name!r} must hold numbers or text; got {type(first).__name__}. Flatten or drop the column."
            )
        codes, categories = _encode_text(column)
        return np.where(codes < 0, len(categories), codes).astype(np.float64)
    n_infinite = int(np.isinf(values).sum())
    if n_infinite:
        raise InputError(f"column {name!r} must be finite; got inf in {n_infinite} rows. Drop or correct these rows.")
    return np.where(np.isnan(values), np.nanmedian(values), values)


def _as_numbers(column: Any) -> FloatArray | None:
    """The column as float64 with NaN for missing values, or None for a column of text."""
    pandas = load_optional("pandas", "reading a table")
    if isinstance(column.dtype, pandas.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    types = pandas.api.types
    if types.is_complex_dtype(column) or types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        return None
    is_number = types.is_numeric_dtype(column) or types.is_bool_dtype(column)
    if not is_number and types.infer_dtype(column, skipna=True) not in _NUMBER_KINDS:
        return None
    numbers: FloatArray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _encode_text(column: Any) -> tuple[IndexArray, tuple[str, ...]]:
    """Codes in sorted order of the categories, -1 for missing, and the categories."""
    pandas = load_optional("pandas", "reading a table")
    raw_codes, raw_categories = pandas.factorize(column)
    texts = np.array([str(category) for category in raw_categories], dtype=object)
    categories, ranks = np.unique(texts, return_inverse=True)
    return np.append(ranks, -1)[raw_codes], tuple(categories.tolist())
