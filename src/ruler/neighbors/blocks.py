"""Exact search block by block: pairs of blocks are tasks of their own, for other processes, machines or GPUs.

A task reads two blocks of rows and nothing else; results merge in any order into the same answer. A worker needs the
memory of two blocks, and the caller that of the answer.
"""

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import check_number, measure_norms
from ruler.core.determinism import full_precision
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.cpu import search_both
from ruler.neighbors.engines import Request
from ruler.neighbors.search import find_neighbors

Span = tuple[int, int]

_TASKS_PER_WORKER = 4  # so that those who are done do not wait long for the last
MOST_ROWS, MOST_ROWS_ON_GPU = 1 << 18, 1 << 20
_FINEST = 16  # a block of a sixteenth of the most: under it, reading and hashing take longer than the products


@dataclass(frozen=True)
class Workers:
    """Who does the tasks of a search.

    Args:
        n_workers: Tasks that are done at once.
        device: Of each, as `find_neighbors`; None for the CPU.
    """

    n_workers: int
    device: str | None = None

    def choose_block_rows(self, n_queries: int, n_rows: int, *, is_self: bool) -> int:
        """Rows per block, so that every worker gets several tasks and none is tiny; the answer does not depend on it.

        Example:
            >>> [Workers(n).choose_block_rows(1_000_000, 1_000_000, is_self=True) for n in (1, 8, 64, 4096)]
            [262144, 131072, 32768, 16384]
        """
        most = MOST_ROWS if self.device is None else MOST_ROWS_ON_GPU
        rows = most
        while rows > most // _FINEST and (
            count_tasks(n_queries, n_rows, rows, is_self=is_self) < _TASKS_PER_WORKER * self.n_workers
        ):
            rows //= 2
        return rows


