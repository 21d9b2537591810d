"""Exact search block by block: pairs of blocks are tasks of their own, for other processes, machines or GPUs.

A task reads two blocks of rows and nothing else; results merge in any order into the same answer. Memory is that of two
blocks in a worker, and of the answer where they meet.
"""

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.precision import full_precision
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.search import ELSEWHERE, as_request, find_neighbors, search_both
from ruler.neighbors.workers import Workers

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class BlockPair:
    """One task: the best of a block of base rows for a block of queries, and the other way round if asked.

    Args:
        queries: Matrix of all queries; `StackedRows` of memory maps travel by file name.
        base: Matrix of all base rows; the same object in a set searched in itself.
        rows: First query and one past the last.
        columns: First base row and one past the last.
        k: Neighbours a query.
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
"""`map`, the ``imap_unordered`` of a process pool or of Ray's pool, or `over_devices`."""


def find_neighbors_by_blocks(
    queries: Any,
    base: Any,
    *,
    k: int = 1,
    exclude_self: bool = False,
    block_rows: int = 1 << 18,
    run: Run = map,
    device: str | None = None,
) -> Neighbors:
    """`find_neighbors` cut into tasks that share nothing: the same answer to the last bit.

    Alone on one processor `find_neighbors` is the better choice, also for `StackedRows`: it knows more about each query
    when it comes to the next block. This one is for many workers.

    Args:
        queries: (n, p); arrays, memory maps, `StackedRows`, `Embeddings`.
        base: (m, p); the same object for a set searched in itself, where each pair of blocks is multiplied once.
        k: How many neighbours a query.
        exclude_self: As `find_neighbors`.
        block_rows: Rows a block: a worker holds two of them.
        run: Maps tasks to results, in any order: where the work is done.
        device: Of every task; None for the CPU.

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
    is_self = queries is base
    query_rows, base_rows = as_request(queries, base, k, exclude_self)
    similarity = np.full((len(query_rows), k), -np.inf)
    index = np.full((len(query_rows), k), np.iinfo(np.int64).max)
    tasks = _cut(query_rows, base_rows, is_self, k, exclude_self, block_rows, device)
    for results in run(search_pair, tasks):
        for found in results:
            _merge(similarity, index, found)
    return Neighbors(similarity, index)


@contextmanager
def searching_by_blocks(run: Run, *, block_rows: int = 1 << 18, workers: Workers | None = None) -> Iterator[None]:
    """Let every search within, also those deep inside an audit, be done by `run`, block pair by block pair.

    Answers stay the same to the last bit. Searches on an accelerator, asked for by ``device``, are left alone.

    Args:
        run: As `find_neighbors_by_blocks`.
        block_rows: Rows a block.
        workers: Who does the work: they choose the rows of a block for each search, and their device is the tasks'.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(40, 3))
        >>> with searching_by_blocks(map, block_rows=16):
        ...     found = find_neighbors(rows, rows, exclude_self=True)
        >>> bool((found.index == find_neighbors(rows, rows, exclude_self=True).index).all())
        True
    """

    def search_elsewhere(queries: Any, base: Any, *, k: int, exclude_self: bool) -> Neighbors:
        options: dict[str, Any] = {"k": k, "exclude_self": exclude_self, "run": run, "block_rows": block_rows}
        if workers is not None:
            size = workers.choose_block_rows(len(queries), len(base), is_self=queries is base)
            options |= {"block_rows": size, "device": workers.device}
        here = ELSEWHERE.set(None)  # a task that is done in this process searches for itself
        try:
            return find_neighbors_by_blocks(queries, base, **options)
        finally:
            ELSEWHERE.reset(here)

    token = ELSEWHERE.set(search_elsewhere)
    try:
        yield
    finally:
        ELSEWHERE.reset(token)


def _cut(
    queries: Any, base: Any, is_self: bool, k: int, exclude_self: bool, block_rows: int, device: str | None
) -> Iterator[BlockPair]:
    for rows in iterate_blocks(len(queries), block_rows):
        for columns in iterate_blocks(len(base), block_rows):
            if not is_self or rows <= columns:
                yield BlockPair(queries, base, rows, columns, k, exclude_self, is_self and rows != columns, device)


def search_pair(pair: BlockPair) -> list[BlockBest]:
    """Do one task."""
    first, last = pair.rows
    start, stop = pair.columns
    queries = np.asarray(pair.queries[first:last])
    if pair.queries is pair.base and pair.rows == pair.columns:
        k = min(pair.k, len(queries) - pair.exclude_self)
        if k == 0:
            return []
        found = find_neighbors(queries, queries, k=k, exclude_self=pair.exclude_self, device=pair.device)
        return [BlockBest(first, found.similarity, found.index + start)]
    base = np.asarray(pair.base[start:stop])
    if pair.is_mirrored:
        ours, theirs = search_both(queries, base, k=pair.k, device=pair.device)
        return [_place(ours, first, start), _place(theirs, start, first)]
    k = min(len(base), pair.k + pair.exclude_self)
    return [_place(_drop_self(find_neighbors(queries, base, k=k, device=pair.device), pair), first, start)]


def _place(found: Neighbors, first_row: int, first_column: int) -> BlockBest:
    return BlockBest(first_row, found.similarity, found.index + first_column)


def _drop_self(found: Neighbors, pair: BlockPair) -> Neighbors:
    """Take query i itself, where equal arrays that are not one object are searched, out of its neighbours."""
    if not pair.exclude_self:
        return found
    own = np.arange(*pair.rows)[:, None] - pair.columns[0]
    similarity = np.where(found.index == own, -np.inf, found.similarity)
    order = np.argsort(-similarity, axis=1, kind="stable")[:, : pair.k]
    return Neighbors(np.take_along_axis(similarity, order, axis=1), np.take_along_axis(found.index, order, axis=1))


def _merge(similarity: FloatArray, index: IndexArray, found: BlockBest) -> None:
    """The k best of what is known and what came, ties by smallest index: whatever the order of coming."""
    rows = slice(found.first_row, found.first_row + len(found.index))
    values = np.concatenate([similarity[rows], found.similarity], axis=1)
    columns = np.concatenate([index[rows], found.index], axis=1)
    order = np.lexsort((columns, -values), axis=-1)[:, : similarity.shape[1]]
    similarity[rows] = np.take_along_axis(values, order, axis=1)
    index[rows] = np.take_along_axis(columns, order, axis=1)


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

    def work_on(work: Callable[[BlockPair], list[BlockBest]], pair: BlockPair) -> list[BlockBest]:
        device = free.get()
        try:
            return work(replace(pair, device=device))
        finally:
            free.put(device)

    def run(work: Callable[[BlockPair], list[BlockBest]], pairs: Iterable[BlockPair]) -> Iterator[list[BlockBest]]:
        torch = load_optional("torch", "searching on accelerators")
        with full_precision(torch), ThreadPoolExecutor(len(devices)) as pool:  # precision is the whole process's
            yield from pool.map(lambda pair: work_on(work, pair), pairs)

    return run
