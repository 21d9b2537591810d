"""A dataset and a forget set -> the records that models are trained, unlearned and measured on."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.types import IndexArray, Partition
from ruler.data import TabularSplit, load_tabular, partition_rows, split

BASELINE_ROWS, BASELINE_SEED = 500, 42
GALLERY_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Records:
    """The records of one partition, in the paper's mode of measuring.

    Args:
        parts: Training and test arrays.
        partition: Rows to forget and to retain.
        distinct: (n, d) distinct rows among those whose representations are read. Identical records go through
            a model once, so that their representations tie exactly whatever the product library does.
        forget, baseline, gallery: Rows of ``distinct`` for the forget records, M2's baseline (a draw of 500 retain
            records) and M4's gallery (the first 2,000 retain records).
    """

    parts: TabularSplit
    partition: Partition
    distinct: npt.NDArray[np.float32]
    forget: IndexArray
    baseline: IndexArray
    gallery: IndexArray

    def pair(self, rows: IndexArray) -> tuple[Any, Any]:
        """Features and classes of some training rows."""
        return self.parts.train_features[rows], self.parts.train_target[rows]


@lru_cache(maxsize=2)
def load_parts(dataset: str) -> TabularSplit:
    """The dataset, split; kept while a process works on it."""
    return split(load_tabular(dataset))


def make_records(parts: TabularSplit, fraction: float, forget_seed: int) -> Records:
    """Partition the training rows and choose what is measured.

    Example:
        >>> records = make_records(load_parts("breast_cancer"), 0.05, 999)
        >>> len(records.forget), len(records.baseline), len(records.gallery)
        (22, 433, 433)
    """
    partition = partition_rows(len(parts.train_target), fraction, seed=forget_seed)
    n_retain = len(partition.retain)
    drawn = np.random.RandomState(BASELINE_SEED).choice(n_retain, min(BASELINE_ROWS, n_retain), replace=False)
    groups = (partition.forget, partition.retain[drawn], partition.retain[:GALLERY_ROWS])
    rows = parts.train_features[np.concatenate(groups)]
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    places = np.split(place.reshape(-1), np.cumsum([len(group) for group in groups])[:-1])
    return Records(parts, partition, distinct, *places)
