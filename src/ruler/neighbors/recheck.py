"""Second pass: candidates are looked at again in float64, and the best rows get their exact similarity."""

from dataclasses import dataclass, field

import numpy as np

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows
from ruler.core.checks import block_rows_for
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.first_pass import Candidates, Problem, Run
from ruler.neighbors.tiles import SUB_BLOCK, Arithmetic

MOST_ROWS = 4096
_FIRST_LOOK = 32
_UNDER_ALL = -1.5  # below every similarity, above what stands for the row itself


@dataclass
class BestRows:
    """The k best base rows found so far for each query: similarity descending, ties by smallest index."""

    n_queries: int
    k: int
    similarity: FloatArray = field(init=False)
    index: IndexArray = field(init=False)

    def __post_init__(self) -> None:
        self.similarity = np.full((self.n_queries, self.k), -np.inf)
        self.index = np.full((self.n_queries, self.k), np.iinfo(np.int64).max)

    @property
    def neighbors(self) -> Neighbors:
        """What was found, as the answer of a search."""
        return Neighbors(self.similarity, self.index)

    def merge(self, rows: IndexArray, columns: IndexArray, values: FloatArray) -> None:
        """Take in pairs (query, base row) with their exact similarity; a pair may come only once."""
        touched = np.unique(rows)
        known = self.similarity[touched] > -np.inf
        rows = np.concatenate([np.repeat(touched, known.sum(axis=1)), rows])
        columns = np.concatenate([self.index[touched][known], columns])
        values = np.concatenate([self.similarity[touched][known], values])
        order = np.lexsort((columns, -values, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        place = _count_before(rows)
        keep = place < self.k
        self.similarity[rows[keep], place[keep]] = values[keep]
        self.index[rows[keep], place[keep]] = columns[keep]


def _count_before(rows: IndexArray) -> IndexArray:
    """How many entries of the same row stand before each, in ascending rows."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def recheck(problem: Problem, candidates: Candidates, best: BestRows, arithmetic: Arithmetic, run: Run) -> None:
    """Merge into ``best`` whatever the candidate sub-blocks hold."""
    slack = 4 * (problem.base.width + 4) * float(np.finfo(np.float64).eps)
    groups = _group_by_block(candidates)
    peaks = np.empty(len(candidates))
    for group, values in zip(
        groups, run(lambda g: _products(problem, candidates, g, arithmetic).max(axis=1), groups), strict=True
    ):
        peaks[group] = values
    kth_peak = _kth_largest(candidates.rows, peaks, problem.k, best.n_queries)
    floor = np.maximum(np.maximum(best.similarity[:, -1], kth_peak) - slack, _UNDER_ALL)
    kept = candidates.where(peaks >= floor[candidates.rows])
    if not len(kept):
        return

    def find_pairs(group: IndexArray) -> tuple[IndexArray, IndexArray]:
        rows = kept.rows[group]
        row, column = np.nonzero(_products(problem, kept, group, arithmetic) >= floor[rows, None])
        return rows[row], column + int(kept.blocks[group[0]]) * SUB_BLOCK

    rows, columns = (np.concatenate(part) for part in zip(*run(find_pairs, _group_by_block(kept)), strict=True))
    _merge_pairs(problem, best, rows, columns, run)


def _group_by_block(candidates: Candidates) -> list[IndexArray]:
    order = np.argsort(candidates.blocks, kind="stable")
    cuts = np.flatnonzero(np.diff(candidates.blocks[order])) + 1
    groups = np.split(order, cuts) if len(order) else []
    return [group[start:stop] for group in groups for start, stop in iterate_blocks(len(group), MOST_ROWS)]


def _products(problem: Problem, candidates: Candidates, group: IndexArray, arithmetic: Arithmetic) -> FloatArray:
    """Float64 products of the group's queries with the rows of its sub-block, (len(group), rows of the block)."""
    rows = candidates.rows[group]
    start = int(candidates.blocks[group[0]]) * SUB_BLOCK
    stop = min(start + SUB_BLOCK, len(problem.base))
    products = arithmetic.products(problem.queries.take(rows), problem.base.block(start, stop))
    if problem.is_self:
        own = (rows >= start) & (rows < stop)
        products[own, rows[own] - start] = -np.inf
    return products


def _kth_largest(rows: IndexArray, values: FloatArray, k: int, n_rows: int) -> FloatArray:
    """The k-th largest value of each row, -inf where a row has fewer."""
    order = np.lexsort((-values, rows))
    rows, values = rows[order], values[order]
    is_kth = _count_before(rows) == k - 1
    result = np.full(n_rows, -np.inf)
    result[rows[is_kth]] = values[is_kth]
    return result


def _merge_pairs(problem: Problem, best: BestRows, rows: IndexArray, columns: IndexArray, run: Run) -> None:
    """Exact similarities of the pairs, lowest base rows first: where the k-th best is 1, later rows cannot win."""
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    place = _count_before(rows)
    start, stop = 0, _FIRST_LOOK
    while len(rows):
        now = (place >= start) & (place < stop)
        best.merge(rows[now], columns[now], _similarities(problem, rows[now], columns[now], run))
        is_settled = (best.similarity[rows, -1] == 1.0) & (best.index[rows, -1] < columns)
        rest = (place >= stop) & ~is_settled
        rows, columns, place = rows[rest], columns[rest], place[rest]
        start, stop = stop, 4 * stop


def _similarities(problem: Problem, rows: IndexArray, columns: IndexArray, run: Run) -> FloatArray:
    def compare(span: tuple[int, int]) -> FloatArray:
        pairs = slice(*span)
        value: FloatArray = similarity_of_unit_rows(
            problem.queries.take(rows[pairs]), problem.base.take(columns[pairs])
        )
        return value

    spans = iterate_blocks(len(rows), max(1, block_rows_for(problem.base.width) // 4))
    return np.concatenate([np.empty(0), *run(compare, spans)])
