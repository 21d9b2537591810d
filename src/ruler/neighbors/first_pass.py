"""First pass: low-precision products name, for each query, the sub-blocks in which its best rows can be.

For every query the k-th largest lower bound over sub-blocks is a bound that the k-th best row cannot fall under (each
sub-block's maximum is a different row). A sub-block whose upper bound is below it holds no answer.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.types import FloatArray, IndexArray
from ruler.neighbors.layout import Layout, find_needed, measure_reach
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.tiles import SUB_BLOCK, Arithmetic, Maxima

Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""`map`, or the `map` of a thread pool."""

TILE_ROWS = 1024
PANEL_TILES = 8
MOST_RESIDENT_TILES = 64
_CACHE_BYTES = 96 << 20
MOST_HELD = 2_000_000
FIRST_ROOM = 1 << 16
WAVE_PANELS = 128


@dataclass(frozen=True)
class Problem:
    """A search among distinct rows: the k best base rows of each query; in a self search never the row itself."""

    queries: UnitRows
    base: UnitRows
    k: int
    is_self: bool

    @property
    def n_blocks(self) -> int:
        """Number of sub-blocks of the base."""
        return -(-len(self.base) // SUB_BLOCK)


@dataclass(frozen=True)
class Plan:
    """How a problem is searched: the arithmetic of the first pass, and the order of the rows of both sides.

    Args:
        arithmetic: A `CentredArithmetic` where rows are laid out by cluster.
        queries: Their tiles.
        base: Its tiles; the same object in a self search.
    """

    arithmetic: Any
    queries: Layout
    base: Layout

    @classmethod
    def plain(cls, problem: Problem, arithmetic: Arithmetic) -> "Plan":
        """All rows as they stand."""
        base = Layout.plain(len(problem.base), TILE_ROWS)
        return cls(arithmetic, base if problem.is_self else Layout.plain(len(problem.queries), TILE_ROWS), base)

    @property
    def is_centred(self) -> bool:
        """Whether tiles belong to clusters, so that angles can rule out pairs of them."""
        return self.base.order is not None


@dataclass(frozen=True)
class Candidates:
    """Sub-blocks still to be looked at: query ``rows[i]`` in ``blocks[i]``, where nothing exceeds ``upper[i]``."""

    rows: IndexArray
    blocks: IndexArray
    upper: FloatArray

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: npt.NDArray[np.bool_]) -> "Candidates":
        """The candidates that are kept."""
        return Candidates(self.rows[keep], self.blocks[keep], self.upper[keep])

    @classmethod
    def make_room(cls, n: int) -> "Candidates":
        """Room for n, with nothing in it."""
        return cls(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n))


@dataclass
class Shortlist:
    """Running bounds and candidates of all queries; threads add to it, one at a time.

    Candidates are kept in arrays that are used again: millions of small arrays, alive between large temporary ones,
    would take several times as much memory as they need.
    """

    n_queries: int
    k: int
    floor: FloatArray = field(init=False)
    _best: FloatArray = field(init=False)
    held: Candidates = field(init=False)
    _n_held: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._best = np.full((self.n_queries, self.k), -np.inf)
        self.floor = self._best[:, -1]
        self.held = Candidates.make_room(FIRST_ROOM)

    def add(self, first_row: int, first_block: int, maxima: Maxima) -> None:
        """Take the maxima of consecutive queries over consecutive sub-blocks."""
        rows = slice(first_row, first_row + len(maxima.upper))
        with self._lock:
            if self.k == 1:
                np.maximum(self._best[rows, 0], maxima.lower.max(axis=1), out=self._best[rows, 0])
            else:
                both = np.concatenate([self._best[rows], maxima.lower], axis=1)
                both.partition(both.shape[1] - self.k, axis=1)
                self._best[rows] = -np.sort(-both[:, -self.k :], axis=1)
            row, block = np.nonzero(maxima.upper >= self.floor[rows, None])
            stop = self._n_held + len(row)
            if stop > len(self.held):
                larger, n = Candidates.make_room(2 * stop), self._n_held
                larger.rows[:n], larger.blocks[:n] = self.held.rows[:n], self.held.blocks[:n]
                larger.upper[:n] = self.held.upper[:n]
                self.held = larger
            new = slice(self._n_held, stop)
            self.held.rows[new] = row + first_row
            self.held.blocks[new] = block + first_block
            self.held.upper[new] = maxima.upper[row, block]
            self._n_held = stop

    def raise_to(self, values: FloatArray) -> None:
        """Raise the bounds to known similarities (n, k), -inf where none is known."""
        with self._lock:
            np.maximum(self.floor, values[:, -1], out=self.floor)

    @property
    def is_full(self) -> bool:
        """Whether so much is held that it should be taken out."""
        return self._n_held > MOST_HELD

    def take(self) -> Candidates:
        """Take out all candidates that the bounds have not ruled out meanwhile."""
        with self._lock:
            n, self._n_held = self._n_held, 0
            held = Candidates(self.held.rows[:n], self.held.blocks[:n], self.held.upper[:n])
            taken = held.where(held.upper >= self.floor[held.rows])
            if len(self.held) > 2 * MOST_HELD:
                self.held = Candidates.make_room(FIRST_ROOM)
        return taken


