"""Who else could have been forgotten? Random records take the role of the forget set."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.stats.auc import ROUNDING, AucEstimate, ScorePool, estimate_auc
from ruler.stats.permutation import Contrast
from ruler.stats.units import Units

Labels = npt.NDArray[np.bool_]
FindNearest = Callable[[IndexArray, Labels], FloatArray]
"""(rows, in_set) -> similarity of each row to its nearest row outside the set, itself left out."""

_EXPECTED_MISSES = 1e-3
_FAR = 1e3  # standard errors


def choose_depth(n_first: int, n: int, largest_group: int = 1) -> int:
    """Neighbours a row must know so that hardly ever all of them are in the placebo set.

    Example:
        >>> choose_depth(1000, 21000), choose_depth(500, 1000)
        (7, 21)
    """
    share = min(0.9, n_first / n)
    depth = int(np.ceil(np.log(_EXPECTED_MISSES / n) / np.log(share))) + 1
    return min(n - 1, depth + largest_group - 1, 256)


def compare_with_placebos(
    graph: Neighbors, units: Units, *, find_nearest: FindNearest, n_placebos: int = 2000, seed: int = 0
) -> Contrast:
    """Do the forget records lie nearer to the others, or further, than random records in their role would?

    For every placebo set the nearest record outside the set is found anew for all rows, and the AUC of the set
    against the rest is taken, over its standard error. All comes from one neighbour graph, so that placebos share the
    gallery's likeness that makes the ranks of one forget set depend on each other.

    Args:
        graph: (n, k) neighbours of every row among all, itself left out; forget rows first.
        units: What is drawn: records or whole groups, the forget set's first.
        find_nearest: Searches for rows whose k neighbours are all in the set.
        n_placebos: Random sets, each of as many units as the forget set.
        seed: Of the sets.

    Returns:
        The contrast of the forget rows against the retain rows; its null is that of the placebos.

    Example:
        >>> similarity = np.array([[0.9, 0.1], [0.9, 0.2], [0.8, 0.2], [0.8, 0.1]])
        >>> graph = Neighbors(similarity, np.array([[1, 2], [0, 2], [3, 1], [2, 0]]))
        >>> units = Units(np.arange(4), 1, 1, False)
        >>> compare_with_placebos(graph, units, find_nearest=None, n_placebos=99).effect
        1.0
    """
    estimate = _measure(graph, units, np.arange(units.n) < units.n_first, find_nearest)
    rng, start = np.random.default_rng(seed), np.arange(units.n) < units.n_first
    placebos = [_measure(graph, units, rng.permutation(start), find_nearest) for _ in range(n_placebos)]
    effects = np.array([placebo.effect[0] for placebo in placebos])
    # A set that leaves its likes behind can be apart from all the rest, without error: far, but not beyond all measure.
    statistics = np.clip(np.concatenate([one.studentise() for one in (estimate, *placebos)]), -_FAR, _FAR)
    distances = np.abs(statistics - statistics.mean())
    return Contrast(
        effect=float(estimate.effect[0]),
        p_value=float((distances >= distances[0] * (1 - ROUNDING)).mean()),
        standard_error=float(estimate.standard_error[0]),
        degrees_of_freedom=float(estimate.degrees_of_freedom[0]),
        null_effect=float(effects.mean()),
        null_spread=float(effects.std()),
        n_first=units.n_first,
        n_second=units.n_second,
        is_exact=False,
    )


def nearest_outside(graph: Neighbors, in_set: Labels, find_nearest: FindNearest) -> FloatArray:
    """Similarity of every row to its nearest row outside a set.

    Args:
        graph: (n, k) neighbours of every row, itself left out.
        in_set: (n,) whom to leave out.
        find_nearest: Searches for rows whose k neighbours are all in the set.
    """
    is_outside = ~in_set[graph.index]
    place = is_outside.argmax(axis=1)
    nearest = np.take_along_axis(graph.similarity, place[:, None], axis=1)[:, 0]
    missed = np.flatnonzero(~np.take_along_axis(is_outside, place[:, None], axis=1)[:, 0])
    if len(missed):
        nearest[missed] = find_nearest(missed, in_set)
    return nearest


def _measure(graph: Neighbors, units: Units, labels: Labels, find_nearest: FindNearest) -> AucEstimate:
    in_set = labels[units.codes]
    pool = ScorePool.of(nearest_outside(graph, in_set, find_nearest))
    return estimate_auc(pool, in_set[None, :], units.sparse_codes)
