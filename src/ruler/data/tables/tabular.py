"""A name or a file -> the arrays of a table, verified."""

import hashlib
import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import DataMismatchError, InputError
from ruler.core.optional import load_optional
from ruler.core.readers.tables import TABLE_SUFFIXES, read_table
from ruler.core.registry import Registry
from ruler.core.types import FloatArray, IndexArray
from ruler.data.homes.covertype import download_covertype
from ruler.data.sources import cached_file, find_set, is_path, locate, write_table
from ruler.data.tables.encoding import encode_classes, encode_features
from ruler.data.tables.large_sets import LARGE_SETS
from ruler.data.tables.openml import download_table
from ruler.data.tables.sets import TABULAR_SETS, TabularSet

_TABLES = Registry("dataset", {**TABULAR_SETS, **LARGE_SETS})


@dataclass(frozen=True, eq=False)
class TabularData:
    """A table as numbers: row i is record ``ids[i]`` of class ``target[i]``.

    Args:
        name: Key of a published set, or the file's name.
        features: (n, d) float64, encoded but not yet scaled.
        target: (n,) classes 0..c-1.
        feature_names: d names.
        classes: c labels that the classes stand for.
        ids: (n,) names of the records; row numbers where the table names none.
        note: What a reader of its numbers must know about these rows; mostly nothing.
    """

    name: str
    features: FloatArray
    target: IndexArray
    feature_names: tuple[str, ...]
    classes: tuple[str, ...]
    ids: npt.NDArray[Any]
    note: str = ""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def content_hash(self) -> str:
        """SHA-256 of shape, features and target in little-endian order: the same on every machine."""
        digest = hashlib.sha256(f"{self.features.shape}".encode())
        digest.update(np.ascontiguousarray(self.features, dtype="<f8").data)
        digest.update(np.ascontiguousarray(self.target, dtype="<i8").data)
        return digest.hexdigest()


