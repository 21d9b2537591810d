"""Wilcoxon's rank-sum test (Mann and Whitney's U) without the second that importing scipy.stats takes."""

import math
from typing import Literal

import numpy as np
from scipy.special import ndtr

from ruler.core.types import FloatArray

_MOST_EXACT = 8


def rank_sum_p_value(
    first: FloatArray, second: FloatArray, alternative: Literal["two-sided", "greater"] = "two-sided"
) -> float:
    """Does one sample tend to be larger than the other? The p-value in [0, 1]; NaN if a value is.

    Exact where a sample has at most 8 values and no two are equal; otherwise normal, corrected for ties and continuity.

    Example:
        >>> rank_sum_p_value(np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0, 2.0]), "greater")
        0.05
    """
    n_first, n_second, n = len(first), len(second), len(first) + len(second)
    pooled = np.concatenate([first, second])
    if np.isnan(pooled).any():
        return math.nan
    _, codes, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    if min(n_first, n_second) <= _MOST_EXACT and len(counts) == n:
        from scipy.stats import mannwhitneyu

        return float(mannwhitneyu(first, second, alternative=alternative, method="exact").pvalue)
    ranks = counts.cumsum() - (counts - 1) / 2
    wins = float(ranks[codes[:n_first]].sum() - n_first * (n_first + 1) / 2)
    if alternative == "two-sided":
        wins = max(wins, n_first * n_second - wins)
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    spread = math.sqrt(n_first * n_second / 12 * ((n + 1) - ties / (n * (n - 1))))
    above = wins - n_first * n_second / 2 - 0.5
    p_value = float(ndtr(-above / spread)) if spread > 0 else 1.0
    return min(1.0, p_value * (2 if alternative == "two-sided" else 1))
