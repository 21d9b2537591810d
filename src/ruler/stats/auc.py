"""AUC of one sample against another, with mid-ranks, for many labellings or weightings at once."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.types import FloatArray, IndexArray

Codes = npt.NDArray[np.intp]

ROUNDING = 1e-9
"""Statistics that differ by less count as equal, on the side that raises a p-value."""


@dataclass(frozen=True, eq=False)
class ScorePool:
    """Pooled scores in ascending order; scores that follow each other within 1e-12 are one tie.

    Args:
        order: (n,) places of the scores, ascending.
        low: (n,) where the tie of each ordered score begins.
        high: (n,) where it ends, one past its last.
    """

    order: IndexArray
    low: IndexArray
    high: IndexArray

    @classmethod
    def of(cls, scores: FloatArray) -> "ScorePool":
        """Sort scores and find their ties.

        Example:
            >>> pool = ScorePool.of(np.array([0.3, 0.1, 0.3]))
            >>> pool.order.tolist(), pool.low.tolist(), pool.high.tolist()
            ([1, 0, 2], [0, 1, 1], [1, 3, 3])
        """
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


def weighted_auc(pool: ScorePool, first: FloatArray, second: FloatArray) -> FloatArray:
    """How often does a draw from the first sample lie above one from the second, ties half?

    Args:
        pool: Scores of all n records.
        first: (n_draws, n) weight of each record in the first sample, 0 outside it.
        second: (n_draws, n) the same for the second sample.

    Returns:
        (n_draws,) AUCs in [0, 1].

    Example:
        >>> pool = ScorePool.of(np.array([1.0, 2.0, 2.0, 3.0]))
        >>> weighted_auc(pool, np.array([[0.0, 1.0, 0.0, 1.0]]), np.array([[1.0, 0.0, 1.0, 0.0]])).tolist()
        [0.875]
    """
    wins = (first[:, pool.order] * pool.place(second)).sum(axis=1)
    product: FloatArray = wins / (first.sum(axis=1) * second.sum(axis=1))
    return product


@dataclass(frozen=True, eq=False)
class AucEstimate:
    """AUCs and their standard errors, one a labelling.

    Args:
        effect: (n_draws,) AUCs.
        standard_error: (n_draws,) after Brunner and Munzel, whole groups as the units; NaN with fewer than two a side.
        degrees_of_freedom: (n_draws,) Satterthwaite's.
    """

    effect: FloatArray
    standard_error: FloatArray
    degrees_of_freedom: FloatArray

    def studentise(self) -> FloatArray:
        """Distance of each AUC from 1/2 over its standard error, or the distance itself where there is none.

        Example:
            >>> AucEstimate(np.array([0.6, 1.0]), np.array([0.05, 0.0]), np.array([9.0, 9.0])).studentise().round(6)
            array([ 2., inf])
        """
        distance = self.effect - 0.5
        if np.isnan(self.standard_error).any():
            return distance
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(np.abs(distance) <= ROUNDING, 0.0, distance / self.standard_error)


def estimate_auc(pool: ScorePool, is_first: npt.NDArray[np.bool_], codes: Codes | None = None) -> AucEstimate:
    """AUC of the records marked in each row of ``is_first`` against the others, with its standard error.

    The variance is that of the placements (Brunner and Munzel 2000), summed over whole groups where ``codes``
    tells them, so that neither unequal spread nor likeness inside a group makes it too small.

    Args:
        pool: Scores of all n records.
        is_first: (n_draws, n).
        codes: (n,) group 0..g-1 of each record, groups wholly on one side; None for single records.

    Example:
        >>> pool = ScorePool.of(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
        >>> found = estimate_auc(pool, np.array([[False, True, False, True, True]]))
        >>> found.effect.round(3).tolist(), found.standard_error.round(3).tolist()
        ([0.833], [0.236])
    """
    first = is_first.astype(np.float64)
    n_first = first.sum(axis=1, keepdims=True)
    n_second = first.shape[1] - n_first
    under_first = pool.place(first)
    under_second = (pool.low + pool.high) / 2.0 - under_first
    mark = first[:, pool.order]
    effect = (mark * under_second).sum(axis=1, keepdims=True) / (n_first * n_second)
    residual_first = mark * (under_second / n_second - effect)
    residual_second = (1.0 - mark) * (under_first / n_first - (1.0 - effect))
    ordered_codes = None if codes is None else codes[pool.order]
    part_first, units_first = _variance_of_mean(residual_first, mark, n_first, ordered_codes)
    part_second, units_second = _variance_of_mean(residual_second, 1.0 - mark, n_second, ordered_codes)
    variance = part_first + part_second
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = variance**2 / (part_first**2 / (units_first - 1) + part_second**2 / (units_second - 1))
    return AucEstimate(effect[:, 0], np.sqrt(variance), freedom)


def _variance_of_mean(
    residual: FloatArray, mark: FloatArray, n: FloatArray, codes: Codes | None
) -> tuple[FloatArray, FloatArray]:
    """Variance of the mean of the marked residuals, and the number of units behind it, a row each."""
    units = n[:, 0]
    if codes is not None:
        by_group = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[by_group], np.arange(codes.max() + 1))
        residual = np.add.reduceat(residual[:, by_group], starts, axis=1)
        units = (mark[:, by_group[starts]] > 0).sum(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = (residual**2).sum(axis=1)
        return np.where(units > 1, squares * units / (units - 1), np.nan) / n[:, 0] ** 2, units
