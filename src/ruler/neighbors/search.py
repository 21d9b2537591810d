"""The one door to nearest-neighbour search: `find_neighbors`."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt

from ruler.core.checks import Shape, as_matrix, check_same_space, check_same_width, is_on_cuda, measure_norms
from ruler.core.errors import InputError
from ruler.core.precision import full_precision
from ruler.core.progress import show_progress
from ruler.core.types import Neighbors
from ruler.neighbors.choice import choose_engine, load_torch_if_worthwhile
from ruler.neighbors.engines import Engine
from ruler.neighbors.first_pass import Run, Shortlist, Task, count_pairs, scan
from ruler.neighbors.recheck import BestRows, recheck
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.twins import Collapsed, collapse, expand

_MOST_THREADS = 16

ELSEWHERE: ContextVar[Callable[..., Neighbors] | None] = ContextVar("ELSEWHERE", default=None)
"""Who searches instead of this process; see `searching_on` and `ruler.neighbors.sharded.searching_by_blocks`."""


@dataclass(frozen=True)
class PassTimes:
    """Seconds that the two passes of a search took, and how many sub-blocks of the base queries were rechecked in."""

    scan_s: float
    recheck_s: float
    n_rechecked: int


def find_neighbors(
    queries: Any, base: Any, *, k: int = 1, exclude_self: bool = False, device: str | None = None
) -> Neighbors:
    """Which k base rows are most similar to each query, and how similar are they?

    Exact: the answer of a float64 computation, s(a, b) = 1 - |a - b|^2 / 2 over rows of norm 1 (Eq. 1), whatever the
    block size, number of threads, row order or device. Low precision only narrows the search. Memory beyond the inputs
    and the answer stays under 300 MB; inputs may be memory maps.

    Args:
        queries: (n, p) rows to look up; NumPy, torch on any device, JAX, CuPy, lists, `Embeddings`.
        base: (m, p) rows to search. Pass the same object to search a set in itself: half the work.
        k: How many neighbours a query.
        exclude_self: Leave base row i out for query i (leave-one-out, Eq. 6); needs n = m.
        device: "cpu" or "cuda"; None goes where the data is.

    Returns:
        `Neighbors` with ``similarity`` (n, k) descending in [-1, 1] and ``index`` (n, k); ties by smallest index.

    Raises:
        InputError: Not 2-D, empty, NaN or inf, norms out of range, widths that differ, k out of range; `Embeddings` of
            different layers or columns.

    Example:
        >>> found = find_neighbors([[1.0, 0.0]], [[0.0, 1.0], [3.0, 4.0], [2.0, 0.0]], k=2)
        >>> found.index.tolist(), found.similarity.round(12).tolist()
        ([[2, 1]], [[1.0, 0.6]])
    """
    return search(queries, base, names=("queries", "base"), k=k, exclude_self=exclude_self, device=device)


@contextmanager
def searching_on(device: str) -> Iterator[None]:
    """Searches within it that name no device are done on this one, wherever their rows lie; the answers are the same.

    Example:
        >>> with searching_on("cpu"):
        ...     find_neighbors([[1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]]).index.tolist()
        [[1]]
    """
    token = ELSEWHERE.set(partial(find_neighbors, device=device))
    try:
        yield
    finally:
        ELSEWHERE.reset(token)


def search(
    queries: Any,
    base: Any,
    *,
    names: tuple[str, str],
    k: int = 1,
    exclude_self: bool = False,
    device: str | None = None,
) -> Neighbors:
    """`find_neighbors` whose errors speak of the caller's own arguments."""
    check_same_space(queries, base, names)
    elsewhere = ELSEWHERE.get()
    if elsewhere is not None and device is None:
        return elsewhere(*as_request(queries, base, k, exclude_self, names), k=k, exclude_self=exclude_self)
    if _wants_cuda(queries, base, device):
        from ruler.neighbors.cuda.accelerator import search_on_accelerator

        return search_on_accelerator(
            queries, base, names=names, k=k, exclude_self=exclude_self, device=device or "cuda"
        )
    is_same = queries is base
    base_rows = _unit_rows(base, names[1])
    query_rows = base_rows if is_same else _unit_rows(queries, names[0])
    check_request(query_rows.matrix.shape, base_rows.matrix.shape, names, k, exclude_self)
    torch = load_torch_if_worthwhile(len(query_rows) * len(base_rows) * base_rows.width)
    with thread_pool(torch) as pool:
        collapsed_base = collapse(base_rows, pool.map)
        collapsed_queries = collapsed_base if is_same else collapse(query_rows, pool.map)
        best = _search_distinct(collapsed_queries, collapsed_base, k + (exclude_self and not is_same), torch, pool)
    return expand(best, collapsed_queries, collapsed_base, k=k, exclude_self=exclude_self)


