"""The engine for this machine's processor: two passes, in the arithmetic that suits the data."""

import importlib
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.determinism import full_precision
from ruler.core.progress import show_progress
from ruler.core.types import Neighbors
from ruler.neighbors.centred import CentredArithmetic
from ruler.neighbors.engines import Request
from ruler.neighbors.first_pass import (
    TILE_ROWS,
    Candidates,
    Plan,
    Problem,
    Run,
    Shortlist,
    TileStore,
    count_pairs,
    scan,
)
from ruler.neighbors.layout import WORTH_CENTRING, Clusters, Layout, choose_sample, find_clusters
from ruler.neighbors.recheck import BestRows, recheck
from ruler.neighbors.rows import DistinctRows, UnitRows, group_identical, list_neighbors
from ruler.neighbors.tiles import Arithmetic, NumpyArithmetic, TorchArithmetic

_MOST_THREADS = 16
_WORTH_IMPORTING_TORCH = 4e9  # multiply-adds; under it importing torch costs more than it saves
WORTH_THREADS = 1 << 24  # multiply-adds; under it threads take longer to start than the search
_PILOT_QUERIES = 128
_PILOT_TILES = 16
_PILOT_CENTRED = 3
FEWEST_CENTRED_ROWS = 8192
MOST_CENTRES = 64
CENTRED_TYPES = ("bfloat16", "float32")
_CENTRED_OVER_PLAIN = 1.15  # measured cost of a centred tile pair in units of a plain one
_WORTH_CELLS = 0.2  # of the first pass: above it what is left to recheck pays for a finer order of the rows
_TIMINGS = 4
_FLOAT64_OVER_FLOAT32 = 2.2  # measured cost of a float64 tile pair in units of a float32 one
_RECHECK_OVER_SCAN = 1.5  # measured cost of rechecking every sub-block in units of a float64 scan


@dataclass(frozen=True)
class CpuEngine:
    """Exact search on this machine's processor.

    Args:
        arithmetic: Of the first pass; None lets a pilot on the data choose. The answer does not depend on it.
        centred: "bfloat16" or "float32" lays rows out by cluster, in this precision, whatever it costs; needs torch.
    """

    arithmetic: Arithmetic | None = None
    centred: str | None = None

    def is_usable_for(self, request: Request) -> bool:
        """Whether no CUDA device is named or holds the data."""
        return not request.wants_cuda

    def search(self, request: Request) -> Neighbors:
        """The k best base rows of each query."""
        base = UnitRows.read(request.base, request.names[1])
        queries = base if request.is_self else UnitRows.read(request.queries, request.names[0])
        request.check_shapes(queries.matrix.shape, base.matrix.shape)
        work = len(queries) * len(base) * base.width
        torch = load_torch_if_worthwhile(math.inf if self.centred else work)
        with thread_pool(torch, work) as pool:
            base_set = DistinctRows.choose(base, group_identical(base, pool.map))
            query_set = base_set
            if not request.is_self:
                query_set = DistinctRows.choose(queries, group_identical(queries, pool.map))
            wanted = request.k + (request.exclude_self and not request.is_self)
            k = min(wanted, len(base_set.rows) - request.is_self)
            problem = Problem(query_set.rows, base_set.rows, k, request.is_self)
            best = BestRows(len(problem.queries), k)
            if k > 0:
                plan = pool.submit(self._choose_plan, problem, torch).result()
                run_passes(problem, plan, best, map if plan.arithmetic.has_own_threads else pool.map)
        return list_neighbors(best.neighbors, query_set, base_set, k=request.k, exclude_self=request.exclude_self)

    def _choose_plan(self, problem: Problem, torch: Any) -> Plan:
        if self.arithmetic is not None:
            return Plan.plain(problem, self.arithmetic)
        if self.centred is None:
            return choose_plan(problem, torch)
        clusters = _find_clusters(problem)
        layouts = _lay_out(problem, clusters, is_fine=True)
        return Plan(CentredArithmetic(torch, self.centred, clusters.centres), *layouts)


