"""A table -> scaled training and test arrays, as the paper's protocol cuts them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.types import FloatArray, IndexArray
from ruler.data.types import TabularData


@dataclass(frozen=True, eq=False)
class TabularSplit:
    """What models are trained and tested on.

    Args:
        train_features, test_features: (n, d) float32, scaled by mean and deviation of the training rows.
        train_target, test_target: (n,) classes.
        train_ids, test_ids: (n,) names of the records in the loaded table.
    """

    train_features: npt.NDArray[np.float32]
    train_target: IndexArray
    test_features: npt.NDArray[np.float32]
    test_target: IndexArray
    train_ids: npt.NDArray[Any]
    test_ids: npt.NDArray[Any]


def split(data: TabularData, *, test_fraction: float = 0.2, seed: int = 999) -> TabularSplit:
    """Which records train the models, and which test them?

    Stratified on the classes; the scaler is fitted on the training rows alone. The defaults are the paper's.

    Returns:
        TabularSplit; training rows are in the order of the draw, which decides the forget sets.

    Raises:
        InputError: A fraction out of range, or classes too small to be cut in two.

    Example:
        >>> from ruler.data import load_tabular
        >>> split(load_tabular("breast_cancer")).train_features.shape
        (455, 30)
    """
    train, test = draw_split(data.target, data.classes, test_fraction=test_fraction, seed=seed)
    mean, deviation = fit_scale(np.asarray(data.features[train], dtype=np.float64))
    return TabularSplit(
        train_features=((data.features[train] - mean) / deviation).astype(np.float32),
        train_target=data.target[train],
        test_features=((data.features[test] - mean) / deviation).astype(np.float32),
        test_target=data.target[test],
        train_ids=data.ids[train],
        test_ids=data.ids[test],
    )


def draw_split(
    target: IndexArray, classes: tuple[str, ...], *, test_fraction: float, seed: int
) -> tuple[IndexArray, IndexArray]:
    """Training rows and test rows, stratified on the classes, each in the order of the draw.

    Example:
        >>> [rows.tolist() for rows in draw_split(np.array([0, 0, 1, 1]), ("a", "b"), test_fraction=0.5, seed=0)]
        [[1, 2], [3, 0]]
    """
    if not 0 < test_fraction < 1:
        raise InputError(f"test_fraction must be between 0 and 1; got {test_fraction}. The paper uses 0.2.")
    present, counts = np.unique(target, return_counts=True)
    if counts.min() < 2:
        rare = classes[int(present[counts.argmin()])]
        raise InputError(f"every class must have at least 2 records; got 1 of class {rare!r}. Drop or merge it.")
    n_test = int(np.ceil(test_fraction * len(target)))
    if min(n_test, len(target) - n_test) < len(counts):
        raise InputError(
            f"train and test part must have room for all {len(counts)} classes; got {len(target) - n_test} and "
            f"{n_test} records. Give more records or another test_fraction."
        )
    draw = np.random.RandomState(seed)
    n_train = _share_out(counts, len(target) - n_test, draw)
    n_others = _share_out(counts - n_train, n_test, draw)
    train, test = [], []
    for label, first, second in zip(present, n_train, n_others, strict=True):
        rows = np.flatnonzero(target == label)
        rows = rows[draw.permutation(len(rows))]
        train.append(rows[:first])
        test.append(rows[first : first + second])
    return draw.permutation(np.concatenate(train)), draw.permutation(np.concatenate(test))


def _share_out(counts: IndexArray, n: int, draw: np.random.RandomState) -> IndexArray:
    """How many of ``n`` records each class gives: its share rounded down, and one more by the largest remainders.

    Draws among equal remainders as scikit-learn does, whose splits these are.
    """
    shares: FloatArray = counts / counts.sum() * n
    sizes: IndexArray = np.floor(shares).astype(np.int64)
    missing = int(n - sizes.sum())
    for remainder in np.unique(shares - sizes)[::-1]:
        if missing == 0:
            break
        alike = np.flatnonzero(shares - np.floor(shares) == remainder)
        alike = draw.choice(alike, min(len(alike), missing), replace=False)
        sizes[alike] += 1
        missing -= len(alike)
    return sizes


def fit_scale(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each column, the latter 1 where a column is constant within rounding.

    Step by step what scikit-learn's StandardScaler does, for the same bits.
    """
    n, epsilon = len(rows), np.finfo(np.float64).eps
    mean: FloatArray = rows.sum(axis=0) / n
    centred = rows - mean
    variance: FloatArray = ((centred**2).sum(axis=0) - centred.sum(axis=0) ** 2 / n) / n
    is_constant = variance <= n * epsilon * variance + (n * mean * epsilon) ** 2
    return mean, np.where(is_constant, 1.0, np.sqrt(variance))


def sample_rows(data: TabularData, n: int, *, seed: int = 999) -> TabularData:
    """Which ``n`` records stand for a table that is larger than needed?

    Drawn without replacement and stratified on the classes.

    Returns:
        TabularData of ``n`` records in the order of the table, with their ids; the table itself if it has ``n``.

    Raises:
        InputError: More records than there are, or too few for every class to be there.

    Example:
        >>> from ruler.data import load_tabular
        >>> np.bincount(sample_rows(load_tabular("breast_cancer"), 100).target)
        array([37, 63])
    """
    n_classes = len(np.unique(data.target))
    check_number(n, "n", minimum=n_classes, is_whole=True)
    if n > len(data):
        raise InputError(f"n must be at most the {len(data)} records of {data.name}; got {n}. Keep the whole table.")
    if n == len(data):
        return data
    kept = np.sort(_draw_stratified(data.target, n, seed))
    return replace(data, features=data.features[kept], target=data.target[kept], ids=data.ids[kept])


def _draw_stratified(target: IndexArray, n: int, seed: int) -> IndexArray:
    """``n`` rows, each class with its share rounded to the nearest whole record and at least one."""
    counts = np.bincount(target)
    quota = counts * (n / len(target))
    sizes = np.maximum(np.floor(quota).astype(np.int64), counts > 0)
    order = np.argsort(sizes - quota, kind="stable")  # the most underserved class first
    sizes[order[: max(0, n - int(sizes.sum()))]] += 1
    while sizes.sum() > n:  # rare classes took more than their share
        sizes[int(np.argmax(sizes))] -= 1
    draw = np.random.RandomState(seed)
    rows = [draw.choice(np.flatnonzero(target == label), sizes[label], replace=False) for label in range(len(sizes))]
    return np.concatenate(rows)
