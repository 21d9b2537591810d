"""A name or a file -> the arrays of a table: verified, and encoded as numbers by the paper's rules."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import DataMismatchError, InputError
from ruler.core.files import writing_safely
from ruler.core.optional import load_optional
from ruler.core.readers.tables import TABLE_SUFFIXES, read_table
from ruler.core.registry import Registry
from ruler.core.types import FloatArray, IndexArray
from ruler.data.datasets import TabularSet
from ruler.data.homes import making_aside
from ruler.data.sources import find_home, locate, resolve, write_table
from ruler.data.types import TabularData

_NUMBER_KINDS = ("integer", "floating", "mixed-integer-float", "decimal")


def load_tabular(
    source: str | os.PathLike[str] | TabularSet,
    *,
    target: str | None = None,
    ids: str | None = None,
    root: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> TabularData:
    """What is in this table?

    A published dataset is looked for in the data folder, then in the cache, then downloaded into the cache; any
    other version of it is refused. Only Higgs may come from its public home with other rows than those measured
    here, and says so in ``note``. A file of your own needs ``target``.

    Args:
        source: Key of a dataset (``"adult"``), a dataset, or a path to a .csv, .csv.gz or .parquet file.
        target: Column with the classes; for your own file only.
        ids: Column with the records' names, kept out of the features; for your own file only.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        progress: Show on stderr that a download is under way.

    Returns:
        TabularData with finite features.

    Raises:
        UnknownNameError: No such dataset, or no such column in the file; says the nearest.
        InputError: A file that is absent or empty, or a column that cannot be encoded.
        DataMismatchError: A dataset in another version; says what differs.
        DownloadError: The dataset is not on this machine and cannot be fetched.

    Example:
        >>> load_tabular("breast_cancer").features.shape
        (569, 30)
    """
    dataset = resolve(source, TabularSet, TABLE_SUFFIXES)
    if isinstance(dataset, Path):
        return _load_own(dataset, target, ids)
    if target is not None or ids is not None:
        raise InputError(
            f"target and ids must be omitted for a dataset with a name; got target={target!r}, ids={ids!r} "
            f"for {dataset.key!r}. They are for your own file: give its path."
        )
    if dataset.read is not None:
        return _verify(replace(dataset.read(), name=dataset.key), dataset, dataset.origin)
    where = locate(dataset, root)
    path = where.path or fetch_table(dataset, progress=progress)
    is_download = where.place != "RULER_DATA"
    return _verify(_encode(read_table(path), dataset), dataset, str(path), is_download=is_download)


def fetch_table(dataset: TabularSet, *, progress: bool = False) -> Path:
    """Download a table into the cache, whatever is there already, if it verifies."""
    path, download = find_home(dataset)
    table = download(dataset, progress)
    with making_aside() as folder:
        candidate = Path(folder) / path.name
        write_table(table, candidate)
        _verify(_encode(read_table(candidate), dataset), dataset, dataset.origin, is_download=True)
        with writing_safely(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(candidate, path)
    return path


def _load_own(path: Path, target: str | None, ids: str | None) -> TabularData:
    table = read_table(path)
    columns = Registry(f"column of {path.name}", {str(name): name for name in table.columns})
    if target is None:
        raise InputError(
            f"target must name the column with the classes; got None. {path.name} has {', '.join(columns)}."
        )
    codes, classes = encode_classes(table[columns[target]], target)
    names: npt.NDArray[Any] = np.arange(len(table))
    if ids is not None:
        column = table[columns[ids]]
        n_faulty = int((column.isna() | column.duplicated()).sum())
        if n_faulty:
            raise InputError(
                f"ids column {ids!r} must name each record once; got {n_faulty} rows with a missing or repeated "
                "id. Omit ids to use row numbers."
            )
        names = column.to_numpy()
        names = names if names.dtype.kind in "iu" else names.astype(str)
    features = table.drop(columns=[columns[name] for name in (target, ids) if name is not None])
    if features.shape[1] == 0:
        raise InputError(f"{path.name} must have a column beside target and ids; got none. Add the features.")
    return TabularData(
        name=path.name,
        features=encode_features(features),
        target=codes,
        feature_names=tuple(map(str, features.columns)),
        classes=classes,
        ids=names,
    )


def _encode(table: Any, dataset: TabularSet) -> TabularData:
    features, labels = table.iloc[:, :-1], table.iloc[:, -1].astype(str)
    try:
        target = labels.map(dataset.class_of).to_numpy(dtype=np.int64)
    except ValueError as error:
        raise DataMismatchError(
            f"last column of {dataset.title} must hold its classes; got something else ({error}). Remove the file and "
            f"run: ruler data fetch {dataset.key}"
        ) from error
    return TabularData(
        name=dataset.key,
        features=encode_features(features),
        target=target,
        feature_names=tuple(map(str, features.columns)),
        classes=dataset.classes,
        ids=np.arange(len(table)),
        note=dataset.note,
    )


def _verify(data: TabularData, dataset: TabularSet, source: str, *, is_download: bool = False) -> TabularData:
    faults = [
        f"{what}: {got} instead of {expected}"
        for what, got, expected in [
            ("rows", data.features.shape[0], dataset.n_rows),
            ("features", data.features.shape[1], dataset.n_features),
            ("content", data.content_hash[:12], dataset.content_hash[:12]),
        ]
        if expected and got != expected
    ]
    if faults and is_download and data.features.shape == (dataset.home_rows, dataset.n_features):
        return replace(data, note=dataset.home_note)
    if faults:
        rule = "the rows measured here" if dataset.note else "the paper's version" if dataset.study else "as described"
        advice = (
            f"Put the right file at {dataset.file} in the folder that RULER_DATA names, or remove the wrong one and "
            f"run: ruler data fetch {dataset.key}"
        )
        raise DataMismatchError(
            f"{dataset.title} must be {rule}; got another from {source} ({'; '.join(faults)}). "
            f"{advice if dataset.file else 'Correct its description, or what its function reads.'}"
        )
    return data


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
