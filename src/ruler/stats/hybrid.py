"""Several oracles: does the model's contrast differ from theirs? Needs no exchangeable records."""

import math

import numpy as np

from ruler.core.types import FloatArray
from ruler.stats.auc import Effect, ScorePool

LEAST_ORACLES = 5
"""Fewer oracles do not tell how much retraining alone moves a contrast."""


def rank_differences(model: FloatArray, oracles: FloatArray) -> FloatArray:
    """Rank of each record in the model less its mean rank in the oracles, over the number of records: (n,).

    Example:
        >>> rank_differences(np.array([1.0, 2.0]), np.array([[1.0, 2.0], [2.0, 1.0]])).tolist()
        [-0.25, 0.25]
    """
    ranks = np.array([ScorePool.of(row).rank() for row in oracles])
    difference: FloatArray = (ScorePool.of(model).rank() - ranks.mean(axis=0)) / len(model)
    return difference


def compare_with_oracles(model: FloatArray, oracles: FloatArray, n_first: int) -> Effect:
    """How far is the model's AUC from the mean AUC of its oracles, and how sure is that?

    The difference of AUCs is the mean of `rank_differences` over the first sample less that over the second. Its
    variance has three parts: the records of either sample, and how much the oracles' own contrasts differ among
    themselves, which says what retraining alone can do: s_f^2 / n + s_h^2 / m + s_K^2 (1 + 1 / K).

    Args:
        model: (n,) scores, the ``n_first`` records of the first sample first.
        oracles: (K, n) scores of the same records in the oracles.
        n_first: Records of the first sample.

    Returns:
        0.5 plus the difference, kept in [0, 1], with K - 1 degrees of freedom: Satterthwaite's would be far too many
        where the spread of a few oracles happens to be small.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=60)
        >>> models = truth + 0.3 * rng.normal(size=(6, 60))
        >>> found = compare_with_oracles(models[0], models[1:], 20)
        >>> abs(found.value - 0.5) < 3 * found.standard_error
        True
    """
    n, n_oracles = n_first, len(oracles)
    difference = rank_differences(model, oracles)
    own = [ScorePool.of(row).rank() / len(row) for row in oracles]
    contrasts = np.array([ranks[:n].mean() - ranks[n:].mean() for ranks in own])
    with np.errstate(invalid="ignore", divide="ignore"):
        records = [part.var(ddof=1) / len(part) if len(part) > 1 else math.nan for part in np.split(difference, [n])]
    variance = float(sum(records) + contrasts.var(ddof=1) * (1 + 1 / n_oracles))
    return Effect(
        value=min(1.0, max(0.0, 0.5 + float(difference[:n].mean() - difference[n:].mean()))),
        standard_error=math.sqrt(variance),
        degrees_of_freedom=float(n_oracles - 1),
        null_spread=math.sqrt(variance),
        n_first=n,
        n_second=len(model) - n,
    )
