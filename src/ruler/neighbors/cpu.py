"""The engine for this machine's processor: two passes, in the arithmetic that suits the data."""

import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.precision import full_precision
from ruler.core.progress import show_progress
from ruler.core.types import Neighbors
from ruler.neighbors.engines import Request
from ruler.neighbors.first_pass import TILE_ROWS, Problem, Run, Shortlist, TileStore, count_pairs, scan
from ruler.neighbors.recheck import BestRows, recheck
from ruler.neighbors.rows import DistinctRows, UnitRows, group_identical, list_neighbors
from ruler.neighbors.tiles import SUB_BLOCK, Arithmetic, NumpyArithmetic, TorchArithmetic

_MOST_THREADS = 16
_WORTH_IMPORTING_TORCH = 4e9  # multiply-adds; under it importing torch costs more than it saves
_PILOT_QUERIES = 128
_PILOT_TILES = 16
_TIMINGS = 4
_FLOAT64_OVER_FLOAT32 = 2.2  # measured cost of a float64 tile pair in units of a float32 one
_RECHECK_OVER_SCAN = 1.5  # measured cost of rechecking every sub-block in units of a float64 scan


@dataclass(frozen=True)
class CpuEngine:
    """Exact search on this machine's processor.

    Args:
        arithmetic: Of the first pass; None lets a pilot on the data choose. The answer does not depend on it.
    """

    arithmetic: Arithmetic | None = None

    def is_usable_for(self, request: Request) -> bool:
        """Whether no CUDA device is named or holds the data."""
        return not request.wants_cuda

    def search(self, request: Request) -> Neighbors:
        """The k best base rows of each query."""
        base = UnitRows.read(request.base, request.names[1])
        queries = base if request.is_self else UnitRows.read(request.queries, request.names[0])
        request.check_shapes(queries.matrix.shape, base.matrix.shape)
        torch = load_torch_if_worthwhile(len(queries) * len(base) * base.width)
        with thread_pool(torch) as pool:
            base_set = DistinctRows.choose(base, group_identical(base, pool.map))
            query_set = base_set
            if not request.is_self:
                query_set = DistinctRows.choose(queries, group_identical(queries, pool.map))
            wanted = request.k + (request.exclude_self and not request.is_self)
            k = min(wanted, len(base_set.rows) - request.is_self)
            problem = Problem(query_set.rows, base_set.rows, k, request.is_self)
            best = BestRows(len(problem.queries), k)
            if k > 0:
                arithmetic = self.arithmetic or pool.submit(choose_arithmetic, problem, torch).result()
                run_passes(problem, arithmetic, best, map if arithmetic.has_own_threads else pool.map)
        return list_neighbors(best.neighbors, query_set, base_set, k=request.k, exclude_self=request.exclude_self)


def search_both(queries: npt.NDArray[Any], base: npt.NDArray[Any], *, k: int) -> tuple[Neighbors, Neighbors]:
    """The k best base rows of each query and the k best queries of each base row, from the same products.

    Where there are fewer than k rows, as many as there are.
    """
    torch = load_torch_if_worthwhile(len(queries) * base.size)
    with thread_pool(torch) as pool:
        rows = UnitRows.read(queries, "queries"), UnitRows.read(base, "base")
        first, second = (DistinctRows.choose(one, group_identical(one, pool.map)) for one in rows)
        ours = Problem(first.rows, second.rows, min(k, len(second.rows)), False)
        theirs = Problem(second.rows, first.rows, min(k, len(first.rows)), False)
        found, mirrored = BestRows(len(first.rows), ours.k), BestRows(len(second.rows), theirs.k)
        arithmetic = pool.submit(choose_arithmetic, ours, torch).result()
        run = map if arithmetic.has_own_threads else pool.map
        run_passes(ours, arithmetic, found, run, mirror=(theirs, mirrored))
    return (
        list_neighbors(found.neighbors, first, second, k=min(k, len(base)), exclude_self=False),
        list_neighbors(mirrored.neighbors, second, first, k=min(k, len(queries)), exclude_self=False),
    )


def load_torch_if_worthwhile(work: float) -> Any:
    """The torch module where it is loaded already or the work pays for loading it, else None."""
    if "torch" in sys.modules or (work > _WORTH_IMPORTING_TORCH and importlib.util.find_spec("torch")):
        return importlib.import_module("torch")
    return None


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


