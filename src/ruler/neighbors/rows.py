"""Unit rows of a matrix, made when asked for, and which of them are identical.

Rows are read in blocks, so that a memory map larger than memory can be searched. Identical rows are searched once: they
are merged before the search and listed one by one again after it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks, unit_rows
from ruler.core.checks import as_matrix, block_rows_for, cached_rows_for, measure_norms
from ruler.core.types import FloatArray, IndexArray, Neighbors

_EXPAND_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class UnitRows:
    """The rows of a matrix at norm 1 in float64, or a chosen subset of them.

    Args:
        matrix: (n, p), possibly memory-mapped; never copied whole.
        norms: (n,) float64.
        subset: Rows of the matrix that are seen, in this order; None for all.
    """

    matrix: npt.NDArray[Any]
    norms: FloatArray
    subset: IndexArray | None = None

    @classmethod
    def read(cls, value: Any, name: str) -> "UnitRows":
        """All rows of any array, checked."""
        matrix = as_matrix(value, name)
        return cls(matrix, measure_norms(matrix, name))

    def __len__(self) -> int:
        return len(self.norms) if self.subset is None else len(self.subset)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    def block(self, start: int, stop: int) -> FloatArray:
        """Consecutive unit rows, (stop - start, p)."""
        if self.subset is not None:
            return self.take(np.arange(start, stop))
        return unit_rows(self.matrix[start:stop].astype(np.float64), self.norms[start:stop])  # type: ignore[no-any-return]

    def take(self, index: IndexArray) -> FloatArray:
        """Unit rows by number, (len(index), p)."""
        rows = index if self.subset is None else self.subset[index]
        return unit_rows(self.matrix[rows].astype(np.float64), self.norms[rows])  # type: ignore[no-any-return]

    def pick(self, index: IndexArray) -> "UnitRows":
        """Some of these rows, in this order."""
        return replace(self, subset=index if self.subset is None else self.subset[index])

    def hash(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        """A number for each row that is equal for identical rows."""
        bits = (self.block(start, stop) + 0.0).view(np.uint64)  # adding 0.0 turns -0.0 into 0.0
        bits ^= bits >> np.uint64(29)
        bits *= hash_multipliers(self.width)
        bits ^= bits >> np.uint64(32)
        hashes: npt.NDArray[np.uint64] = bits.sum(axis=1, dtype=np.uint64)
        return hashes


def hash_multipliers(width: int) -> npt.NDArray[np.uint64]:
    """Fixed odd factors, one per column."""
    factors = np.random.Generator(np.random.PCG64(0)).integers(1 << 63, size=width, dtype=np.uint64)
    return factors * np.uint64(2) + np.uint64(1)


@dataclass(frozen=True)
class Groups:
    """Which rows are identical: row i belongs to group ``group_of[i]``, whose first row is ``first[group]``.

    Groups are numbered by their first row. ``members[offsets[g]:offsets[g + 1]]`` are the rows of g, ascending.
    """

    first: IndexArray
    group_of: IndexArray
    members: IndexArray
    offsets: IndexArray


def group_identical(rows: UnitRows, run: Callable[..., Any] = map) -> Groups | None:
    """Find identical unit rows; None when all differ, the common case.

    A 64-bit hash proposes, a comparison of the rows decides: two groups with the same hash are not merged, which costs
    time and never an error. ``run`` is `map`, or the ``map`` of a thread pool.
    """
    bounds = iterate_blocks(len(rows), cached_rows_for(rows.width))
    hashes = np.concatenate(list(run(lambda span: rows.hash(*span), bounds)))
    order = np.argsort(hashes, kind="stable")  # equal hashes stay in row order
    starts_run = np.ones(len(order), dtype=bool)
    starts_run[1:] = hashes[order[1:]] != hashes[order[:-1]]
    if starts_run.all():
        return None
    leader = np.empty(len(order), dtype=np.int64)
    leader[order] = order[starts_run][np.cumsum(starts_run) - 1]
    followers = np.flatnonzero(leader != np.arange(len(order)))
    for start, stop in iterate_blocks(len(followers), block_rows_for(rows.width)):
        index = followers[start:stop]
        differs = (rows.take(index) != rows.take(leader[index])).any(axis=1)
        leader[index[differs]] = index[differs]
    first, group_of = np.unique(leader, return_inverse=True)
    if len(first) == len(order):
        return None
    members = np.argsort(group_of, kind="stable")
    return Groups(first, group_of, members, np.searchsorted(group_of[members], np.arange(len(first) + 1)))


@dataclass(frozen=True)
class DistinctRows:
    """The distinct rows of a set; ``groups`` is None where no two of its rows are identical.

    Args:
        n_rows: Of the whole set.
        rows: The first row of each group: `UnitRows`, or `DeviceRows` on an accelerator.
        groups: Which rows of the set each of them stands for.
        is_zero: (n_rows,) rows of norm 0.
    """

    n_rows: int
    rows: Any
    groups: Groups | None
    is_zero: npt.NDArray[np.bool_]

    @classmethod
    def choose(cls, rows: Any, groups: Groups | None) -> "DistinctRows":
        """Keep the first row of each group."""
        distinct = rows if groups is None else replace(rows, subset=groups.first)
        return cls(len(rows), distinct, groups, np.asarray(rows.norms == 0))

    @property
    def largest(self) -> int:
        """Rows in the largest group."""
        return 1 if self.groups is None else int(np.diff(self.groups.offsets).max())

    def members(self, groups: IndexArray, most: int) -> IndexArray:
        """The first ``most`` rows of each group, (..., most); -1 where a group has fewer."""
        if self.groups is None:
            return groups[..., None]
        begin, end = self.groups.offsets[groups], self.groups.offsets[groups + 1]
        place = begin[..., None] + np.arange(min(most, self.largest))
        rows = self.groups.members[np.minimum(place, len(self.groups.members) - 1)]
        return np.where(place < end[..., None], rows, -1)


def list_neighbors(
    best: Neighbors, queries: DistinctRows, base: DistinctRows, *, k: int, exclude_self: bool
) -> Neighbors:
    """The k best rows of every query from the best distinct rows of each distinct query.

    In a set searched in itself the own group was left out of the search; its rows are added here, at similarity 1, or
    0 for all-zero rows.
    """
    if queries.groups is base.groups is None and exclude_self == (queries is base):
        return best
    similarity, index = np.empty((queries.n_rows, k)), np.empty((queries.n_rows, k), dtype=np.int64)
    most = k + exclude_self
    width = (best.index.shape[1] + 1) * min(most, base.largest)
    for start, stop in iterate_blocks(queries.n_rows, max(1, _EXPAND_ELEMENTS // width)):
        groups = np.arange(start, stop) if queries.groups is None else queries.groups.group_of[start:stop]
        members = base.members(best.index[groups], most)  # (n, best groups, members)
        rows, values = members.reshape(len(members), -1), np.repeat(best.similarity[groups], members.shape[-1], axis=1)
        if queries is base:
            own = base.members(groups[:, None], most)[:, 0]
            own_values = np.where(base.is_zero[start:stop, None], 0.0, np.ones(own.shape))
            rows, values = np.concatenate([own, rows], axis=1), np.concatenate([own_values, values], axis=1)
        is_out = rows < 0
        if exclude_self:
            is_out |= rows == np.arange(start, stop)[:, None]
        values = np.where(is_out, -np.inf, values)
        order = np.lexsort((rows, -values), axis=-1)[:, :k]
        similarity[start:stop] = np.take_along_axis(values, order, axis=1)
        index[start:stop] = np.take_along_axis(rows, order, axis=1)
    return Neighbors(similarity, index)