def search_both(queries: npt.NDArray[Any], base: npt.NDArray[Any], *, k: int) -> tuple[Neighbors, Neighbors]:
    """The k best base rows of each query and the k best queries of each base row, from the same products.

    Where there are fewer than k rows, as many as there are.
    """
    torch = load_torch_if_worthwhile(len(queries) * base.size)
    with thread_pool(torch, len(queries) * base.size) as pool:
        rows = UnitRows.read(queries, "queries"), UnitRows.read(base, "base")
        first, second = (DistinctRows.choose(one, group_identical(one, pool.map)) for one in rows)
        ours = Problem(first.rows, second.rows, min(k, len(second.rows)), False)
        theirs = Problem(second.rows, first.rows, min(k, len(first.rows)), False)
        found, mirrored = BestRows(len(first.rows), ours.k), BestRows(len(second.rows), theirs.k)
        plan = pool.submit(choose_plan, ours, torch).result()
        run = map if plan.arithmetic.has_own_threads else pool.map
        run_passes(ours, plan, found, run, mirror=(theirs, mirrored))
    return (
        list_neighbors(found.neighbors, first, second, k=min(k, len(base)), exclude_self=False),
        list_neighbors(mirrored.neighbors, second, first, k=min(k, len(queries)), exclude_self=False),
    )


def load_torch_if_worthwhile(work: float) -> Any:
    """The torch module where it is loaded already or the work pays for loading it, else None."""
    if "torch" in sys.modules or (work > _WORTH_IMPORTING_TORCH and importlib.util.find_spec("torch")):
        return importlib.import_module("torch")
    return None


