"""A dataset and a forget set -> the records that models are trained, unlearned and measured on."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.optional import load_optional
from ruler.core.types import IndexArray, Partition
from ruler.data import TabularSplit, load_tabular, partition_rows, split

if TYPE_CHECKING:
    import torch  # only the processes that run models pay for loading it

BASELINE_ROWS, BASELINE_SEED = 500, 42
GALLERY_ROWS = 2000


@dataclass(frozen=True, eq=False)
class Inputs:
    """What models are asked about, on the device where they run.

    Args:
        distinct, train, test: Features (n, d) of the distinct records, and of all training and test records.
        classes: (n_train,) of the training records.
        forgotten: Rows of ``train`` to forget.
        forget, compared, gallery: Rows of ``distinct``: the forget records, these and then M2's baseline, and the
            gallery's distinct ones.
        has_twin: Which of the latter stand for several records.
    """

    distinct: "torch.Tensor"
    train: "torch.Tensor"
    test: "torch.Tensor"
    classes: "torch.Tensor"
    forgotten: "torch.Tensor"
    forget: "torch.Tensor"
    compared: "torch.Tensor"
    gallery: "torch.Tensor"
    has_twin: "torch.Tensor"


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
        device: Where models are asked about them.
    """

    parts: TabularSplit
    partition: Partition
    distinct: npt.NDArray[np.float32]
    forget: IndexArray
    baseline: IndexArray
    gallery: IndexArray
    device: str = "cpu"

    @cached_property
    def inputs(self) -> Inputs:
        """The records on the device, moved there once."""
        place = load_optional("torch", "running models").as_tensor
        train, test, classes = place_parts(self.parts, self.device)
        gallery, _, counts = self.distinct_gallery
        rows = (self.partition.forget, self.forget, np.append(self.forget, self.baseline), gallery, counts > 1)
        return Inputs(
            place(self.distinct, device=self.device),
            train,
            test,
            classes,
            *(place(index, device=self.device) for index in rows),
        )

    @cached_property
    def distinct_gallery(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """The gallery's distinct rows, for each gallery record its place among them, and how often each is there."""
        return np.unique(self.gallery, return_inverse=True, return_counts=True)

    def pair(self, rows: IndexArray) -> tuple[Any, Any]:
        """Features and classes of some training rows."""
        return self.parts.train_features[rows], self.parts.train_target[rows]


@lru_cache(maxsize=2)
def load_parts(dataset: str) -> TabularSplit:
    """The dataset, split; kept while a process works on it."""
    return split(load_tabular(dataset))


@lru_cache(maxsize=2)
def place_parts(parts: TabularSplit, device: str) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Training features, test features and training classes on a device; kept while a process works on them."""
    place = load_optional("torch", "running models").as_tensor
    train, test, classes = (
        place(part, device=device) for part in (parts.train_features, parts.test_features, parts.train_target)
    )
    return train, test, classes


def make_records(parts: TabularSplit, fraction: float, forget_seed: int, *, device: str = "cpu") -> Records:
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
    forget, baseline, gallery = np.split(place.reshape(-1), np.cumsum([len(group) for group in groups])[:-1])
    return Records(parts, partition, distinct, forget, baseline, gallery, device)
