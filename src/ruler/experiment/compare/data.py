"""Data by name, or a table of the user's own -> records to train on, to hold out and to forget."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.files import hash_file
from ruler.core.readers.tables import read_table
from ruler.core.registry import Registry
from ruler.core.types import IndexArray, Partition
from ruler.data import (
    DATASETS,
    TabularData,
    load_dataset,
    load_tabular,
    partition_classes,
    partition_groups,
    sample_rows,
)
from ruler.data.split import draw_split
from ruler.experiment.diagnostic.data import SPLIT_SEED, TABLE_ROWS, DiagnosticData, load_data

HELD_OUT = 0.2
_LEAST_CONTROL = 10  # held-out records like the forgotten ones; with fewer, all held-out records are the control


@dataclass(frozen=True, eq=False)
class CompareData(DiagnosticData):
    """Records of a comparison.

    Args:
        ids: (n,) names of the records, by default their rows in the table.
        is_chosen: (n,) whether a record is of the class or value that is forgotten; None if records are drawn.
    """

    ids: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))
    is_chosen: npt.NDArray[np.bool_] | None = None

    def cut(self, fraction: float, seed: int, choice: Any) -> Partition:
        """The training records to forget and to retain."""
        if self.is_chosen is None:
            return super().cut(fraction, seed, choice)
        return partition_classes(self.is_chosen[: self.n_train], True)

    def find_control(self) -> IndexArray:
        """Held-out records that are like those to forget: of the same class or value, if there are enough of them."""
        held_out = np.arange(self.n_train, len(self.inputs))
        if self.is_chosen is None or self.is_chosen[held_out].sum() < _LEAST_CONTROL:
            return held_out
        return held_out[self.is_chosen[held_out]]


def load_compared(wanted: Mapping[str, Any], path: Path | None) -> CompareData:
    """Load what is compared; arguments and errors as `load_table`."""
    if path is not None or DATASETS[wanted["dataset"]].kind == "table":
        return load_table(wanted, path)
    data, condition, is_chosen = load_data(wanted["dataset"]), wanted["forget"], None
    if isinstance(condition, str):
        column, _, value = (part.strip() for part in condition.partition("=="))
        if column != "class":
            raise InputError(f'forget must be a share or "class == LABEL" for images; got {condition!r}.')
        loaded: Any = load_dataset(wanted["dataset"])
        labels = getattr(loaded, "train", loaded).classes
        is_chosen = np.asarray(data.labels == Registry("class", {label: n for n, label in enumerate(labels)})[value])
    known = {entry.name: getattr(data, entry.name) for entry in fields(DiagnosticData)}
    return CompareData(**known, ids=np.arange(len(data.inputs)), is_chosen=is_chosen)


def load_table(wanted: Mapping[str, Any], path: Path | None) -> CompareData:
    """Load, split and scale a table.

    Args:
        wanted: ``dataset``, ``target``, ``ids``, ``groups``, ``forget`` and ``sha256``, as `CompareSettings` says.
        path: The user's own file; None for a dataset with a name.

    Raises:
        InputError: A file that has changed meanwhile, or no such column, class or value.
    """
    from sklearn.preprocessing import StandardScaler

    if path is not None and hash_file(path) != wanted["sha256"]:
        raise InputError(f"{path} must stay as it is while methods are compared; got other content. Run it again.")
    data = load_tabular(wanted["dataset"] if path is None else path, target=wanted["target"], ids=wanted["ids"])
    names, data = data.ids, replace(data, ids=np.arange(len(data)))
    data = sample_rows(data, TABLE_ROWS, seed=SPLIT_SEED) if len(data) > TABLE_ROWS else data
    is_chosen = _choose(data, wanted["forget"], path) if isinstance(wanted["forget"], str) else None
    groups, features = None, data.features
    if wanted["groups"] is None:
        train, held_out = draw_split(data.target, data.classes, test_fraction=HELD_OUT, seed=SPLIT_SEED)
    else:
        groups = _read_column(data, wanted["groups"], path).astype(str)
        if wanted["groups"] in data.feature_names:
            features = np.delete(features, data.feature_names.index(wanted["groups"]), axis=1)
        parts = partition_groups(groups, fraction=HELD_OUT, seed=SPLIT_SEED + 1)
        train, held_out = parts.retain, parts.forget
    order = np.concatenate([train, held_out])
    scaled = StandardScaler().fit(features[train]).transform(features[order])
    return CompareData(
        inputs=scaled.astype(np.float32),
        labels=data.target[order],
        groups=None if groups is None else groups[order],
        n_train=len(train),
        n_classes=len(data.classes),
        ids=names[data.ids[order]],
        is_chosen=None if is_chosen is None else is_chosen[order],
    )


def _choose(data: TabularData, condition: str, path: Path | None) -> npt.NDArray[np.bool_]:
    """Which records a condition such as ``age == 40`` holds for."""
    column, sign, value = (part.strip() for part in condition.partition("=="))
    if not (column and sign and value):
        raise InputError(
            f'forget must be a share such as 0.1, "class == LABEL" or "COLUMN == VALUE"; got {condition!r}.'
        )
    if column == "class":
        classes = Registry("class", {label: number for number, label in enumerate(data.classes)})
        return np.asarray(data.target == classes[value])
    found = _read_column(data, column, path)
    if found.dtype.kind in "iufb":
        try:
            found, wanted = found.astype(np.float64), float(value)
        except ValueError:
            raise InputError(f"forget must compare {column}, which holds numbers, with one; got {value!r}.") from None
        is_chosen = found == wanted
    else:
        is_chosen = found.astype(str) == value
    if not is_chosen.any():
        raise InputError(f"forget must hold for some records; got {condition!r}, which holds for none.")
    return np.asarray(is_chosen)


def _read_column(data: TabularData, name: str, path: Path | None) -> npt.NDArray[Any]:
    """A column of the table as it stands in the user's file, or as numbers in a dataset with a name."""
    if path is None:
        columns = Registry("column", {feature: place for place, feature in enumerate(data.feature_names)})
        return np.asarray(data.features[:, columns[name]])
    table = read_table(path)
    columns = Registry("column", {str(column): column for column in table.columns})
    values: npt.NDArray[Any] = table[columns[name]].to_numpy()[data.ids]
    return values
