"""Samples of scores and their groups, checked, and the mean of each group."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray


def as_sample(values: npt.ArrayLike, name: str) -> FloatArray:
    """``values`` as a finite float64 vector of at least one number; `InputError` otherwise."""
    try:
        sample = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers; got {type(values).__name__} ({error}).") from error
    if sample.ndim != 1 or sample.size == 0:
        raise InputError(
            f"{name} must be one-dimensional with at least one value; got shape {sample.shape}. "
            "Give one number per run."
        )
    n_bad = int((~np.isfinite(sample)).sum())
    if n_bad:
        raise InputError(f"{name} must be finite; got NaN or inf in {n_bad} of {sample.size} values. Drop failed runs.")
    return sample


def as_groups(groups: Sequence[Any] | npt.NDArray[Any], n: int) -> npt.NDArray[np.intp]:
    """Code 0, 1, ... of each value's group, groups in sorted order; `InputError` unless there is one label per value.

    Example:
        >>> as_groups(["b", "a", "b"], 3).tolist()
        [1, 0, 1]
    """
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(
            f"groups must be one label per value, shape ({n},); got shape {labels.shape}. Label each value."
        )
    return np.unique(labels, return_inverse=True)[1]


def average_by_group(values: npt.ArrayLike, groups: Sequence[Any] | npt.NDArray[Any]) -> FloatArray:
    """Mean of each group, groups in sorted order, shape (n_groups,).

    Raises:
        InputError: Values that are empty or not finite, or groups of another length.

    Example:
        >>> average_by_group([1.0, 2.0, 5.0], ["b", "b", "a"]).tolist()
        [5.0, 1.5]
    """
    sample = as_sample(values, "values")
    codes = as_groups(groups, len(sample))
    return np.bincount(codes, weights=sample) / np.bincount(codes)
