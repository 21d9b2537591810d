"""Which engine suits this data: a pilot on a few tiles weighs its speed against the candidates it leaves."""

import importlib
import importlib.util
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from ruler.core.types import IndexArray
from ruler.neighbors.engines import SUB_BLOCK, Engine, NumpyEngine, TorchEngine
from ruler.neighbors.first_pass import TILE_ROWS, Shortlist, Task, TileStore
from ruler.neighbors.rows import UnitRows

_WORTH_IMPORTING_TORCH = 4e9  # multiply-adds; under it importing torch costs more than it saves
_PILOT_QUERIES = 128
_PILOT_TILES = 16
_TIMINGS = 4
_FLOAT64_OVER_FLOAT32 = 2.2  # measured cost of a float64 tile pair in units of a float32 one
_RECHECK_OVER_SCAN = 1.5  # measured cost of rechecking every sub-block in units of a float64 scan


def load_torch_if_worthwhile(work: float) -> Any:
    """The torch module where it is loaded already or the work pays for loading it, else None."""
    if "torch" in sys.modules or (work > _WORTH_IMPORTING_TORCH and importlib.util.find_spec("torch")):
        return importlib.import_module("torch")
    return None


def choose_engine(task: Task, torch: Any) -> Engine:
    """The engine with the least expected time: its scan, plus rechecking what its precision cannot tell apart."""
    *coarse, finest = _engines(torch)
    if len(task.base) <= TILE_ROWS:
        return finest
    pilot = _pilot(task)
    scan_s = {engine: _time_pair(engine, task) for engine in coarse}
    scan_s[finest] = _FLOAT64_OVER_FLOAT32 * scan_s[coarse[-1]]
    recheck_s = (2.0 if task.is_self else 1.0) * _RECHECK_OVER_SCAN * scan_s[finest]  # mirrored pairs are scanned once
    expected_s = {engine: scan_s[engine] + _count_candidates(engine, pilot) * recheck_s for engine in coarse}
    expected_s[finest] = scan_s[finest]
    return min(expected_s, key=expected_s.__getitem__)


def _engines(torch: Any) -> list[Engine]:
    """Engines from the coarsest to float64."""
    if torch is None:
        return [NumpyEngine(np.float32), NumpyEngine(np.float64)]
    return [TorchEngine(torch, dtype) for dtype in ("bfloat16", "float32", "float64")]


def _pilot(task: Task) -> Task:
    """Some queries, evenly spaced, against some tiles of the base, evenly spaced."""
    n_tiles = -(-len(task.base) // TILE_ROWS)
    chosen = np.unique(np.linspace(0, n_tiles - 1, min(_PILOT_TILES, n_tiles)).astype(np.int64))
    rows = (chosen[:, None] * TILE_ROWS + np.arange(TILE_ROWS)).ravel()
    rows = rows[rows < len(task.base)]
    queries = np.unique(np.linspace(0, len(task.queries) - 1, _PILOT_QUERIES).astype(np.int64))
    return replace(task, queries=_subset(task.queries, queries), base=_subset(task.base, rows), is_self=False)


def _subset(rows: UnitRows, index: IndexArray) -> UnitRows:
    return replace(rows, subset=index if rows.subset is None else rows.subset[index])


def _count_candidates(engine: Engine, pilot: Task) -> float:
    """Sub-blocks a query that stay candidates beyond the fewest possible, as a share of all sub-blocks."""
    queries, base = TileStore(pilot.queries, engine), TileStore(pilot.base, engine)
    k = min(pilot.k + 1, pilot.n_blocks)  # one more: a query may meet itself
    shortlist = Shortlist(len(pilot.queries), k)
    for j in range(len(base)):
        maxima, _ = engine.multiply(queries.get(0), base.get(j), is_diagonal=False, both_sides=False)
        shortlist.add(0, j * TILE_ROWS // SUB_BLOCK, maxima)
    return max(0.0, (len(shortlist.take()) / len(pilot.queries) - k) / pilot.n_blocks)


def _time_pair(engine: Engine, task: Task) -> float:
    """Seconds for one full tile pair, the best of a few."""
    tile = engine.make_tile(task.base.block(0, TILE_ROWS))
    times_s = []
    for _ in range(_TIMINGS):
        started_s = time.perf_counter()
        engine.multiply(tile, tile, is_diagonal=False, both_sides=task.is_self)
        times_s.append(time.perf_counter() - started_s)
    return min(times_s)
