"""Identical rows are searched once: collapsed before the search, spread out again after it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.first_pass import Run
from ruler.neighbors.recheck import BestRows
from ruler.neighbors.rows import Groups, group_identical

_EXPAND_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Collapsed:
    """A set of rows and its distinct rows; ``groups`` is None where no two rows are identical."""

    n_rows: int
    rows: Any
    groups: Groups | None
    is_zero: npt.NDArray[np.bool_]

    def group_of(self, start: int, stop: int) -> IndexArray:
        """Distinct row of each row."""
        return np.arange(start, stop) if self.groups is None else self.groups.group_of[start:stop]

    def members(self, groups: IndexArray, most: int) -> IndexArray:
        """The first ``most`` rows of each group, (..., most); -1 where a group has fewer."""
        if self.groups is None:
            return groups[..., None]
        begin, end = self.groups.offsets[groups], self.groups.offsets[groups + 1]
        place = begin[..., None] + np.arange(min(most, self.largest))
        rows = self.groups.members[np.minimum(place, len(self.groups.members) - 1)]
        return np.where(place < end[..., None], rows, -1)

    @property
    def largest(self) -> int:
        """Rows in the largest group."""
        return 1 if self.groups is None else int(np.diff(self.groups.offsets).max())


def collapse(rows: Any, run: Run = map) -> Collapsed:
    """Keep one of each set of identical rows; ``rows`` are `UnitRows` or the like on an accelerator."""
    groups = group_identical(rows, run)
    distinct = rows if groups is None else replace(rows, subset=groups.first)
    return Collapsed(len(rows), distinct, groups, np.asarray(rows.norms == 0))


def expand(best: BestRows, queries: Collapsed, base: Collapsed, *, k: int, exclude_self: bool) -> Neighbors:
    """The k best rows of every query from the best groups of its group.

    In a set searched in itself the own group was left out of the search; its rows come in here, at similarity 1, or
    0 for all-zero rows.
    """
    if queries.groups is base.groups is None and exclude_self == (queries is base):
        return Neighbors(best.similarity, best.index)
    similarity, index = np.empty((queries.n_rows, k)), np.empty((queries.n_rows, k), dtype=np.int64)
    most = k + exclude_self
    width = (best.k + 1) * min(most, base.largest)
    for start, stop in iterate_blocks(queries.n_rows, max(1, _EXPAND_ELEMENTS // width)):
        groups = queries.group_of(start, stop)
        rows, values = _spread(base, best.index[groups], best.similarity[groups], most)
        if queries is base:
            own = base.members(groups[:, None], most)[:, 0]
            is_zero = base.is_zero[start:stop]
            rows = np.concatenate([own, rows], axis=1)
            values = np.concatenate([np.where(is_zero[:, None], 0.0, np.ones(own.shape)), values], axis=1)
        is_out = rows < 0
        if exclude_self:
            is_out |= rows == np.arange(start, stop)[:, None]
        values = np.where(is_out, -np.inf, values)
        order = np.lexsort((rows, -values), axis=-1)[:, :k]
        similarity[start:stop] = np.take_along_axis(values, order, axis=1)
        index[start:stop] = np.take_along_axis(rows, order, axis=1)
    return Neighbors(similarity, index)


def _spread(base: Collapsed, groups: IndexArray, values: FloatArray, most: int) -> tuple[IndexArray, FloatArray]:
    rows = base.members(groups, most)  # (n, best groups, members)
    return rows.reshape(len(rows), -1), np.repeat(values, rows.shape[-1], axis=1)