def load_tabular(
    name_or_path: str | os.PathLike[str],
    *,
    target: str | None = None,
    ids: str | None = None,
    root: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> TabularData:
    """What is in this table?

    A published set is looked for in the data folder, then in the cache, then downloaded into the cache; any
    other version of it is refused. Only Higgs may come from its public home with other rows than those measured
    here, and says so in ``note``. A file of your own needs ``target``.

    Args:
        name_or_path: Key of a published set (``"adult"``) or a path to a .csv, .csv.gz or .parquet file.
        target: Column with the classes; for your own file only.
        ids: Column with the records' names, kept out of the features; for your own file only.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        progress: Show on stderr, if it is a terminal, that a download is under way.

    Returns:
        TabularData with finite features.

    Raises:
        UnknownNameError: No such set, or no such column in the file; says the nearest.
        InputError: A file that is absent or empty, or a column that cannot be encoded.
        DataMismatchError: A published set in another version; says what differs.
        DownloadError: The set is not on this machine and cannot be fetched.

    Example:
        >>> load_tabular("breast_cancer").features.shape
        (569, 30)
    """
    if is_path(name_or_path, _TABLES, TABLE_SUFFIXES):
        return _load_own(Path(name_or_path), target, ids)
    entry = find_set(str(name_or_path), _TABLES)
    if target is not None or ids is not None:
        raise InputError(
            f"target and ids must be left out for a published set; got target={target!r}, ids={ids!r} "
            f"for {entry.key!r}. They are for your own file: give its path."
        )
    where = locate(entry, None if root is None else Path(root))
    if where.place == "scikit-learn":
        return _verify(_load_from_sklearn(entry), entry, "scikit-learn")
    path = where.path or fetch_tabular(entry.key, progress=progress)
    is_download = where.place != "RULER_DATA"
    return _verify(_encode_published(read_table(path), entry), entry, str(path), is_download=is_download)


def fetch_tabular(name: str, *, progress: bool = False) -> Path:
    """Download a published set into the cache, whatever is there already.

    Only a table that verifies is kept.

    Args:
        name: Key of a published set that does not come with scikit-learn.
        progress: Show on stderr, if it is a terminal, that a download is under way.

    Returns:
        Path of the cached file.

    Raises:
        InputError: The set comes with scikit-learn; there is nothing to download.
        DownloadError: Its home cannot be reached.
        DataMismatchError: Its home hands out another version.
    """
    entry = _TABLES[name]
    if entry.file is None:
        raise InputError(f"name must be a set that can be downloaded; got {name!r}. It comes with scikit-learn.")
    download = download_covertype if entry.openml_id is None else download_table
    table = download(entry, progress=progress)
    path = cached_file(entry)
    candidate = path.with_name(f".{uuid.uuid4().hex}-{path.name}")
    try:
        write_table(table, candidate)
        _verify(_encode_published(read_table(candidate), entry), entry, entry.origin, is_download=True)
        os.replace(candidate, path)
    finally:
        candidate.unlink(missing_ok=True)
    return path


def _load_own(path: Path, target: str | None, ids: str | None) -> TabularData:
    table = read_table(path)
    columns = Registry(f"column of {path.name}", {str(name): name for name in table.columns})
    if target is None:
        raise InputError(
            f"target must name the column with the classes; got None. {path.name} has {', '.join(columns)}."
        )
    codes, classes = encode_classes(table[columns[target]], target)
    names = np.arange(len(table)) if ids is None else _read_ids(table[columns[ids]], ids)
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


def _read_ids(column: Any, name: str) -> npt.NDArray[Any]:
    n_faulty = int((column.isna() | column.duplicated()).sum())
    if n_faulty:
        raise InputError(
            f"ids column {name!r} must name each record once; got {n_faulty} rows with a missing or repeated "
            "id. Leave ids out to use row numbers."
        )
    values: npt.NDArray[Any] = column.to_numpy()
    return values if values.dtype.kind in "iu" else values.astype(str)


def _encode_published(table: Any, entry: TabularSet) -> TabularData:
    features, labels = table.iloc[:, :-1], table.iloc[:, -1].astype(str)
    try:
        target = labels.map(entry.class_of).to_numpy(dtype=np.int64)
    except ValueError as error:
        raise DataMismatchError(
            f"last column of {entry.title} must hold its classes; got something else ({error}). Remove the file and "
            f"run: ruler data fetch {entry.key}"
        ) from error
    return TabularData(
        name=entry.key,
        features=encode_features(features),
        target=target,
        feature_names=tuple(map(str, features.columns)),
        classes=entry.classes,
        ids=np.arange(len(table)),
        note=entry.note,
    )


def _load_from_sklearn(entry: TabularSet) -> TabularData:
    bundle = load_optional("sklearn.datasets", f"loading {entry.title}").load_breast_cancer()
    return TabularData(
        name=entry.key,
        features=np.asarray(bundle.data, dtype=np.float64),
        target=np.asarray(bundle.target, dtype=np.int64),
        feature_names=tuple(map(str, bundle.feature_names)),
        classes=entry.classes,
        ids=np.arange(len(bundle.target)),
    )


def _verify(data: TabularData, entry: TabularSet, source: str, *, is_download: bool = False) -> TabularData:
    faults = [
        f"{what}: {got} instead of {expected}"
        for what, got, expected in [
            ("rows", data.features.shape[0], entry.n_rows),
            ("features", data.features.shape[1], entry.n_features),
            ("content", data.content_hash[:12], entry.content_hash[:12]),
        ]
        if got != expected
    ]
    if faults and is_download and data.features.shape == (entry.home_rows, entry.n_features):
        return replace(data, note=entry.home_note)
    if faults:
        rule = "the rows measured here" if entry.note else "the paper's version"
        raise DataMismatchError(
            f"{entry.title} must be {rule}; got another from {source} ({'; '.join(faults)}). "
            f"Put the right file at tabular/{entry.key}.csv.gz in the folder that RULER_DATA names, or remove "
            f"the wrong one and run: ruler data fetch {entry.key}"
        )
    return data
