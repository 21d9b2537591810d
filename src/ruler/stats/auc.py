"""AUC of one sample against another, with mid-ranks, for many labellings at once; its standard error and interval."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.samples import as_sample

ROUNDING = 1e-9
"""Statistics that differ by less count as equal, on the side that raises a p-value."""
_FEW_TIES = 8


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

    @cached_property
    def ties(self) -> list[tuple[int, int]]:
        """Where each tie of several scores begins and ends, in order."""
        is_tied = self.high - self.low > 1
        return list(dict.fromkeys(zip(self.low[is_tied].tolist(), self.high[is_tied].tolist(), strict=True)))

    def rank(self) -> FloatArray:
        """Mid-rank of each score, from 1, in the order given: (n,).

        Example:
            >>> ScorePool.of(np.array([0.3, 0.1, 0.3])).rank().tolist()
            [2.5, 1.0, 2.5]
        """
        ranks = np.empty(len(self.order))
        ranks[self.order] = (self.low + self.high + 1) / 2.0
        return ranks


@dataclass(frozen=True, eq=False)
class AucEstimate:
    """AUCs and their standard errors, one per labelling: (n_draws,) each."""

    effect: FloatArray
    standard_error: FloatArray  # after Brunner and Munzel; NaN with fewer than two records on a side
    degrees_of_freedom: FloatArray  # Satterthwaite's

    def studentise(self) -> FloatArray:
        """Distance of each AUC from 1/2 over its standard error, or the distance itself where there is none."""
        distance = self.effect - 0.5
        if np.isnan(self.standard_error).any():
            return distance
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(np.abs(distance) <= ROUNDING, 0.0, distance / self.standard_error)


def estimate_auc(pool: ScorePool, is_first: npt.NDArray[np.bool_], n_first: FloatArray | None = None) -> AucEstimate:
    """AUC of the records marked in each row of ``is_first`` against the others, with its standard error.

    The variance is that of the placements (Brunner and Munzel 2000), so that unequal spread does not make it too small.
    ``is_first`` is (n_draws, n), for the n scores of the pool; ``n_first`` (n_draws,) its sums, where they are known.

    Example:
        >>> pool = ScorePool.of(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
        >>> found = estimate_auc(pool, np.array([[False, True, False, True, True]]))
        >>> found.effect.round(3).tolist(), found.standard_error.round(3).tolist()
        ([0.833], [0.236])
    """
    if n_first is None:
        n_first = is_first.sum(axis=1).astype(np.float64)
    n_second = is_first.shape[1] - n_first
    is_quick = len(pool.ties) <= _FEW_TIES and (n_first == n_first[0]).all()
    wins, squares_first, squares_second = (_sum_by_place if is_quick else _sum_by_tie)(pool, is_first)
    effect = wins / (n_first * n_second)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread_first = np.maximum(0.0, squares_first / n_second**2 - n_first * effect**2) / (n_first - 1)
        spread_second = squares_second / n_first**2 - n_second * (1.0 - effect) ** 2
        spread_second = np.maximum(0.0, spread_second) / (n_second - 1)
        parts = [  # variances under 1e-13 are made by rounding alone
            np.where(n > 1, np.where(spread < 1e-13, 0.0, spread), np.nan) / n
            for spread, n in ((spread_first, n_first), (spread_second, n_second))
        ]
        variance = parts[0] + parts[1]
        freedom = variance**2 / (parts[0] ** 2 / (n_first - 1) + parts[1] ** 2 / (n_second - 1))
    return AucEstimate(effect, np.sqrt(variance), freedom)


def _sum_by_tie(pool: ScorePool, is_first: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pairs that the first sample wins, and sums of squared placements: of the first sample, and of the second."""
    starts = np.unique(pool.low)
    sizes = np.diff(starts, append=len(pool.order)).astype(np.float64)
    middle = starts + sizes / 2.0
    heaped = np.cumsum(is_first.take(pool.order, axis=1), axis=1, dtype=np.float64).take(
        np.append(starts[1:], len(pool.order)) - 1, axis=1
    )
    counts = np.diff(heaped, prepend=0.0, axis=1)  # (n_draws, n_ties) of the first sample
    under = heaped - counts / 2.0
    own = counts * under
    own_squares = np.einsum("ij,ij->i", own, under)
    squares_first = counts @ middle**2 - 2 * (own @ middle) + own_squares
    return counts @ middle - own.sum(axis=1), squares_first, np.square(under) @ sizes - own_squares


def _sum_by_place(pool: ScorePool, is_first: npt.NDArray[np.bool_]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The same where few scores tie and every labelling marks m: permutations spend their time here.

    The jth of the first sample, at place p_j of 0..n-1, lies over j - 1 of its own, so that p_j and j p_j have all sums
    in them: the squared counts below the second sample are those below all n, the sum of (2j - 1)(n - 1 - p_j), without
    those below the first. Ties are counted in the order in which they stand, and then put right one by one.
    """
    (n_draws, n), m = is_first.shape, int(is_first[0].sum())
    mark = is_first.take(pool.order, axis=1)
    marked = np.flatnonzero(mark).reshape(n_draws, m)
    places = np.subtract(marked, n * np.arange(n_draws)[:, None], dtype=np.float64)
    below = np.arange(m, dtype=np.float64)
    total, weighted = places.sum(axis=1), places @ below
    own_squares = float(below @ below)
    wins = total - below.sum()
    squares_first = np.einsum("ij,ij->i", places, places) - 2 * weighted + own_squares
    squares_second = (n - 1) * m**2 - 2 * weighted - total - own_squares
    for low, high in pool.ties:
        own = mark[:, low:high]
        before = np.count_nonzero(places < low, axis=1)[:, None]
        firsts = before + np.cumsum(own, axis=1) - own  # of the first sample, under each of the tie
        seconds = np.arange(low, high) - firsts
        k = own.sum(axis=1)
        over, under = low - before[:, 0] + (high - low - k) / 2.0, before[:, 0] + k / 2.0
        wins += k * over - (own * seconds).sum(axis=1)
        squares_first += k * over**2 - (own * seconds**2).sum(axis=1)
        squares_second += (high - low - k) * under**2 - (~own * firsts**2).sum(axis=1)
    return wins, squares_first, squares_second


@dataclass(frozen=True)
class Effect:
    """An AUC of the first sample against the second, and how sure it is.

    Args:
        value: The AUC; 0.5 is no contrast.
        standard_error: Of it; NaN with fewer than two records on a side.
        degrees_of_freedom: Of the standard error.
        null_spread: Standard deviation of the AUC if both samples are alike.
        n_first: Records of the first sample.
        n_second: Of the second.
        interval_error: Standard error without the small upward bias of Brunner and Munzel's, for intervals; NaN where
            it is not known.
    """

    value: float
    standard_error: float
    degrees_of_freedom: float
    null_spread: float
    n_first: int
    n_second: int
    interval_error: float = math.nan

    @property
    def statistic(self) -> float:
        """Distance from 1/2 over the standard error; the distance itself where there is none."""
        distance = self.value - 0.5
        if math.isnan(self.standard_error) or abs(distance) <= ROUNDING:
            return distance
        return distance / self.standard_error if self.standard_error > 0 else math.copysign(math.inf, distance)

    @property
    def error(self) -> float:
        """The larger of the standard error and the spread under the null: no lucky small variance proves likeness."""
        return max(self.standard_error, self.null_spread)

    @property
    def freedom(self) -> float:
        """Degrees of freedom; those of the sizes where the placements have no spread."""
        return (
            float(self.n_first + self.n_second - 2) if math.isnan(self.degrees_of_freedom) else self.degrees_of_freedom
        )


def measure_effect(first: npt.ArrayLike, second: npt.ArrayLike) -> Effect:
    """How often does a score of the first sample lie above one of the second, ties half?

    Raises:
        InputError: Scores that are empty or not finite.

    Example:
        >>> found = measure_effect([2.0, 4.0, 5.0], [1.0, 3.0])
        >>> round(found.value, 3), round(found.null_spread, 3)
        (0.833, 0.289)
    """
    values = as_sample(first, "first"), as_sample(second, "second")
    n, m = map(len, values)
    pool = ScorePool.of(np.concatenate(values))
    found = estimate_auc(pool, (np.arange(n + m) < n)[None, :])
    total = n + m
    sizes = np.unique(pool.low, return_counts=True)[1].astype(np.float64)
    ties = float((sizes**3 - sizes).sum()) / (total * (total - 1))
    null_variance = max(0.0, total + 1 - ties) / (12.0 * n * m)
    value, error = float(found.effect[0]), float(found.standard_error[0])
    return Effect(
        value,
        error,
        float(found.degrees_of_freedom[0]),
        math.sqrt(null_variance),
        n,
        m,
        math.sqrt(max(0.0, error**2 - _pair_variance(pool, values) / (n * m))) if min(n, m) > 1 else math.nan,
    )


def _pair_variance(pool: ScorePool, samples: tuple[FloatArray, FloatArray]) -> float:
    """Variance of who wins a pair beyond what its two records explain: the bias of the placements' variance."""
    first, second = place_samples(*samples)
    n, m, value = len(first), len(second), float(first.mean())
    is_first = np.arange(n + m) < n
    sizes = np.unique(pool.low, return_inverse=True)[1]
    n_first = np.bincount(sizes, weights=is_first[pool.order].astype(np.float64))
    n_ties = float((n_first * (np.bincount(sizes) - n_first)).sum())
    squares = n * m * value - n_ties / 4.0  # of wins: 1, ties: 1/2
    rest = squares - m * float((first**2).sum()) - n * float((second**2).sum()) + n * m * value**2
    return max(0.0, rest) / ((n - 1) * (m - 1))


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
    value, error, quantile = effect.value, effect.interval_error, normal_quantile(1 - alpha / 2)
    if math.isnan(error):
        error, quantile = effect.standard_error, float(stdtrit(max(1.0, effect.freedom), 1 - alpha / 2))
        value = min(max(value, 0.5 / (n * m)), 1 - 0.5 / (n * m))  # a difference of AUCs may leave [0, 1]
    elif error == 0.0 or value in (0.0, 1.0):
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


def place_samples(first: npt.ArrayLike, second: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Placements: share of the second sample under each score of the first, and of the first above each of the second.

    Either mean is the AUC; their spreads give its variance and, over the same records, its covariance with that of
    another score (DeLong and others 1988).

    Example:
        >>> [part.tolist() for part in place_samples([2.0, 4.0], [1.0, 3.0])]
        [[0.5, 1.0], [1.0, 0.5]]
    """
    values = as_sample(first, "first"), as_sample(second, "second")
    n, m = map(len, values)
    pool = ScorePool.of(np.concatenate(values))
    mark = (np.arange(n + m) < n).astype(np.float64)[None, :]
    under_first = pool.place(mark)[0]
    under_second = (pool.low + pool.high) / 2.0 - under_first
    shares = np.empty(n + m)
    shares[pool.order] = np.where(mark[0, pool.order] > 0, under_second / m, 1.0 - under_first / n)
    return shares[:n], shares[n:]


def normal_quantile(probability: float) -> float:
    """Quantile of the standard normal distribution."""
    return float(ndtri(probability))
