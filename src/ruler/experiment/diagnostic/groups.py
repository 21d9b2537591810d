"""Whole groups in the forget role: how much M4 varies for people, or documents, that nobody forgot."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import similarity_of_unit_rows
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.experiment.cell import divide_by_norms
from ruler.metrics.paper import rank_within
from ruler.neighbors import find_neighbors

N_SETS = 200
_NEIGHBOURS = 16  # beyond their own group most records have one among these; the others are searched again
_MOST_PAIRED = 8192  # records whose similarities in pairs are kept: half a gigabyte
_DRAW_SEED = 0
_ROUNDING = 1e-12

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GroupNeighbors:
    """The records of a model in which groups take turns at the forget role.

    Args:
        rows: (n, p) representations.
        neighbors: The nearest other records of each, descending.
        groups: (n,) whose record each is.
    """

    rows: Any
    neighbors: Neighbors
    groups: npt.NDArray[Any]

    def search_again(self, queries: IndexArray, base: IndexArray) -> FloatArray:
        """Similarity of the nearest base record of each query, other than itself."""
        if len(self.groups) > _MOST_PAIRED:
            found = find_neighbors(self.rows[queries], self.rows[base], k=min(2, len(base)))
            is_self = base[found.index[:, 0]] == queries
            return np.where(is_self, found.similarity[:, -1], found.similarity[:, 0])
        unit, products = self._pairs
        best = base[products[np.ix_(queries, base)].argmax(axis=1)]
        nearest: FloatArray = similarity_of_unit_rows(unit[queries], unit[best])
        return nearest

    @cached_property
    def _pairs(self) -> tuple[FloatArray, FloatArray]:
        """The rows divided by their norms, and the products of each with all others, -inf with itself."""
        unit = divide_by_norms(self.rows)
        unit, products = (one if isinstance(one, np.ndarray) else one.cpu().numpy() for one in (unit, unit @ unit.T))
        np.fill_diagonal(products, -np.inf)
        return unit, products


def find_group_neighbors(rows: Any, groups: npt.NDArray[Any]) -> GroupNeighbors:
    """Find every record's neighbours once, so that many sets can be ranked."""
    n_neighbors = min(_NEIGHBOURS, len(groups) - 1)
    return GroupNeighbors(rows, find_neighbors(rows, rows, k=n_neighbors, exclude_self=True), groups)


def rank_set(around: GroupNeighbors, is_chosen: Mask) -> float:
    """M4 of the chosen records against all others, as if the chosen ones were to be forgotten.

    Example:
        >>> rows = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.5, 1.0]])
        >>> around = find_group_neighbors(rows, np.array(["a", "a", "b", "c", "c"]))
        >>> rank_set(around, around.groups == "a")
        0.0
    """
    is_outside = ~is_chosen[around.neighbors.index]
    place = is_outside.argmax(axis=1)[:, None]
    nearest = np.take_along_axis(around.neighbors.similarity, place, axis=1)[:, 0]
    lost = np.flatnonzero(~np.take_along_axis(is_outside, place, axis=1)[:, 0])
    if len(lost):  # all of their known neighbours are chosen
        nearest[lost] = around.search_again(lost, np.flatnonzero(~is_chosen))
    return float(rank_within(nearest[is_chosen], nearest[~is_chosen]).mean())


def draw_sets(groups: npt.NDArray[Any], n_records: int, *, n_groups: int | None = None) -> Iterator[Mask]:
    """Sets of whole groups: each alone, random ones of ``n_groups``, or random ones of about ``n_records`` records.

    Example:
        >>> [mask.sum().item() for mask in draw_sets(np.array([1, 1, 2, 3]), 1, n_groups=1)]
        [2, 1, 1]
    """
    names, members = np.unique(groups, return_inverse=True)
    if n_groups == 1:
        yield from (members == i for i in range(len(names)))
        return
    sizes = np.bincount(members)
    rng = np.random.default_rng(_DRAW_SEED)
    for _ in range(N_SETS):
        order = rng.permutation(len(names))
        n_taken = n_groups or int(np.searchsorted(np.cumsum(sizes[order]), n_records)) + 1
        yield np.isin(members, order[: min(n_taken, len(names) - 1)])


def compare_with_placebos(
    value: float, around: GroupNeighbors, n_records: int, *, n_groups: int | None = None
) -> dict[str, float]:
    """How unusual is M4 of a forget set among sets of whole groups of about its size?

    Args:
        value: M4 of the forget set.
        around: The records whose groups take the forget role.
        n_records: Records that a placebo set grows to.
        n_groups: Number of groups in the forget set, if that was fixed, and so in each placebo. If it is 1, every group
            alone is a placebo.

    Returns:
        Mean, deviation, 2.5% and 97.5% points of the placebos, and the p-value of ``value`` among them. In the
        original, where single groups are listed one by one, its own group is a placebo too, which can only raise p.
    """
    sets = draw_sets(around.groups, n_records, n_groups=n_groups)
    drawn = np.array([rank_set(around, chosen) for chosen in sets])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {
        "m4_placebo": float(drawn.mean()),
        "m4_placebo_sd": float(drawn.std(ddof=1)),
        "m4_placebo_low": float(low),
        "m4_placebo_high": float(high),
        "m4_placebo_p": find_p_value(value, drawn),
    }


def find_p_value(value: float, drawn: FloatArray) -> float:
    """Two-sided p-value of a value among placebos: the share of all, itself included, as far from the mean of all.

    The value counts in the mean as each placebo does. If it is one of them by chance, p is at most alpha with a
    probability of at most alpha.

    Example:
        >>> find_p_value(0.9, np.array([0.4, 0.5, 0.6]))
        0.25
    """
    together = np.append(drawn, value)
    distances = np.abs(together - together.mean())
    return float((distances >= distances[-1] - _ROUNDING).mean())
