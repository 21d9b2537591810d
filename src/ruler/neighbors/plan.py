"""What a search will take, before it starts: counted from its shapes, timed on a sample of its own rows."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import block_rows_for, measure_norms
from ruler.neighbors.blocks import Workers, count_tasks
from ruler.neighbors.cpu import PassTimes, choose_arithmetic, load_torch_if_worthwhile, run_passes, thread_pool
from ruler.neighbors.engines import Request
from ruler.neighbors.first_pass import TILE_ROWS, Problem, count_resident_tiles
from ruler.neighbors.recheck import BestRows
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.tiles import Arithmetic

PILOT_TILES = 48
_PILOT_READS = 8
_FIXED_BYTES = 2 << 30  # torch, tiles, candidates, mapped pages, and as much again that the allocator keeps
_BYTES_PER_ROW = 80  # norms, hashes and their order, while identical rows are sought


@dataclass(frozen=True)
class SearchPlan:
    """A search that was counted and timed, but not run.

    Args:
        n_queries: Rows to look up.
        n_rows: Rows to search.
        width: Columns.
        is_self: A set searched in itself: each pair of rows once.
        arithmetic: Of the first pass, as the pilot chose it for this data.
        n_threads: That would work at once.
        flops: Of the first pass, a multiply and an add counted as two.
        bytes_read: From the files or from what the system keeps of them.
        memory_bytes: Most memory of the process, beyond arrays that the caller holds.
        scan_s: Seconds of the first pass, here and now.
        recheck_s: Seconds of the second.
        reading_s: Seconds of norms and of the search for identical rows, on one thread.
        growth: Power of the number of rows by which the candidates of a query grow: 0 where the nearest row is told
            from the others whatever their number, 1 where it is a share of all rows that low precision cannot tell
            from it, as in tight classes.
    """

    n_queries: int
    n_rows: int
    width: int
    is_self: bool
    arithmetic: str
    n_threads: int
    flops: float
    bytes_read: float
    memory_bytes: float
    scan_s: float
    recheck_s: float
    reading_s: float
    growth: float

    @property
    def elapsed_s(self) -> float:
        """Seconds it should take here and now."""
        return self.scan_s + self.recheck_s + self.reading_s

    def __str__(self) -> str:
        return (
            f"{_describe_rows(self)}: {self.flops / 1e12:,.3g} TFLOP, {self.bytes_read / 1e9:,.3g} GB read, "
            f"{self.elapsed_s / 60:,.3g} min ({self.arithmetic}, {self.n_threads} threads)"
        )


@dataclass(frozen=True)
class BlockPlan:
    """A search that was counted for workers, and timed as if they were this machine, but not run.

    Args:
        n_queries: Rows to look up.
        n_rows: Rows to search.
        width: Columns.
        is_self: A set searched in itself.
        block_rows: Most rows of a block.
        n_tasks: Pairs of blocks.
        flops: Of the first pass, a multiply and an add counted as two.
        bytes_read: By the tasks, of which each reads its two blocks.
        elapsed_s: Seconds it should take if a worker's core is as fast as one here; NaN on accelerators, whose speed
            is not known here.
    """

    n_queries: int
    n_rows: int
    width: int
    is_self: bool
    block_rows: int
    n_tasks: int
    flops: float
    bytes_read: float
    elapsed_s: float

    def __str__(self) -> str:
        took = "" if math.isnan(self.elapsed_s) else f", {self.elapsed_s / 60:,.3g} min"
        return (
            f"{_describe_rows(self)}: {self.flops / 1e12:,.3g} TFLOP, {self.n_tasks:,} tasks of two blocks of "
            f"at most {self.block_rows:,} rows, {self.bytes_read / 1e9:,.3g} GB read{took}"
        )


def _describe_rows(plan: SearchPlan | BlockPlan) -> str:
    rows = f"{plan.n_rows:,} rows in themselves" if plan.is_self else f"{plan.n_queries:,} in {plan.n_rows:,} rows"
    return f"{rows} of width {plan.width}"


def plan_search(queries: Any, base: Any, *, k: int = 1, exclude_self: bool = False) -> SearchPlan:
    """How long would `find_neighbors` take on these rows, on this machine, as busy as it is now?

    A pilot of about two seconds runs both passes on tiles drawn from all over the rows, in the arithmetic that suits
    them, and times the reading of some blocks; half of its tiles show how candidates grow with the rows. The rest is
    counting. Identical rows are taken to be rare: where they are not, the search takes less.

    Args:
        queries: As `find_neighbors`; `StackedRows` are read in part only.
        base: As `find_neighbors`; the same object for a set searched in itself.
        k: How many neighbours per query.
        exclude_self: As `find_neighbors`.

    Raises:
        InputError: As `find_neighbors`, as far as the rows that are looked at show it.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(3000, 8))
        >>> plan = plan_search(rows, rows, exclude_self=True)
        >>> plan.n_rows, plan.flops, 0 < plan.elapsed_s < 60
        (3000, 72000000.0, True)
    """
    request = Request(queries, base, k, exclude_self)
    is_self = request.is_self
    query_rows, base_rows = request.read_matrices()
    n_queries, (n_rows, width) = len(query_rows), base_rows.shape
    torch = load_torch_if_worthwhile(n_queries * n_rows * width)
    base_sample = _draw_tiles(base_rows, PILOT_TILES)
    query_sample = base_sample if is_self else _draw_tiles(query_rows, PILOT_TILES // 4)
    pilot = Problem(query_sample, base_sample, min(k, len(base_sample) - is_self), is_self)
    with thread_pool(torch) as pool:
        arithmetic = pool.submit(choose_arithmetic, pilot, torch).result()
        times = time_passes(pilot, arithmetic, pool)
        growth, n_times = _grow(pilot, times, time_passes(_halve(pilot), arithmetic, pool), n_rows)
    n_read = n_rows if is_self else n_rows + n_queries
    n_threads = pool._max_workers
    return SearchPlan(
        n_queries,
        n_rows,
        width,
        is_self,
        arithmetic.name,
        n_threads,
        flops=2.0 * n_queries * n_rows * width / (2 if is_self else 1),
        bytes_read=_count_bytes(query_rows, base_rows, is_self),
        memory_bytes=_FIXED_BYTES + _BYTES_PER_ROW * n_read + 40.0 * k * n_queries,
        scan_s=times.scan_s * _count_pilots(pilot, n_queries, n_rows),
        recheck_s=times.recheck_s * n_queries / len(pilot.queries) * n_times,
        reading_s=time_reading(base_rows) * n_read,
        growth=growth,
    )


def _draw_tiles(matrix: npt.NDArray[Any], most: int) -> UnitRows:
    """Runs of rows from all over the matrix."""
    n_tiles = -(-len(matrix) // TILE_ROWS)
    chosen = np.unique(np.linspace(0, n_tiles - 1, min(n_tiles, most)).astype(np.int64))
    rows = np.concatenate([matrix[tile * TILE_ROWS : (tile + 1) * TILE_ROWS] for tile in chosen])
    return UnitRows(rows, measure_norms(rows, "rows"))


def _halve(pilot: Problem) -> Problem:
    """The pilot with every second tile of its base."""
    rows = np.arange(len(pilot.base))
    half = replace(pilot.base, subset=rows[rows // TILE_ROWS % 2 == 0])
    return replace(pilot, queries=half if pilot.is_self else pilot.queries, base=half)


def _grow(pilot: Problem, times: PassTimes, half: PassTimes, n_rows: int) -> tuple[float, float]:
    """Power by which candidates grow with rows, and how many times the pilot's a query has in the whole."""
    halved = _halve(pilot)
    few = max(0.0, half.n_rechecked / len(halved.queries) - halved.k)
    many = max(0.0, times.n_rechecked / len(pilot.queries) - pilot.k)
    if many <= few or len(halved.base) == len(pilot.base):
        return 0.0, 1.0
    n_doublings = math.log2(len(pilot.base) / len(halved.base))
    growth = min(1.0, math.log2(many / few) / n_doublings) if few else 1.0
    return growth, (pilot.k + many * (n_rows / len(pilot.base)) ** growth) / (pilot.k + many)


