"""Two samples of scores: how far apart are they, and could chance alone have labelled them so?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from ruler.core.types import FloatArray
from ruler.stats.auc import ROUNDING, ScorePool, estimate_auc
from ruler.stats.samples import as_sample
from ruler.stats.units import Units, find_units


@dataclass(frozen=True)
class Contrast:
    """How the first sample lies against the second.

    Args:
        effect: AUC, the chance that a score of the first lies above one of the second, ties half.
        p_value: Two-sided permutation test that the samples are alike.
        standard_error: Of the effect; NaN with fewer than two units on a side.
        degrees_of_freedom: Of the standard error.
        null_effect: Mean of the effect under the null, 0.5 but for placebos.
        null_spread: Standard deviation of the effect under the null.
        n_first: Units (records or whole groups) of the first sample.
        n_second: Of the second.
        is_exact: All labellings were counted; otherwise a random draw of them.
    """

    effect: float
    p_value: float
    standard_error: float
    degrees_of_freedom: float
    null_effect: float
    null_spread: float
    n_first: int
    n_second: int
    is_exact: bool


def compare_samples(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    units: Units | None = None,
    n_permutations: int = 2000,
    seed: int = 0,
) -> Contrast:
    """Do scores of the first sample lie higher or lower than those of the second?

    The statistic is (AUC - 1/2) over its Brunner-Munzel standard error. Its permutation test is exact where units
    are exchangeable, and holds its level in large samples for AUC = 1/2 alone, when spreads or group sizes differ
    (Chung and Romano 2013). With one unit on a side there is no standard error, and the AUC itself is the statistic.

    Args:
        first: (n,) scores.
        second: (m,) scores.
        units: What is permuted; None permutes single records. See `find_units`.
        n_permutations: Random labellings; where there are no more than these in all, each is counted once.
        seed: Of the labellings.

    Raises:
        InputError: Scores that are empty or not finite.

    Example:
        >>> found = compare_samples([1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0])
        >>> found.effect, round(found.p_value, 4), found.is_exact
        (0.0, 0.0571, True)
    """
    scores = np.concatenate([as_sample(first, "first"), as_sample(second, "second")])
    n_records = len(np.atleast_1d(np.asarray(first)))
    units = units or find_units(n_records, len(scores) - n_records)
    pool = ScorePool.of(scores)
    observed = estimate_auc(pool, (np.arange(len(scores)) < n_records)[None, :], units.sparse_codes)
    is_exact = math.comb(units.n, units.n_first) <= n_permutations
    effects, statistics = _permute(pool, units, n_permutations, is_exact, seed)
    statistic = observed.studentise()[0]
    n_extreme = int((np.abs(statistics) >= abs(statistic) * (1 - ROUNDING) - ROUNDING).sum())
    return Contrast(
        effect=float(observed.effect[0]),
        p_value=n_extreme / len(statistics) if is_exact else (n_extreme + 1) / (len(statistics) + 1),
        standard_error=float(observed.standard_error[0]),
        degrees_of_freedom=float(observed.degrees_of_freedom[0]),
        null_effect=0.5,
        null_spread=float(effects.std()),
        n_first=units.n_first,
        n_second=units.n_second,
        is_exact=is_exact,
    )


def _permute(
    pool: ScorePool, units: Units, n_permutations: int, is_exact: bool, seed: int
) -> tuple[FloatArray, FloatArray]:
    effects, statistics = [], []
    for labels in _iterate_labels(units, n_permutations, is_exact, seed):
        estimate = estimate_auc(pool, labels[:, units.codes], units.sparse_codes)
        effects.append(estimate.effect)
        statistics.append(estimate.studentise())
    return np.concatenate(effects), np.concatenate(statistics)


def _iterate_labels(units: Units, n_permutations: int, is_exact: bool, seed: int) -> Iterator[npt.NDArray[np.bool_]]:
    """Blocks (n_draws, n_units) of who is in the first sample."""
    if is_exact:
        chosen = np.array(list(combinations(range(units.n), units.n_first)))
        labels = np.zeros((len(chosen), units.n), dtype=bool)
        np.put_along_axis(labels, chosen, True, axis=1)
        yield labels
        return
    rng = np.random.default_rng(seed)
    start = np.arange(units.n) < units.n_first
    for n_draws in units.iterate_blocks(n_permutations):
        yield rng.permuted(np.tile(start, (n_draws, 1)), axis=1)