class CallingThread(Executor):
    """Runs everything at once, in the thread that asks for it."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """A future that is done; what the call raises is raised here."""
        done: Future[Any] = Future()
        done.set_result(call(*args, **kwargs))
        return done


@contextmanager
def thread_pool(torch: Any, work: float) -> Iterator[Executor]:
    """A pool of as many threads as torch may use; torch itself runs one thread in each of them meanwhile.

    Work of fewer multiply-adds than ``WORTH_THREADS`` stays in the calling thread.
    """
    if work < WORTH_THREADS:
        with nullcontext() if torch is None else full_precision(torch):
            yield CallingThread()
        return
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


def choose_plan(problem: Problem, torch: Any) -> Plan:
    """The arithmetic and order of rows with the least expected time.

    That is the time of a scan, plus rechecking what its precision cannot tell apart.
    """
    choices: list[Arithmetic] = [NumpyArithmetic(np.float32), NumpyArithmetic(np.float64)]
    if torch is not None:
        choices = [TorchArithmetic(torch, dtype) for dtype in ("bfloat16", "float32", "float64")]
    *coarse, finest = choices
    if len(problem.base) <= TILE_ROWS:
        return Plan.plain(problem, finest)
    pilot = _draw_pilot(problem)
    scan_s = {one: _time_pair(one, problem) for one in coarse}
    scan_s[finest] = _FLOAT64_OVER_FLOAT32 * scan_s[coarse[-1]]
    n_sides = 2.0 if problem.is_self else 1.0  # mirrored pairs are scanned once
    recheck_s = n_sides * _RECHECK_OVER_SCAN * scan_s[finest]
    expected_s = {one: scan_s[one] + _count_candidates(Plan.plain(pilot, one), pilot) * recheck_s for one in coarse}
    expected_s[finest] = scan_s[finest]
    best = min(expected_s, key=expected_s.__getitem__)
    plan = Plan.plain(problem, best)
    if torch is None or len(problem.base) < FEWEST_CENTRED_ROWS:
        return plan
    return _choose_centred(problem, torch, plan, expected_s[best], [scan_s[one] for one in coarse], recheck_s)


def _choose_centred(
    problem: Problem, torch: Any, best: Plan, best_s: float, scans_s: list[float], recheck_s: float
) -> Plan:
    """Rows laid out by cluster where they have clusters and that takes less time than ``best``."""
    clusters = _find_clusters(problem)
    if clusters.spread >= WORTH_CENTRING:
        return best
    layouts, is_fine = None, False
    for dtype, scan_s in zip(CENTRED_TYPES, scans_s, strict=True):
        expected_s = _CENTRED_OVER_PLAIN * clusters.needed * scan_s
        if expected_s < best_s:
            layouts = layouts or _lay_out(problem, clusters)
            plan = Plan(CentredArithmetic(torch, dtype, clusters.centres), *layouts)
            again_s = _count_centred(problem, plan) * recheck_s
            if again_s > _WORTH_CELLS * expected_s and not is_fine:  # fewer sub-blocks where near rows share them
                layouts, is_fine = _lay_out(problem, clusters, is_fine=True), True
                plan = Plan(plan.arithmetic, *layouts)
                again_s = _count_centred(problem, plan) * recheck_s
            expected_s += again_s
            best, best_s = (plan, expected_s) if expected_s < best_s else (best, best_s)
    return best


def _find_clusters(problem: Problem) -> Clusters:
    n_rows = len(problem.base)
    sample = problem.base.take(choose_sample(n_rows))
    return find_clusters(sample, min(MOST_CENTRES, max(1, n_rows // TILE_ROWS)), problem.k)


def _lay_out(problem: Problem, clusters: Clusters, *, is_fine: bool = False) -> tuple[Layout, Layout]:
    base = clusters.assign(problem.base, TILE_ROWS, is_fine=is_fine)
    return base if problem.is_self else clusters.assign(problem.queries, TILE_ROWS, is_fine=is_fine), base


def _count_centred(problem: Problem, plan: Plan) -> float:
    """`_count_candidates` of a few queries of a few tiles, each in the tiles of its own cluster."""
    tiles = np.unique(np.linspace(0, len(plan.queries) - 1, _PILOT_CENTRED).astype(np.int64))
    base = TileStore(problem.base, plan.arithmetic, plan.base)
    n_candidates, n_queries = 0.0, 0
    for tile in tiles:
        start, stop = plan.queries.span(int(tile))
        rows = np.unique(np.linspace(start, stop - 1, _PILOT_QUERIES // len(tiles)).astype(np.int64))
        cluster = int(plan.queries.clusters[tile])
        every = np.flatnonzero(plan.base.clusters == cluster)
        near = (
            every[np.unique(np.linspace(0, len(every) - 1, _PILOT_CENTRED).astype(np.int64))] if len(every) else every
        )
        queries = plan.arithmetic.make_tile(problem.queries.take(plan.queries.numbers(rows)), cluster=cluster)
        shortlist = Shortlist(len(rows), problem.k + problem.is_self)  # one more: a query meets itself
        for j in near.tolist():
            maxima, _ = plan.arithmetic.multiply(queries, base.get(j), is_diagonal=False, both_sides=False)
            shortlist.add(0, plan.base.first_block(j), maxima)
        beyond = len(shortlist.take()) - (problem.k + problem.is_self) * len(rows)
        n_candidates += max(0, beyond) * len(every) / max(1, len(near))
        n_queries += len(rows)
    return n_candidates / n_queries / problem.n_blocks


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


def _count_candidates(plan: Plan, pilot: Problem) -> float:
    """Sub-blocks per query that stay candidates beyond the fewest possible, as a share of all sub-blocks."""
    queries, base = (
        TileStore(pilot.queries, plan.arithmetic, plan.queries),
        TileStore(pilot.base, plan.arithmetic, plan.base),
    )
    k = min(pilot.k + 1, pilot.n_blocks)  # one more: a query may meet itself
    shortlist = Shortlist(len(pilot.queries), k)
    for j in range(len(plan.base)):
        maxima, _ = plan.arithmetic.multiply(queries.get(0), base.get(j), is_diagonal=False, both_sides=False)
        shortlist.add(0, plan.base.first_block(j), maxima)
    return max(0.0, (len(shortlist.take()) / len(pilot.queries) - k) / pilot.n_blocks)


def run_passes(
    problem: Problem, plan: Plan, best: BestRows, run: Run, *, mirror: tuple[Problem, BestRows] | None = None
) -> None:
    """Scan all tile pairs and recheck what they leave, into ``best``.

    ``mirror`` is the search the other way round, if it is wanted too.
    """
    sought = [(problem, best, Shortlist(len(problem.queries), problem.k), plan.queries, plan.base)]
    if mirror is not None:
        sought.append((*mirror, Shortlist(len(mirror[0].queries), mirror[0].k), plan.base, plan.queries))

    def look_again() -> None:
        for one, found, shortlist, queries, base in sought:
            taken = shortlist.take()
            candidates = Candidates(queries.numbers(taken.rows), taken.blocks, taken.upper)
            recheck(one, base, candidates, found, plan.arithmetic, run)
            shortlist.raise_to(found.similarity if queries.order is None else found.similarity[queries.order])

    with show_progress("searching neighbours", count_pairs(problem, plan)) as advance:
        other = sought[1][2] if mirror else None
        for _ in scan(problem, plan, sought[0][2], run, on_done=advance, mirror=other):
            look_again()
    look_again()