def choose_arithmetic(problem: Problem, torch: Any) -> Arithmetic:
    """The arithmetic with the least expected time: its scan, plus rechecking what its precision cannot tell apart."""
    choices: list[Arithmetic] = [NumpyArithmetic(np.float32), NumpyArithmetic(np.float64)]
    if torch is not None:
        choices = [TorchArithmetic(torch, dtype) for dtype in ("bfloat16", "float32", "float64")]
    *coarse, finest = choices
    if len(problem.base) <= TILE_ROWS:
        return finest
    pilot = _draw_pilot(problem)
    scan_s = {one: _time_pair(one, problem) for one in coarse}
    scan_s[finest] = _FLOAT64_OVER_FLOAT32 * scan_s[coarse[-1]]
    n_sides = 2.0 if problem.is_self else 1.0  # mirrored pairs are scanned once
    recheck_s = n_sides * _RECHECK_OVER_SCAN * scan_s[finest]
    expected_s = {one: scan_s[one] + _count_candidates(one, pilot) * recheck_s for one in coarse}
    expected_s[finest] = scan_s[finest]
    return min(expected_s, key=expected_s.__getitem__)


def _draw_pilot(problem: Problem) -> Problem:
    """Some queries, evenly spaced, against some tiles of the base, evenly spaced."""
    n_tiles = -(-len(problem.base) // TILE_ROWS)
    chosen = np.unique(np.linspace(0, n_tiles - 1, min(_PILOT_TILES, n_tiles)).astype(np.int64))
    rows = (chosen[:, None] * TILE_ROWS + np.arange(TILE_ROWS)).ravel()
    base = problem.base.pick(rows[rows < len(problem.base)])
    queries = np.unique(np.linspace(0, len(problem.queries) - 1, _PILOT_QUERIES).astype(np.int64))
    return replace(problem, queries=problem.queries.pick(queries), base=base, is_self=False)


def _time_pair(arithmetic: Arithmetic, problem: Problem) -> float:
    """Seconds for one full tile pair, the best of a few."""
    tile = arithmetic.make_tile(problem.base.block(0, TILE_ROWS))
    times_s = []
    for _ in range(_TIMINGS):
        started_s = time.perf_counter()
        arithmetic.multiply(tile, tile, is_diagonal=False, both_sides=problem.is_self)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s)


def _count_candidates(arithmetic: Arithmetic, pilot: Problem) -> float:
    """Sub-blocks per query that stay candidates beyond the fewest possible, as a share of all sub-blocks."""
    queries, base = TileStore(pilot.queries, arithmetic), TileStore(pilot.base, arithmetic)
    k = min(pilot.k + 1, pilot.n_blocks)  # one more: a query may meet itself
    shortlist = Shortlist(len(pilot.queries), k)
    for j in range(len(base)):
        maxima, _ = arithmetic.multiply(queries.get(0), base.get(j), is_diagonal=False, both_sides=False)
        shortlist.add(0, j * TILE_ROWS // SUB_BLOCK, maxima)
    return max(0.0, (len(shortlist.take()) / len(pilot.queries) - k) / pilot.n_blocks)


def run_passes(
    problem: Problem,
    arithmetic: Arithmetic,
    best: BestRows,
    run: Run,
    *,
    mirror: tuple[Problem, BestRows] | None = None,
) -> None:
    """Scan all tile pairs and recheck what they leave, into ``best``.

    ``mirror`` is the search the other way round, if it is wanted too.
    """
    sought = [(problem, best, Shortlist(len(problem.queries), problem.k))]
    if mirror is not None:
        sought.append((*mirror, Shortlist(len(mirror[0].queries), mirror[0].k)))

    def look_again() -> None:
        for one, found, shortlist in sought:
            recheck(one, shortlist.take(), found, arithmetic, run)
            shortlist.raise_to(found.similarity)

    with show_progress("searching neighbours", count_pairs(problem)) as advance:
        shortlists = [shortlist for _, _, shortlist in sought]
        other = shortlists[1] if mirror else None
        for _ in scan(problem, arithmetic, shortlists[0], run, on_done=advance, mirror=other):
            look_again()
    look_again()
