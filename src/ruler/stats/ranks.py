"""Methods ranked within blocks, such as seeds or datasets: do they differ, and which ones? Friedman and Nemenyi."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray

LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Ranking:
    """Methods ranked within blocks.

    Args:
        ranks: (k,) mean rank of each method, 1 for the smallest value; ties share their mean rank.
        n_blocks: Number of blocks.
        p_value: Of Friedman's test that no method differs; NaN for fewer than three methods or two blocks.
        critical_difference: Two methods differ, at the 5% level for all pairs together, if their mean ranks do by more
            (Nemenyi); NaN likewise.
    """

    ranks: FloatArray
    n_blocks: int
    p_value: float
    critical_difference: float

    def list_groups(self) -> list[tuple[int, ...]]:
        """Largest sets of methods, best first, within which no two differ; those of one method are left out.

        Example:
            >>> Ranking(np.array([1.0, 2.0, 4.0]), 9, 0.01, 1.5).list_groups()
            [(0, 1)]
        """
        order = np.argsort(self.ranks, kind="stable").tolist()
        groups: list[tuple[int, ...]] = []
        last = 0
        for start, first in enumerate(order):
            reach = [place for place, one in enumerate(order) if self.ranks[one] - self.ranks[first] <= self._reach]
            stop = max(reach, default=start) + 1
            if stop - start > 1 and stop > last:
                groups.append(tuple(order[start:stop]))
            last = max(last, stop)
        return groups

    @property
    def _reach(self) -> float:
        return -1.0 if math.isnan(self.critical_difference) else self.critical_difference + 1e-12


def rank_within_blocks(values: npt.ArrayLike) -> Ranking:
    """Which methods are better than which, if each was tried in every block?

    Mean ranks R_j; Friedman's chi-square with correction for ties; Nemenyi's critical difference
    q sqrt(k (k + 1) / (6 n)), q the upper 5% point of the studentized range of k normal values, divided by sqrt(2).
    Blocks must be independent for the p-value to hold: seeds on one dataset say how training varies, not how data does.

    Args:
        values: (n_blocks, k) one number per block and method, smaller is better.

    Raises:
        InputError: Not such a table, or NaN in it.

    Example:
        >>> found = rank_within_blocks([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0]])
        >>> found.ranks.tolist(), round(found.p_value, 3), round(found.critical_difference, 3)
        ([1.25, 2.0, 2.75], 0.105, 1.657)
    """
    from scipy import stats

    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape or np.isnan(table).any():
        raise InputError(
            f"values must be (n_blocks, k) numbers without NaN; got shape {table.shape}. Drop incomplete blocks."
        )
    n_blocks, k = table.shape
    ranks = stats.rankdata(table, axis=1)
    if k < 3 or n_blocks < 2:
        return Ranking(ranks.mean(axis=0), n_blocks, math.nan, math.nan)
    is_tied = bool((table == table[:, :1]).all())
    p_value = 1.0 if is_tied else float(stats.friedmanchisquare(*table.T).pvalue)
    point = float(stats.studentized_range.ppf(1 - LEVEL, k, math.inf)) / math.sqrt(2)
    return Ranking(ranks.mean(axis=0), n_blocks, p_value, point * math.sqrt(k * (k + 1) / (6 * n_blocks)))
