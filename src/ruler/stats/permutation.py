"""Many scores of the same two samples: are the samples alike in all of them, and in which are they not?"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.threads import begin, run_in_threads
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.auc import ROUNDING, ScorePool, estimate_auc

Block = tuple[int, npt.NDArray[np.bool_]]
"""How many draws the round is to reach, and labellings (n_draws, n): who is in the first sample."""

_BLOCK_ELEMENTS = 1 << 20
_COUNTED_ELEMENTS = 1 << 18  # at a time, by each thread
_MOST_KEPT_BYTES = 1 << 23
_MOST_DOUBLINGS = 4
_CLEAR = 4.0  # standard errors of a p-value by simulation


@dataclass(frozen=True, eq=False)
class FamilyTest:
    """Permutation tests of several families of scores, all from one set of labellings.

    ``p_values`` (n_families,): is the first sample like the second in every score of a family? ``adjusted``: the same
    corrected for all families by Westfall and Young's step-down maximum, so that rejecting those at most alpha keeps
    the chance of any false rejection at alpha.
    """

    p_values: FloatArray
    adjusted: FloatArray
    n_draws: int  # labellings that were counted
    is_exact: bool  # all labellings were counted, not a random draw of them


@dataclass(eq=False)
class KeptLabels:
    """Labellings that one test drew, for the next test of the same records: the first of them, up to 8 MB."""

    key: Hashable = None  # what they follow from
    blocks: list[npt.NDArray[np.uint8]] = field(default_factory=list)  # packed, eight records per byte
    rng: np.random.Generator = field(default_factory=np.random.default_rng)  # as it stands after them


def compare_families(
    scores: FloatArray,
    n_first: int,
    families: Sequence[int],
    *,
    strata: npt.NDArray[np.intp] | None = None,
    n_permutations: int = 2000,
    seed: int = 0,
    alpha: float = 0.05,
    kept: KeptLabels | None = None,
) -> FamilyTest:
    """Could chance alone have labelled the samples so that some score tells them apart as well as it does?

    A score's statistic is (AUC - 1/2) over its Brunner-Munzel standard error, a family's the largest absolute value
    among its scores. The test is exact where records are exchangeable, and in large samples holds its level for
    AUC = 1/2 alone, when spreads differ (Chung and Romano 2013). With one record on a side there is no standard error,
    and the AUC itself is the statistic. Where a corrected p-value lies near alpha, more labellings are drawn until its
    side is clear, at most 16 times as many.

    Args:
        scores: (n_scores, n) one row per score, records of the first sample first.
        n_first: Records of the first sample.
        families: (n_scores,) which family 0..f-1 each score belongs to.
        strata: (n,) codes; labels are permuted within each stratum alone. None permutes freely.
        n_permutations: Labellings to begin with; where there are no more than these in all, each is counted once.
        seed: Of the labellings.
        alpha: The level whose side must be clear.
        kept: Takes in labellings, or gives those that it has; the answer does not depend on it.

    Example:
        >>> found = compare_families(np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]), 3, [0])
        >>> round(float(found.p_values[0]), 4), found.is_exact
        (0.0571, True)
    """
    pools = [ScorePool.of(row) for row in scores]
    codes = np.asarray(families)
    n = scores.shape[1]  # there are at least n labellings, and counting a great many would take long
    is_exact = strata is None and n <= n_permutations and math.comb(n, n_first) <= n_permutations
    observed = _largest(pools, codes, (np.arange(n) < n_first)[None, :])[0]
    counts, corrected, n_draws = np.zeros(len(observed)), np.zeros(len(observed)), 0
    order = np.argsort(-observed, kind="stable")
    floors = observed * (1 - ROUNDING) - ROUNDING
    for n_wanted, labels in (
        _list_labels(n, n_first) if is_exact else _draw_labels(n, n_first, strata, n_permutations, seed, kept)
    ):
        drawn = _largest(pools, codes, labels)
        counts += (drawn >= floors).sum(axis=0)
        # the largest among this family and all that are less extreme than it
        rest = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
        corrected[order] += (rest >= floors[order]).sum(axis=0)
        n_draws += len(labels)
        reach = _CLEAR * math.sqrt(alpha * (1 - alpha) / n_draws)
        if n_draws >= n_wanted and (np.abs((corrected + 1) / (n_draws + 1) - alpha) > reach).all():
            break
    extra = 0 if is_exact else 1
    adjusted = np.empty(len(observed))
    adjusted[order] = np.maximum.accumulate((corrected[order] + extra) / (n_draws + extra))
    return FamilyTest((counts + extra) / (n_draws + extra), adjusted, n_draws, is_exact)


def _largest(pools: list[ScorePool], families: IndexArray, labels: npt.NDArray[np.bool_]) -> FloatArray:
    """(n_draws, n_families) largest absolute statistic of each family."""
    n_first = labels.sum(axis=1).astype(np.float64)
    spans = iterate_blocks(len(labels), max(1, _COUNTED_ELEMENTS // labels.shape[1]))

    def measure(pool: ScorePool) -> FloatArray:
        parts = [estimate_auc(pool, labels[start:stop], n_first[start:stop]).studentise() for start, stop in spans]
        return np.abs(np.concatenate(parts))

    found = np.zeros((len(labels), int(families.max()) + 1))
    for family, statistic in zip(families, run_in_threads(measure, pools), strict=True):
        np.maximum(found[:, family], statistic, out=found[:, family])
    return found


def _list_labels(n: int, n_first: int) -> Iterator[Block]:
    """Every choice of the first sample, as one block."""
    chosen = np.array(list(combinations(range(n), n_first)))
    labels = np.zeros((len(chosen), n), dtype=bool)
    np.put_along_axis(labels, chosen, True, axis=1)
    yield len(chosen), labels


def _draw_labels(
    n: int, n_first: int, strata: npt.NDArray[np.intp] | None, n_permutations: int, seed: int, kept: KeptLabels | None
) -> Iterator[Block]:
    """Random choices, block by block."""
    most_kept = 0 if kept is None else 8 * _MOST_KEPT_BYTES // n
    kept = kept or KeptLabels()
    key = n, n_first, None if strata is None else strata.tobytes(), n_permutations, seed
    if kept.key != key:
        kept.key, kept.blocks, kept.rng = key, [], np.random.default_rng(seed)
    start, n_drawn, rng = np.arange(n) < n_first, 0, None
    parts: list[Any] = [slice(None)]
    if strata is not None:
        parts = [np.flatnonzero(strata == code) for code in np.unique(strata)]

    def draw(rng: np.random.Generator, n_draws: int) -> npt.NDArray[np.bool_]:
        labels = np.empty((n_draws, n), dtype=bool)
        for part in parts:
            labels[:, part] = shuffle_labels(rng, start[part], n_draws)
        return labels

    following: Callable[[], npt.NDArray[np.bool_]] | None = None
    plan = list(_plan_blocks(n, n_permutations))
    for number, (n_wanted, n_draws) in enumerate(plan):
        n_drawn += n_draws
        if number < len(kept.blocks):
            yield n_wanted, np.unpackbits(kept.blocks[number], axis=1, count=n).view(bool)
            continue
        rng = rng or deepcopy(kept.rng)
        labels = following() if following else draw(rng, n_draws)
        if number == len(kept.blocks) and n_drawn <= most_kept:
            kept.blocks.append(np.packbits(labels, axis=1))
            kept.rng = deepcopy(rng)
        # the rest of a round is needed in any case: it is drawn while the caller counts
        following = begin(partial(draw, rng, plan[number + 1][1])) if n_drawn < n_wanted else None
        yield n_wanted, labels


def _plan_blocks(n: int, n_permutations: int) -> Iterator[tuple[int, int]]:
    """Draws that the round is to reach, and draws of the block: rounds that double, in blocks of bounded size."""
    size, n_drawn = max(1, _BLOCK_ELEMENTS // n), 0
    for doubling in range(_MOST_DOUBLINGS + 1):
        n_wanted = n_permutations << doubling
        while n_drawn < n_wanted:
            n_draws = min(size, n_wanted - n_drawn)
            n_drawn += n_draws
            yield n_wanted, n_draws


def shuffle_labels(rng: np.random.Generator, labels: npt.NDArray[np.bool_], n_draws: int) -> npt.NDArray[np.bool_]:
    """Labels in ``n_draws`` random orders, (n_draws, n).

    Example:
        >>> shuffle_labels(np.random.default_rng(0), np.array([True, False, False]), 4).sum(axis=1).tolist()
        [1, 1, 1, 1]
    """
    given, drawn = labels.astype(np.int64), np.empty((n_draws, len(labels)), dtype=bool)
    row = given.copy()
    for number in range(n_draws):
        row[:] = given
        rng.shuffle(row)  # the same order as of booleans; numbers of eight bytes are moved faster
        drawn[number] = row
    return drawn
