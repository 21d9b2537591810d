"""Unit rows of a matrix, made when asked for, so that a memory map larger than memory can be searched."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks, unit_rows
from ruler.core.checks import block_rows_for
from ruler.core.types import FloatArray, IndexArray


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

    def hash(self, start: int, stop: int) -> npt.NDArray[np.uint64]:
        """A number for each row that is equal for identical rows."""
        bits = (self.block(start, stop) + 0.0).view(np.uint64)  # adding 0.0 turns -0.0 into 0.0
        bits ^= bits >> np.uint64(29)
        bits *= hash_multipliers(self.width)
        bits ^= bits >> np.uint64(32)
        hashes: npt.NDArray[np.uint64] = bits.sum(axis=1, dtype=np.uint64)
        return hashes

    def differ(self, a: IndexArray, b: IndexArray) -> npt.NDArray[np.bool_]:
        """Whether rows a[i] and b[i] differ anywhere."""
        is_different: npt.NDArray[np.bool_] = (self.take(a) != self.take(b)).any(axis=1)
        return is_different


@dataclass(frozen=True)
class Groups:
    """Which rows are identical: row i belongs to group ``group_of[i]``, whose first row is ``first[group]``.

    Groups are numbered by their first row. ``members[offsets[g]:offsets[g + 1]]`` are the rows of g, ascending.
    """

    first: IndexArray
    group_of: IndexArray
    members: IndexArray
    offsets: IndexArray


def group_identical(rows: Any, run: Callable[..., Any]) -> Groups | None:
    """Find identical unit rows; None when all differ, the common case.

    A 64-bit hash proposes, a comparison of the rows decides: a collision costs a missed collapse, never an error.

    Args:
        rows: All rows of a matrix: `UnitRows`, or the like on an accelerator.
        run: ``map`` or the ``map`` of a thread pool.
    """
    bounds = iterate_blocks(len(rows), block_rows_for(rows.width))
    hashes = np.concatenate(list(run(lambda span: rows.hash(*span), bounds)))
    order = np.argsort(hashes, kind="stable")  # equal hashes stay in row order
    starts_run = np.ones(len(order), dtype=bool)
    starts_run[1:] = hashes[order[1:]] != hashes[order[:-1]]
    if starts_run.all():
        return None
    run_of = np.cumsum(starts_run) - 1
    leader = np.empty(len(order), dtype=np.int64)
    leader[order] = order[starts_run][run_of]
    followers = np.flatnonzero(leader != np.arange(len(order)))
    for start, stop in iterate_blocks(len(followers), block_rows_for(rows.width)):
        index = followers[start:stop]
        differs = rows.differ(index, leader[index])
        leader[index[differs]] = index[differs]
    first, group_of = np.unique(leader, return_inverse=True)
    if len(first) == len(order):
        return None
    members = np.argsort(group_of, kind="stable")
    offsets = np.searchsorted(group_of[members], np.arange(len(first) + 1))
    return Groups(first, group_of, members, offsets)


def hash_multipliers(width: int) -> npt.NDArray[np.uint64]:
    """Fixed odd factors, one a column."""
    factors = np.random.Generator(np.random.PCG64(0)).integers(1 << 63, size=width, dtype=np.uint64)
    return factors * np.uint64(2) + np.uint64(1)