def time_passes(problem: Problem, arithmetic: Arithmetic, pool: ThreadPoolExecutor) -> PassTimes:
    """Run both passes for their times alone."""
    run = map if arithmetic.has_own_threads else pool.map
    return run_passes(problem, arithmetic, BestRows(len(problem.queries), problem.k), run)


def _count_pilots(pilot: Problem, n_queries: int, n_rows: int) -> float:
    """How many times the pilot's pairs of rows the whole has."""
    if pilot.is_self:
        return (n_rows / len(pilot.base)) * (n_rows + TILE_ROWS) / (len(pilot.base) + TILE_ROWS)
    return (n_queries / len(pilot.queries)) * (n_rows / len(pilot.base))


def time_reading(matrix: npt.NDArray[Any]) -> float:
    """Seconds per row to measure norms and to look for identical rows."""
    n_block = block_rows_for(matrix.shape[1])
    starts = np.linspace(0, max(0, len(matrix) - n_block), _PILOT_READS).astype(np.int64)
    n_read = 0
    started_s = time.perf_counter()
    for start in starts:
        block = np.asarray(matrix[start : start + n_block])
        UnitRows(block, measure_norms(block, "rows")).hash(0, len(block))
        n_read += len(block)
    return (time.perf_counter() - started_s) / n_read