class TileStore:
    """Tiles of one set of rows, the latest ones kept."""

    def __init__(self, rows: UnitRows, arithmetic: Any, layout: Layout) -> None:
        self._rows, self._arithmetic, self.layout = rows, arithmetic, layout
        self._tiles: OrderedDict[int, Any] = OrderedDict()
        self._lock = threading.Lock()
        self._n_bytes = 0

    def get(self, number: int) -> Any:
        """A tile as the arithmetic stores it."""
        with self._lock:
            if number in self._tiles:
                self._tiles.move_to_end(number)
                return self._tiles[number]
        tile = self._arithmetic.make_tile(
            self.layout.read(self._rows, number), cluster=int(self.layout.clusters[number])
        )
        with self._lock:
            if number not in self._tiles:  # another thread may have made it meanwhile
                self._tiles[number] = tile
                self._n_bytes += tile.nbytes
            while self._n_bytes > _CACHE_BYTES and len(self._tiles) > 1:
                self._n_bytes -= self._tiles.popitem(last=False)[1].nbytes
        return tile


def scan(
    problem: Problem,
    plan: Plan,
    shortlist: Shortlist,
    run: Run,
    *,
    on_done: Callable[[int], None],
    mirror: Shortlist | None = None,
) -> Iterator[None]:
    """Multiply all tile pairs into the shortlist; yields when a shortlist is full, so that it can be emptied.

    Each product also serves the base rows as queries: in a self search in the same shortlist, else in ``mirror``.
    Clusters are searched in themselves first; what that finds rules out most pairs of tiles of different clusters.
    """
    mirror = shortlist if problem.is_self else mirror
    queries = TileStore(problem.queries, plan.arithmetic, plan.queries)
    base = queries if problem.is_self else TileStore(problem.base, plan.arithmetic, plan.base)
    stop = threading.Event()

    def multiply(pairs: list[tuple[int, int]]) -> int:
        for i, j in pairs:
            if stop.is_set():
                break
            is_diagonal = problem.is_self and i == j
            both_sides = mirror is not None and not is_diagonal
            tiles = queries.get(i), base.get(j)
            ours, theirs = plan.arithmetic.multiply(*tiles, is_diagonal=is_diagonal, both_sides=both_sides)
            shortlist.add(plan.queries.span(i)[0], plan.base.first_block(j), ours)
            if mirror is not None and theirs is not None:
                mirror.add(plan.base.span(j)[0], plan.queries.first_block(i), theirs)
        return len(pairs)

    # the more query tiles stay in memory while the base passes by, the less often it is read
    n_fitting = _CACHE_BYTES // (2 * 4 * TILE_ROWS * problem.base.width)
    n_resident = max(PANEL_TILES, min(MOST_RESIDENT_TILES, n_fitting))
    n_left = count_pairs(problem, plan)
    is_wanted = plan.queries.clusters[:, None] == plan.base.clusters
    try:
        for is_last in (False, True) if plan.is_centred else (True,):
            panels = list_panels(len(plan.queries), len(plan.base), problem.is_self, n_resident)
            chosen = ([pair for pair in panel if is_wanted[pair]] for panel in panels)
            while wave := list(itertools.islice(filter(None, chosen), WAVE_PANELS)):
                for n_pairs in run(multiply, wave):
                    n_left -= n_pairs
                    on_done(n_pairs)
                if shortlist.is_full or (mirror is not None and mirror.is_full):
                    yield
            if not is_last:
                is_wanted = ~is_wanted & _find_needed_pairs(queries, base, plan.arithmetic, shortlist, mirror, run)
        on_done(n_left)
    finally:
        stop.set()  # after an interrupt, running calls end at their next pair


def _find_needed_pairs(
    queries: TileStore, base: TileStore, arithmetic: Any, shortlist: Shortlist, mirror: Shortlist | None, run: Run
) -> npt.NDArray[np.bool_]:
    """Pairs of tiles that angles do not rule out, (query tiles, base tiles): for either side, if both are searched."""

    def reach(store: TileStore) -> FloatArray:
        return np.array(
            [measure_reach(arithmetic.cosines(store.get(i))[:, c]) for i, c in enumerate(store.layout.clusters)]
        )

    def needed(ours: TileStore, theirs: TileStore, floor: FloatArray) -> npt.NDArray[np.bool_]:
        clusters, reached = theirs.layout.clusters, reach(theirs)

        def find(tile: int) -> npt.NDArray[np.bool_]:
            return find_needed(
                arithmetic.cosines(ours.get(tile))[:, clusters], floor[slice(*ours.layout.span(tile))], reached
            )

        return np.array(list(run(find, range(len(ours.layout)))))

    found = needed(queries, base, shortlist.floor)
    if mirror is not None:
        found = found | (found if mirror is shortlist else needed(base, queries, mirror.floor)).T
    return found


def count_pairs(problem: Problem, plan: Plan) -> int:
    """How many tile pairs there are to multiply or to rule out."""
    n_queries, n_base = len(plan.queries), len(plan.base)
    return n_queries * (n_queries + 1) // 2 if problem.is_self else n_queries * n_base


def list_panels(n_queries: int, n_base: int, is_self: bool, n_resident: int) -> Iterator[list[tuple[int, int]]]:
    """Tile pairs in an order in which few tiles are needed at a time; a self search takes the upper triangle."""
    for first in range(0, n_queries, n_resident):
        last = min(first + n_resident, n_queries)
        for j in range(first if is_self else 0, n_base):
            for start in range(first, min(last, j + 1) if is_self else last, PANEL_TILES):
                yield [(i, j) for i in range(start, min(start + PANEL_TILES, last)) if i <= j or not is_self]
