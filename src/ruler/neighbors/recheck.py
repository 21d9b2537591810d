"""Second pass: candidates are looked at again in float64, and the best rows get their exact similarity."""

from dataclasses import dataclass, field

import numpy as np

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows
from ruler.core.checks import block_rows_for
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.first_pass import Candidates, Problem, Run
from ruler.neighbors.layout import Layout
from ruler.neighbors.tiles import Arithmetic

MOST_ROWS = 4096
_FIRST_LOOK = 32
_FEW_PER_QUERY = 3  # candidates: more are worth ranking first
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


def recheck(
    problem: Problem, layout: Layout, candidates: Candidates, best: BestRows, arithmetic: Arithmetic, run: Run
) -> None:
    """Merge into ``best`` whatever the candidate sub-blocks hold, the most promising of each query first.

    Args:
        problem: Whose queries the candidates name.
        layout: Of the base rows, in sub-blocks.
        candidates: What the first pass left.
        best: What is known, by row of the problem.
        arithmetic: Multiplies in float64.
        run: Over threads.
    """
    if len(candidates) > _FEW_PER_QUERY * problem.k * best.n_queries:
        order = np.lexsort((-candidates.upper, candidates.rows))
        is_first = np.zeros(len(order), dtype=bool)
        is_first[order[_count_before(candidates.rows[order]) < problem.k]] = True
        _recheck(problem, layout, candidates.where(is_first), best, arithmetic, run)
        known = best.similarity[:, -1] - _slack(problem)
        candidates = candidates.where(~is_first & (candidates.upper >= known[candidates.rows]))
    _recheck(problem, layout, candidates, best, arithmetic, run)


def _slack(problem: Problem) -> float:
    """How far float64 products may be from similarities."""
    return 4 * (problem.base.width + 4) * float(np.finfo(np.float64).eps)


def _recheck(
    problem: Problem, layout: Layout, candidates: Candidates, best: BestRows, arithmetic: Arithmetic, run: Run
) -> None:
    if not len(candidates):
        return
    order = np.argsort(candidates.blocks, kind="stable")
    by_block = np.split(order, np.flatnonzero(np.diff(candidates.blocks[order])) + 1)
    groups = [group[start:stop] for group in by_block for start, stop in iterate_blocks(len(group), MOST_ROWS)]
    slack = _slack(problem)

    def look(group: IndexArray) -> tuple[FloatArray, IndexArray, IndexArray, FloatArray]:
        """The largest product of each candidate, and the pairs that are among the k best of their sub-block."""
        products, rows, columns = _multiply(problem, layout, candidates, group, arithmetic)
        peaks = products.max(axis=1)
        bar = peaks if problem.k == 1 or len(columns) < problem.k else np.partition(products, -problem.k)[:, -problem.k]
        row, column = np.nonzero(products >= np.maximum(bar - slack, _UNDER_ALL)[:, None])
        return peaks, rows[row], columns[column], products[row, column]

    peaks, rows, columns, products = (np.concatenate(part) for part in zip(*run(look, groups), strict=True))
    kth_peak = _kth_largest(candidates.rows[np.concatenate(groups)], peaks, problem.k, best.n_queries)
    floor = np.maximum(best.similarity[:, -1], kth_peak) - slack
    keep = products >= floor[rows]
    _merge_pairs(problem, best, rows[keep], columns[keep], run)


def _multiply(
    problem: Problem, layout: Layout, candidates: Candidates, group: IndexArray, arithmetic: Arithmetic
) -> tuple[FloatArray, IndexArray, IndexArray]:
    """Float64 products of the group's queries with the rows of its sub-block, and which rows these are."""
    rows = candidates.rows[group]
    columns = layout.rows_of_block(int(candidates.blocks[group[0]]))
    products = arithmetic.products(problem.queries.take(rows), layout.read_rows(problem.base, columns))
    if problem.is_self:
        place = np.searchsorted(columns, rows).clip(max=len(columns) - 1)  # rows of a sub-block ascend
        own = columns[place] == rows
        products[own, place[own]] = -np.inf
    return products, rows, columns


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

    def compare(pairs: tuple[IndexArray, IndexArray]) -> FloatArray:
        value: FloatArray = similarity_of_unit_rows(problem.queries.take(pairs[0]), problem.base.take(pairs[1]))
        return value

    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    place = _count_before(rows)
    start, stop, size = 0, _FIRST_LOOK, max(1, block_rows_for(problem.base.width) // 4)
    while len(rows):
        now = (place >= start) & (place < stop)
        seen, found = rows[now], columns[now]
        blocks = [(seen[slice(*span)], found[slice(*span)]) for span in iterate_blocks(len(seen), size)]
        best.merge(seen, found, np.concatenate([np.empty(0), *run(compare, blocks)]))
        is_settled = (best.similarity[rows, -1] == 1.0) & (best.index[rows, -1] < columns)
        rest = (place >= stop) & ~is_settled
        rows, columns, place = rows[rest], columns[rest], place[rest]
        start, stop = stop, 4 * stop
