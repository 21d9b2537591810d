"""Means of a few runs with their intervals, and p-values of runs combined."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate from ``n`` runs and its 95% interval; the ends are NaN where the runs are too few."""

    value: float
    low: float
    high: float
    n: int


def mean_interval(values: npt.ArrayLike) -> Interval:
    """Mean of independent runs, (n,), with Student's 95% interval; NaN does not count.

    Example:
        >>> found = mean_interval([0.1, 0.2, 0.3])
        >>> round(found.value, 3), round(found.low, 3), found.n
        (0.2, -0.048, 3)
    """
    known = _drop_missing(values)
    n = len(known)
    if n < 2:
        return Interval(float(known[0]) if n else math.nan, math.nan, math.nan, n)
    error = float(np.std(known, ddof=1)) / math.sqrt(n)
    return _reach(float(np.mean(known)), error, n - 1, n)


def crossed_interval(values: npt.ArrayLike, first: npt.ArrayLike, second: npt.ArrayLike) -> Interval:
    """Mean of runs, (n,), that share levels of two factors, such as seeds and draws, with a 95% interval.

    The squared error is the sum of that of both factors' means, which counts what is left twice and so never too
    little; degrees of freedom are those of the factor with fewer levels. With one level of a factor it is
    `mean_interval` over the other's. NaN does not count.

    Example:
        >>> found = crossed_interval([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1], [0, 1, 0, 1])
        >>> found.value, round(found.high, 2)
        (2.5, 16.71)
    """
    table = np.asarray(values, dtype=np.float64)
    is_known = ~np.isnan(table)
    known = table[is_known]
    factors = (np.asarray(first)[is_known], np.asarray(second)[is_known])
    means = [[float(known[one == level].mean()) for level in np.unique(one)] for one in factors]
    levels = [one for one in means if len(one) > 1]
    if len(levels) < 2:
        return mean_interval(levels[0] if levels else known)
    error = sum(float(np.var(one, ddof=1)) / len(one) for one in levels)
    return _reach(float(known.mean()), math.sqrt(error), min(map(len, levels)) - 1, len(known))


def difference_interval(first: npt.ArrayLike, second: npt.ArrayLike) -> Interval:
    """Mean of the first sample, (n,), minus mean of the second, (m,), with Welch's 95% interval; NaN does not count.

    Example:
        >>> found = difference_interval([0.6, 0.7], [0.4, 0.5])
        >>> round(found.value, 3), found.low < 0 < found.high
        (0.2, True)
    """
    samples = _drop_missing(first), _drop_missing(second)
    n = min(map(len, samples))
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    difference = float(np.mean(samples[0]) - np.mean(samples[1]))
    if n < 2:
        return Interval(difference, math.nan, math.nan, n)
    parts = [float(np.var(sample, ddof=1)) / len(sample) for sample in samples]
    freedom = n - 1.0  # the smallest that Welch's formula can give; exact where one sample does not vary
    if min(parts) > 0:
        weights = sum(part**2 / (len(sample) - 1) for part, sample in zip(parts, samples, strict=True))
        freedom = sum(parts) ** 2 / weights
    return _reach(difference, math.sqrt(sum(parts)), freedom, n)


def combine_p_values(p_values: npt.ArrayLike) -> float:
    """One p-value of several that may depend on each other in any way: Rueger's rule, n/k times the k-th smallest.

    Seeds share their records, so their p-values are not independent and must not be multiplied. k is the middle. NaN
    does not count; without any p-value the answer is NaN.

    Example:
        >>> round(combine_p_values([0.01, 0.02, 0.03, 0.5, 0.9]), 3)
        0.05
    """
    known = np.sort(_drop_missing(p_values))
    if len(known) == 0:
        return math.nan
    middle = (len(known) + 1) // 2
    return min(1.0, float(known[middle - 1]) * len(known) / middle)


def _drop_missing(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    return array[~np.isnan(array)]


def _reach(value: float, error: float, freedom: float, n: int) -> Interval:
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, 0.5 + _LEVEL / 2)) * error
    return Interval(value, value - reach, value + reach, n)
