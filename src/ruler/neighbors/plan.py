"""What a search will take, before it starts: counted from its shapes, timed on a sample of its own rows."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import block_rows_for, measure_norms
from ruler.neighbors.choice import choose_engine, load_torch_if_worthwhile
from ruler.neighbors.engines import Engine
from ruler.neighbors.first_pass import TILE_ROWS, Task, count_resident_tiles
from ruler.neighbors.recheck import BestRows
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.search import PassTimes, as_request, run_passes, thread_pool

_PILOT_TILES = 48
_PILOT_READS = 8
_FIXED_BYTES = 2 << 30  # torch, tiles, candidates, mapped pages, and as much again that the allocator keeps
_BYTES_A_ROW = 80  # norms, hashes and their order, while identical rows are sought


@dataclass(frozen=True)
class SearchPlan:
    """A search that was counted and timed, but not run.

    Args:
        n_queries: Rows to look up.
        n_rows: Rows to search.
        width: Columns.
        is_self: A set searched in itself: each pair of rows once.
        engine: Of the first pass, as the pilot chose it for this data.
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
    engine: str
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
        what = f"{self.n_rows:,} rows in themselves" if self.is_self else f"{self.n_queries:,} in {self.n_rows:,} rows"
        return (
            f"{what} of width {self.width}: {self.flops / 1e12:,.3g} TFLOP, {self.bytes_read / 1e9:,.3g} GB read, "
            f"{self.elapsed_s / 60:,.3g} min ({self.engine}, {self.n_threads} threads)"
        )


def plan_search(queries: Any, base: Any, *, k: int = 1, exclude_self: bool = False) -> SearchPlan:
    """How long would `find_neighbors` take on these rows, on this machine, as busy as it is now?

    A pilot of about two seconds runs both passes on tiles drawn from all over the rows, with the engine that they call
    for, and times the reading of some blocks; half of its tiles show how candidates grow with the rows. The rest is
    counting. Identical rows are taken to be rare: where they are
    not, the search takes less.

    Args:
        queries: As `find_neighbors`; `StackedRows` are read in part only.
        base: As `find_neighbors`; the same object for a set searched in itself.
        k: How many neighbours a query.
        exclude_self: As `find_neighbors`.

    Raises:
        InputError: As `find_neighbors`, as far as the rows that are looked at show it.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(3000, 8))
        >>> plan = plan_search(rows, rows, exclude_self=True)
        >>> plan.n_rows, plan.flops, 0 < plan.elapsed_s < 60
        (3000, 72000000.0, True)
    """
    is_self = queries is base
    query_rows, base_rows = as_request(queries, base, k, exclude_self)
    n_queries, (n_rows, width) = len(query_rows), base_rows.shape
    torch = load_torch_if_worthwhile(n_queries * n_rows * width)
    pilot = _draw_pilot(query_rows, base_rows, k, is_self)
    with thread_pool(torch) as pool:
        engine = pool.submit(choose_engine, pilot, torch).result()
        times = _time_passes(pilot, engine, pool)
        growth, n_times = _grow(pilot, times, _time_passes(_halve(pilot), engine, pool), n_rows)
    n_read = n_rows if is_self else n_rows + n_queries
    n_threads = pool._max_workers
    return SearchPlan(
        n_queries,
        n_rows,
        width,
        is_self,
        engine.name,
        n_threads,
        flops=2.0 * n_queries * n_rows * width / (2 if is_self else 1),
        bytes_read=_count_bytes(query_rows, base_rows, is_self),
        memory_bytes=_FIXED_BYTES + _BYTES_A_ROW * n_read + 40.0 * k * n_queries,
        scan_s=times.scan_s * _count_pilots(pilot, n_queries, n_rows),
        recheck_s=times.recheck_s * n_queries / len(pilot.queries) * n_times,
        reading_s=_time_reading(base_rows) * n_read,
        growth=growth,
    )


def _draw_pilot(queries: npt.NDArray[Any], base: npt.NDArray[Any], k: int, is_self: bool) -> Task:
    base_sample = _draw_tiles(base, _PILOT_TILES)
    query_sample = base_sample if is_self else _draw_tiles(queries, _PILOT_TILES // 4)
    return Task(query_sample, base_sample, min(k, len(base_sample) - is_self), is_self)


def _draw_tiles(matrix: npt.NDArray[Any], most: int) -> UnitRows:
    """Runs of rows from all over the matrix."""
    n_tiles = -(-len(matrix) // TILE_ROWS)
    chosen = np.unique(np.linspace(0, n_tiles - 1, min(n_tiles, most)).astype(np.int64))
    rows = np.concatenate([matrix[tile * TILE_ROWS : (tile + 1) * TILE_ROWS] for tile in chosen])
    return UnitRows(rows, measure_norms(rows, "rows"))


def _halve(pilot: Task) -> Task:
    """The pilot with every second tile of its base."""
    rows = np.arange(len(pilot.base))
    half = replace(pilot.base, subset=rows[rows // TILE_ROWS % 2 == 0])
    return replace(pilot, queries=half if pilot.is_self else pilot.queries, base=half)


def _grow(pilot: Task, times: PassTimes, half: PassTimes, n_rows: int) -> tuple[float, float]:
    """Power by which candidates grow with rows, and how many times the pilot's a query has in the whole."""
    halved = _halve(pilot)
    few, many = (
        max(0.0, found.n_rechecked / len(task.queries) - task.k) for found, task in ((half, halved), (times, pilot))
    )
    if many <= few or len(halved.base) == len(pilot.base):
        return 0.0, 1.0
    n_doublings = math.log2(len(pilot.base) / len(halved.base))
    growth = min(1.0, math.log2(many / few) / n_doublings) if few else 1.0
    return growth, (pilot.k + many * (n_rows / len(pilot.base)) ** growth) / (pilot.k + many)


def _time_passes(task: Task, engine: Engine, pool: Any) -> PassTimes:
    run = map if engine.has_own_threads else pool.map
    return run_passes(task, engine, BestRows(len(task.queries), task.k), run)


def _count_pilots(pilot: Task, n_queries: int, n_rows: int) -> float:
    """How many times the pilot's pairs of rows the whole has."""
    if pilot.is_self:
        return (n_rows / len(pilot.base)) * (n_rows + TILE_ROWS) / (len(pilot.base) + TILE_ROWS)
    return (n_queries / len(pilot.queries)) * (n_rows / len(pilot.base))


def _time_reading(matrix: npt.NDArray[Any]) -> float:
    """Seconds a row to measure norms and to look for identical rows."""
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