def _count_bytes(queries: npt.NDArray[Any], base: npt.NDArray[Any], is_self: bool) -> float:
    """Norms, hashes, and the base once for every set of query tiles that stays in memory, half of that by symmetry."""
    n_tiles = -(-len(queries) // TILE_ROWS)
    n_rounds = -(-n_tiles // count_resident_tiles(base.shape[1]))
    scans = (n_rounds + 1) / 2 if is_self else n_rounds
    return float(base.nbytes * (2 + scans) + (0 if is_self else 3 * queries.nbytes))


def plan_by_blocks(queries: Any, base: Any, *, workers: Workers, k: int = 1, exclude_self: bool = False) -> BlockPlan:
    """How many tasks, operations and bytes is this search for these workers, and how long should they take?

    Args:
        queries: As `find_neighbors`.
        base: As `find_neighbors`; the same object for a set searched in itself.
        workers: Who does it.
        k: How many neighbours per query.
        exclude_self: As `find_neighbors`.

    Raises:
        InputError: As `find_neighbors`, as far as shapes and the rows that are looked at show it.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(40_000, 8))
        >>> plan = plan_by_blocks(rows, rows, workers=Workers(2), exclude_self=True)
        >>> plan.block_rows, plan.n_tasks, plan.bytes_read == 3 * rows.nbytes
        (16384, 6, True)
    """
    request = Request(queries, base, k, exclude_self)
    is_self = request.is_self
    query_rows, base_rows = request.read_matrices()
    n_queries, (n_rows, width) = len(query_rows), base_rows.shape
    block_rows = workers.choose_block_rows(n_queries, n_rows, is_self=is_self)
    n_tasks = count_tasks(n_queries, n_rows, block_rows, is_self=is_self)
    n_blocks = -(-n_queries // block_rows), -(-n_rows // block_rows)
    # a set searched in itself: on a CPU a product serves both of its rows, on an accelerator only within a block
    n_shared = n_rows * (n_rows if workers.device is None else min(n_rows, block_rows)) if is_self else 0
    elapsed_s = math.nan
    if workers.device is None:
        here = plan_search(query_rows, base_rows, k=k, exclude_self=exclude_self)
        elapsed_s = _time_worker(here, workers, n_blocks) / n_tasks * -(-n_tasks // workers.n_workers)
    return BlockPlan(
        n_queries,
        n_rows,
        width,
        is_self,
        block_rows,
        n_tasks,
        flops=2.0 * width * (n_queries * n_rows - n_shared / 2),
        bytes_read=float(base_rows.nbytes * n_blocks[0] + (0 if is_self else query_rows.nbytes * n_blocks[1])),
        elapsed_s=elapsed_s,
    )


def _time_worker(here: SearchPlan, workers: Workers, n_blocks: tuple[int, int]) -> float:
    """Seconds of one worker that did all tasks: rows are read, and queries rechecked, again in every block.

    Where candidates grow with the rows, a block has fewer of them.
    """
    n_query_blocks, n_base_blocks = n_blocks
    n_here = here.n_rows + (0 if here.is_self else here.n_queries)
    n_read = here.n_rows * n_query_blocks + (0 if here.is_self else here.n_queries * n_base_blocks)
    recheck_s: float = here.recheck_s * n_base_blocks ** (1 - here.growth)
    core_s = (here.scan_s + recheck_s) * here.n_threads
    return core_s / workers.n_threads + here.reading_s * n_read / n_here
