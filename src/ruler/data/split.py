"""A table -> scaled training and test arrays, as the paper's protocol cuts them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import IndexArray
from ruler.data.tabular import TabularData


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

    Args:
        data: A loaded table.
        test_fraction: Share of test records, between 0 and 1.
        seed: Of the draw.

    Returns:
        TabularSplit; training rows stand in the order of the draw, which decides the forget sets.

    Raises:
        InputError: A fraction out of range, or classes too small to be cut in two.

    Example:
        >>> from ruler.data import load_tabular
        >>> split(load_tabular("breast_cancer")).train_features.shape
        (455, 30)
    """
    _check_split(data, test_fraction)
    selection = load_optional("sklearn.model_selection", "splitting a table")
    preprocessing = load_optional("sklearn.preprocessing", "scaling a table")
    train, test = selection.train_test_split(
        np.arange(len(data)), test_size=test_fraction, stratify=data.target, random_state=seed
    )
    scaler = preprocessing.StandardScaler().fit(data.features[train])
    return TabularSplit(
        train_features=scaler.transform(data.features[train]).astype(np.float32),
        train_target=data.target[train],
        test_features=scaler.transform(data.features[test]).astype(np.float32),
        test_target=data.target[test],
        train_ids=data.ids[train],
        test_ids=data.ids[test],
    )


def _check_split(data: TabularData, test_fraction: float) -> None:
    if not 0 < test_fraction < 1:
        raise InputError(f"test_fraction must be between 0 and 1; got {test_fraction}. The paper uses 0.2.")
    counts = np.bincount(data.target)
    if counts.min() < 2:
        rare = data.classes[int(counts.argmin())]
        raise InputError(f"every class must have at least 2 records; got 1 of class {rare!r}. Drop or merge it.")
    n_test = int(np.ceil(test_fraction * len(data)))
    if min(n_test, len(data) - n_test) < len(counts):
        raise InputError(
            f"train and test part must have room for all {len(counts)} classes; got {len(data) - n_test} and "
            f"{n_test} records. Give more records or another test_fraction."
        )
