"""Correction for many tests at once: the Benjamini-Hochberg false discovery rate, and Holm's."""

import numpy as np
import numpy.typing as npt
from scipy.stats import false_discovery_control

from ruler.core.errors import InputError
from ruler.core.types import FloatArray


def adjust_p_values(p_values: npt.ArrayLike) -> FloatArray:
    """Which of many tests still stand when a share of false discoveries is to be held?

    Benjamini-Hochberg adjusted p-values: rejecting all that are at most q keeps the expected share of false
    rejections at most q. A NaN, a test that could not be made, stays NaN and is not counted.

    Args:
        p_values: (n,) numbers in [0, 1] or NaN.

    Returns:
        Adjusted p-values in the same order, shape (n,).

    Raises:
        InputError: Not one-dimensional, or outside [0, 1].

    Example:
        >>> adjust_p_values([0.01, 0.04, 0.03, float("nan")]).round(3).tolist()
        [0.03, 0.04, 0.04, nan]
    """
    raw = np.asarray(p_values, dtype=np.float64)
    if raw.ndim != 1:
        raise InputError(f"p_values must be one-dimensional; got shape {raw.shape}. Put all tests into one list.")
    is_made = ~np.isnan(raw)
    if ((raw[is_made] < 0) | (raw[is_made] > 1)).any():
        raise InputError(f"p_values must lie in [0, 1]; got {raw[is_made].tolist()}. Check where they come from.")
    adjusted = np.full(raw.shape, np.nan)
    if is_made.any():
        adjusted[is_made] = false_discovery_control(raw[is_made], method="bh")
    return adjusted


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Holm's step-down p-values: rejecting those at most alpha keeps the chance of any false rejection at alpha.

    Example:
        >>> holm([0.04, 0.03]).tolist(), holm([0.04, 0.01]).tolist()
        ([0.06, 0.06], [0.04, 0.02])
    """
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted
