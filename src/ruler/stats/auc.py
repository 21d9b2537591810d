"""AUC of one sample against another, with mid-ranks; its standard error and interval."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.samples import as_sample

ROUNDING = 1e-9
"""Statistics that differ by less count as equal, on the side that raises a p-value."""


@dataclass(frozen=True, eq=False)
class ScorePool:
    """Pooled scores in ascending order; scores that follow each other within 1e-12 are one tie."""

    order: IndexArray  # (n,) places of the scores, ascending
    low: IndexArray  # (n,) where the tie of each ordered score begins
    high: IndexArray  # (n,) where it ends, one past its last

    @classmethod
    def of(cls, scores: FloatArray) -> "ScorePool":
        """Sort scores and find their ties."""
        order = np.argsort(scores, kind="stable")
        ordered = scores[order]
        begins = np.concatenate([[True], np.diff(ordered) > TIE_SLACK])
        bounds = np.append(np.flatnonzero(begins), len(scores))
        tie = np.cumsum(begins) - 1
        return cls(order, bounds[tie], bounds[tie + 1])

    def place(self, weights: FloatArray) -> FloatArray:
        """Weight that lies under each ordered score, ties half: (n_draws, n) from (n_draws, n) in the order given."""
        heaped = np.zeros((len(weights), weights.shape[1] + 1))
        np.cumsum(weights[:, self.order], axis=1, out=heaped[:, 1:])
        return (heaped[:, self.low] + heaped[:, self.high]) / 2.0

    def rank(self) -> FloatArray:
        """Mid-rank of each score, from 1, in the order given: (n,).

        Example:
            >>> ScorePool.of(np.array([0.3, 0.1, 0.3])).rank().tolist()
            [2.5, 1.0, 2.5]
        """
        ranks = np.empty(len(self.order))
        ranks[self.order] = (self.low + self.high + 1) / 2.0
        return ranks


@dataclass(frozen=True)
class Effect:
    """An AUC of the first sample against the second, and how sure it is.

    Args:
        value: The AUC; 0.5 is no contrast.
        standard_error: Of it, from the spread of the placements (Brunner and Munzel 2000), so that unequal spread of
            the samples does not make it too small; NaN with fewer than two records on a side.
        interval_error: Standard error without the small upward bias of Brunner and Munzel's, for intervals.
        n_first: Records of the first sample.
        n_second: Of the second.
    """

    value: float
    standard_error: float
    interval_error: float
    n_first: int
    n_second: int

    @property
    def statistic(self) -> float:
        """Distance from 1/2 over the standard error; the distance itself where there is none."""
        distance = self.value - 0.5
        if math.isnan(self.standard_error) or abs(distance) <= ROUNDING:
            return distance
        return distance / self.standard_error if self.standard_error > 0 else math.copysign(math.inf, distance)


def measure_effect(first: npt.ArrayLike, second: npt.ArrayLike) -> Effect:
    """How often does a score of the first sample lie above one of the second, ties half?

    Raises:
        InputError: Scores that are empty or not finite.

    Example:
        >>> found = measure_effect([2.0, 4.0, 5.0], [1.0, 3.0])
        >>> round(found.value, 3), round(found.standard_error, 3)
        (0.833, 0.236)
    """
    values = as_sample(first, "first"), as_sample(second, "second")
    n, m = map(len, values)
    pool = ScorePool.of(np.concatenate(values))
    is_first = (np.arange(n + m) < n)[pool.order]
    under = pool.place((np.arange(n + m) < n).astype(np.float64)[None, :])[0]  # records of the first sample, ties half
    wins, losses = ((pool.low + pool.high) / 2.0 - under)[is_first], under[~is_first]
    value = float(wins.sum()) / (n * m)
    if min(n, m) < 2:
        return Effect(value, math.nan, math.nan, n, m)
    variance = float(wins.var(ddof=1)) / m**2 / n + float(losses.var(ddof=1)) / n**2 / m
    # what the two records of a pair do not explain of who wins it is the bias of that variance
    ties = np.unique(pool.low, return_inverse=True)[1]
    tied = np.bincount(ties, weights=is_first)
    squares = n * m * value - float((tied * (np.bincount(ties) - tied)).sum()) / 4.0  # of wins: 1, ties: 1/2
    placed = float(np.square(wins / m).sum()) * m + float(np.square(1 - losses / n).sum()) * n
    bias = max(0.0, squares - placed + n * m * value**2) / ((n - 1) * (m - 1)) / (n * m)
    return Effect(value, math.sqrt(variance), math.sqrt(max(0.0, variance - bias)), n, m)


def auc_interval(effect: Effect, alpha: float) -> tuple[float, float]:
    """Interval of level 1 - alpha for an AUC, by its logit and the standard error of its placements.

    Brunner and Munzel's variance is freed of its bias, and the quantile is normal: with a t quantile the interval
    covers up to 99% at ten records per side. Samples that are wholly apart, or all tied, have no spread in their
    placements; their interval holds the AUCs whose spread, by Newcombe's model (2006, method 5), reaches the estimate.

    Returns:
        (low, high) in [0, 1]; NaN with fewer than two records on a side.

    Example:
        >>> low, high = auc_interval(measure_effect(list(range(6)), [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]), 0.05)
        >>> round(low, 2), round(high, 2)
        (0.08, 0.62)
    """
    if math.isnan(effect.standard_error):
        return math.nan, math.nan
    n, m = effect.n_first, effect.n_second
    value, error, quantile = effect.value, effect.interval_error, float(ndtri(1 - alpha / 2))
    if error == 0.0 or value in (0.0, 1.0):
        rest = (n + m) / 2 - 1

        def miss(auc: float) -> float:
            spread = auc * (1 - auc) * (1 + rest * ((1 - auc) / (2 - auc) + auc / (1 + auc))) / (n * m)
            return abs(value - auc) - quantile * math.sqrt(spread)

        return (
            0.0 if value == 0.0 else float(brentq(miss, 0.0, min(value, 1 - ROUNDING))),
            1.0 if value == 1.0 else float(brentq(miss, max(value, ROUNDING), 1.0)),
        )
    reach = quantile * error / (value * (1 - value))
    middle = math.log(value / (1 - value))
    low, high = (1 / (1 + math.exp(-max(-700.0, min(700.0, end)))) for end in (middle - reach, middle + reach))
    return low, high