def count_tasks(n_queries: int, n_rows: int, block_rows: int, *, is_self: bool) -> int:
    """Pairs of blocks of a search, each once where a set is searched in itself.

    Example:
        >>> count_tasks(10, 10, 4, is_self=True), count_tasks(5, 10, 4, is_self=False)
        (6, 6)
    """
    n_base = -(-n_rows // block_rows)
    return n_base * (n_base + 1) // 2 if is_self else n_base * -(-n_queries // block_rows)


@dataclass(frozen=True, eq=False)
class BlockPair:
    """One task: the best of a block of base rows for a block of queries, and the other way round if asked.

    Args:
        queries: Matrix of all queries; `StackedRows` of memory maps travel by file name.
        base: Matrix of all base rows; the same object in a set searched in itself.
        rows: First query and one past the last.
        columns: First base row and one past the last.
        k: Neighbours per query.
        exclude_self: Base row i is no neighbour of query i.
        is_mirrored: Also find the best queries for the base rows, from the same products.
        device: As `find_neighbors`.
    """

    queries: Any
    base: Any
    rows: Span
    columns: Span
    k: int
    exclude_self: bool
    is_mirrored: bool
    device: str | None = None


@dataclass(frozen=True, eq=False)
class BlockBest:
    """The best rows within one block: of queries ``first_row`` and on, by number in the whole base."""

    first_row: int
    similarity: FloatArray
    index: IndexArray


Run = Callable[[Callable[[BlockPair], list[BlockBest]], Iterable[BlockPair]], Iterable[list[BlockBest]]]
"""`map`, the ``imap_unordered`` of a process pool or of Ray's pool, `over_devices`, or `run_on_ray`."""


def find_neighbors_by_blocks(
    queries: Any,
    base: Any,
    *,
    k: int = 1,
    exclude_self: bool = False,
    block_rows: int = 1 << 18,
    run: Run = map,
    device: str | None = None,
    workers: Workers | None = None,
) -> Neighbors:
    """`find_neighbors` cut into tasks that share nothing: the same answer to the last bit.

    Alone on one processor `find_neighbors` is the better choice, also for `StackedRows`: it knows more about each query
    when it comes to the next block. This one is for many workers.

    Args:
        queries: (n, p); arrays, memory maps, `StackedRows`, `Embeddings`.
        base: (m, p); the same object for a set searched in itself, where each pair of blocks is multiplied once.
        k: How many neighbours per query.
        exclude_self: As `find_neighbors`.
        block_rows: Rows per block: a worker holds two of them.
        run: Maps tasks to results, in any order: where the work is done.
        device: Of every task; None for the CPU.
        workers: Who does the tasks: they choose ``block_rows`` and ``device`` instead.

    Raises:
        InputError: As `find_neighbors`.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(50, 3))
        >>> whole = find_neighbors(rows, rows, exclude_self=True)
        >>> cut = find_neighbors_by_blocks(rows, rows, exclude_self=True, block_rows=7)
        >>> bool((cut.index == whole.index).all() and (cut.similarity == whole.similarity).all())
        True
    """
    check_number(block_rows, "block_rows", minimum=2, is_whole=True)
    request = Request(queries, base, k, exclude_self)
    query_rows, base_rows = request.read_matrices()
    if workers is not None:
        block_rows = workers.choose_block_rows(len(query_rows), len(base_rows), is_self=request.is_self)
        device = workers.device
    tasks = (
        BlockPair(query_rows, base_rows, rows, columns, k, exclude_self, request.is_self and rows != columns, device)
        for rows in iterate_blocks(len(query_rows), block_rows)
        for columns in iterate_blocks(len(base_rows), block_rows)
        if not request.is_self or rows <= columns
    )
    similarity = np.full((len(query_rows), k), -np.inf)
    index = np.full((len(query_rows), k), np.iinfo(np.int64).max)
    n_tasks = count_tasks(len(query_rows), len(base_rows), block_rows, is_self=request.is_self)
    try:
        for results in track(run(search_pair, tasks), "searching neighbours", n_items=n_tasks):
            for found in results:
                _merge(similarity, index, found)
    except InputError:  # a task knows its own rows alone: say what is wrong with all of them
        for matrix, name in ((base_rows, "base"), (query_rows, "queries")):
            measure_norms(matrix, name)
        raise
    return Neighbors(similarity, index)


def _merge(similarity: FloatArray, index: IndexArray, found: BlockBest) -> None:
    """Keep the k best of what is known and what came, ties by smallest index: whatever the order of coming."""
    rows = slice(found.first_row, found.first_row + len(found.index))
    values = np.concatenate([similarity[rows], found.similarity], axis=1)
    columns = np.concatenate([index[rows], found.index], axis=1)
    order = np.lexsort((columns, -values), axis=-1)[:, : similarity.shape[1]]
    similarity[rows] = np.take_along_axis(values, order, axis=1)
    index[rows] = np.take_along_axis(columns, order, axis=1)


def search_pair(pair: BlockPair) -> list[BlockBest]:
    """Do one task."""
    first, start = pair.rows[0], pair.columns[0]
    queries = np.asarray(pair.queries[slice(*pair.rows)])
    if pair.queries is pair.base and pair.rows == pair.columns:
        k = min(pair.k, len(queries) - pair.exclude_self)
        if k == 0:
            return []
        found = find_neighbors(queries, queries, k=k, exclude_self=pair.exclude_self, device=pair.device)
        return [BlockBest(first, found.similarity, found.index + start)]
    base = np.asarray(pair.base[slice(*pair.columns)])
    if pair.is_mirrored:
        if Request(queries, base, device=pair.device).wants_cuda:
            ours = find_neighbors(queries, base, k=min(pair.k, len(base)), device=pair.device)
            theirs = find_neighbors(base, queries, k=min(pair.k, len(queries)), device=pair.device)
        else:
            ours, theirs = search_both(queries, base, k=pair.k)
        return [
            BlockBest(first, ours.similarity, ours.index + start),
            BlockBest(start, theirs.similarity, theirs.index + first),
        ]
    found = find_neighbors(queries, base, k=min(len(base), pair.k + pair.exclude_self), device=pair.device)
    values, index = found.similarity, found.index + start
    if pair.exclude_self:  # equal arrays that are not one object: query i is base row i
        values = np.where(index == np.arange(*pair.rows)[:, None], -np.inf, values)
        order = np.argsort(-values, axis=1, kind="stable")[:, : pair.k]
        values, index = np.take_along_axis(values, order, axis=1), np.take_along_axis(index, order, axis=1)
    return [BlockBest(first, values, index)]


def over_devices(devices: Sequence[str]) -> Run:
    """A ``run`` that keeps several accelerators busy, one task on each at a time.

    Args:
        devices: Such as ``("cuda:0", "cuda:1")``.

    Raises:
        InputError: No device.
    """
    if not devices:
        raise InputError("devices must be at least one; got none. Name them, such as 'cuda:0'.")
    free: queue.SimpleQueue[str] = queue.SimpleQueue()
    for device in devices:
        free.put(device)

    def run(work: Callable[[BlockPair], list[BlockBest]], pairs: Iterable[BlockPair]) -> Iterator[list[BlockBest]]:
        def work_on_free_device(pair: BlockPair) -> list[BlockBest]:
            device = free.get()
            try:
                return work(replace(pair, device=device))
            finally:
                free.put(device)

        torch = load_optional("torch", "searching on accelerators")
        with full_precision(torch), ThreadPoolExecutor(len(devices)) as pool:  # precision is the whole process's
            yield from pool.map(work_on_free_device, pairs)

    return run
