"""p-values of single records, and the correction for many tests at once: Benjamini-Hochberg's and Holm's."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.errors import InputError
from ruler.core.types import FloatArray
from ruler.stats.samples import as_sample


def conformal_p_values(
    scores: npt.ArrayLike, control: npt.ArrayLike, *, tail: Literal["low", "both"] = "both"
) -> FloatArray:
    """How unusual is each score among those of the control?

    p[low] = (1 + number of control scores at most s) / (m + 1); both tails: twice the smaller of the two, at most 1.
    Valid for each record that is exchangeable with the control's. No p-value can be under 1 / (m + 1), or twice that
    for both tails, so that a small control flags nobody.

    Args:
        scores: (n,) one per record; p-values are (n,) in (0, 1].
        control: (m,) of records that were never trained on.
        tail: Which side counts as unusual.

    Raises:
        InputError: Empty or not finite.

    Example:
        >>> conformal_p_values([5.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0]).tolist()
        [0.4, 1.0, 1.0]
        >>> conformal_p_values([0.5], [1.0, 2.0, 3.0, 4.0], tail="low").tolist()
        [0.2]
    """
    values, reference = as_sample(scores, "scores"), np.sort(as_sample(control, "control"))
    n_at_most = np.searchsorted(reference, values + TIE_SLACK, side="right")
    low: FloatArray = (1 + n_at_most) / (len(reference) + 1)
    if tail == "low":
        return low
    n_at_least = len(reference) - np.searchsorted(reference, values - TIE_SLACK, side="left")
    return np.minimum(1.0, 2.0 * np.minimum(low, (1 + n_at_least) / (len(reference) + 1)))


def adjust_p_values(p_values: npt.ArrayLike) -> FloatArray:
    """Which of many tests still stand when a share of false discoveries is to be held?

    Benjamini-Hochberg adjusted p-values: rejecting all that are at most q keeps the expected share of false rejections
    at most q. A NaN, a test that could not be made, stays NaN and is not counted.

    Args:
        p_values: (n,) numbers in [0, 1] or NaN; so is the answer, in the same order.

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
    made = raw[is_made]
    order = np.argsort(made)[::-1]
    steps = made[order] * (len(made) / np.arange(len(made), 0, -1.0))
    adjusted[np.flatnonzero(is_made)[order]] = np.minimum(1.0, np.minimum.accumulate(steps))
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