def search_both(
    queries: npt.NDArray[Any], base: npt.NDArray[Any], *, k: int, device: str | None = None
) -> tuple[Neighbors, Neighbors]:
    """The k best base rows of each query and the k best queries of each base row, from the same products.

    Where there are fewer than k rows, as many as there are. On an accelerator these are two searches.
    """
    k_base, k_queries = min(k, len(base)), min(k, len(queries))
    if _wants_cuda(queries, base, device):
        return (
            find_neighbors(queries, base, k=k_base, device=device),
            find_neighbors(base, queries, k=k_queries, device=device),
        )
    torch = load_torch_if_worthwhile(len(queries) * base.size)
    with thread_pool(torch) as pool:
        first = collapse(_unit_rows(queries, "queries"), pool.map)
        second = collapse(_unit_rows(base, "base"), pool.map)
        ours = Task(first.rows, second.rows, min(k_base, len(second.rows)), False)
        theirs = Task(second.rows, first.rows, min(k_queries, len(first.rows)), False)
        found, mirrored = BestRows(len(first.rows), ours.k), BestRows(len(second.rows), theirs.k)
        engine = pool.submit(choose_engine, ours, torch).result()
        run_passes(ours, engine, found, map if engine.has_own_threads else pool.map, mirror=(theirs, mirrored))
    return (
        expand(found, first, second, k=k_base, exclude_self=False),
        expand(mirrored, second, first, k=k_queries, exclude_self=False),
    )


def as_request(
    queries: Any, base: Any, k: int, exclude_self: bool, names: tuple[str, str] = ("queries", "base")
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Queries and base as matrices that fit each other, one object where the caller gave one."""
    base_rows = as_matrix(base, names[1])
    query_rows = base_rows if queries is base else as_matrix(queries, names[0])
    check_request(query_rows.shape, base_rows.shape, names, k, exclude_self)
    return query_rows, base_rows


def check_request(queries: Shape, base: Shape, names: tuple[str, str], k: int, exclude_self: bool) -> None:
    """The shapes fit each other and hold k neighbours a query."""
    check_same_width(queries, base, names)
    if exclude_self and queries[0] != base[0]:
        raise InputError(
            f"{names[0]} must be the rows of {names[1]} when exclude_self is set; got {queries[0]} and {base[0]} rows. "
            "Pass the same array twice."
        )
    n_available = base[0] - bool(exclude_self)
    if not 1 <= k <= n_available:
        raise InputError(
            f"k must be from 1 to the {n_available} rows of {names[1]} that can be neighbours; got {k}. "
            f"Ask for fewer neighbours or give more rows."
        )


def _wants_cuda(queries: Any, base: Any, device: str | None) -> bool:
    if device is not None:
        return device.partition(":")[0] == "cuda"
    return any(is_on_cuda(value) for value in (queries, base))


def _unit_rows(value: Any, name: str) -> UnitRows:
    matrix = as_matrix(value, name)
    return UnitRows(matrix, measure_norms(matrix, name))


@contextmanager
def thread_pool(torch: Any) -> Iterator[ThreadPoolExecutor]:
    """A pool of as many threads as torch may use; torch itself runs one thread in each of them meanwhile."""
    if torch is None:
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            yield pool
        return
    n_threads = torch.get_num_threads()
    try:
        with (
            full_precision(torch),
            ThreadPoolExecutor(min(_MOST_THREADS, n_threads), initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            yield pool
    finally:
        torch.set_num_threads(n_threads)


def _search_distinct(queries: Collapsed, base: Collapsed, k: int, torch: Any, pool: ThreadPoolExecutor) -> BestRows:
    """The k best base groups of each query group, the group itself left out when a set is searched in itself."""
    is_self = queries is base
    task = Task(queries.rows, base.rows, min(k, len(base.rows) - is_self), is_self)
    best = BestRows(len(task.queries), task.k)
    if task.k == 0:
        return best
    engine = pool.submit(choose_engine, task, torch).result()  # in the pool, where torch runs one thread
    run_passes(task, engine, best, map if engine.has_own_threads else pool.map)
    return best


def run_passes(
    task: Task, engine: Engine, best: BestRows, run: Run, *, mirror: tuple[Task, BestRows] | None = None
) -> PassTimes:
    """Scan all tile pairs and recheck what they leave, into ``best``; says where the time went.

    ``mirror`` is the search the other way round, if it is wanted too.
    """
    sought = [(task, best, Shortlist(len(task.queries), task.k))]
    if mirror is not None:
        sought.append((*mirror, Shortlist(len(mirror[0].queries), mirror[0].k)))
    started_s = time.perf_counter()
    recheck_s, n_rechecked = 0.0, 0

    def look_again() -> None:
        nonlocal recheck_s, n_rechecked
        began_s = time.perf_counter()
        for one, found, shortlist in sought:
            candidates = shortlist.take()
            n_rechecked += len(candidates)
            recheck(one, candidates, found, engine, run)
            shortlist.raise_to(found.similarity)
        recheck_s += time.perf_counter() - began_s

    with show_progress("searching neighbours", count_pairs(task)) as advance:
        shortlists = [shortlist for _, _, shortlist in sought]
        for _ in scan(task, engine, shortlists[0], run, on_done=advance, mirror=shortlists[1] if mirror else None):
            look_again()
    look_again()
    return PassTimes(time.perf_counter() - started_s - recheck_s, recheck_s, n_rechecked)
