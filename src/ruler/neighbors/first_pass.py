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
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.tiles import SUB_BLOCK, Arithmetic, Maxima, Tile

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
            self._raise_floor(rows, maxima.lower)
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

    def _raise_floor(self, rows: slice, lower: FloatArray) -> None:
        if self.k == 1:
            np.maximum(self._best[rows, 0], lower.max(axis=1), out=self._best[rows, 0])
            return
        both = np.concatenate([self._best[rows], lower], axis=1)
        both.partition(both.shape[1] - self.k, axis=1)
        self._best[rows] = -np.sort(-both[:, -self.k :], axis=1)

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

    def __init__(self, rows: UnitRows, arithmetic: Arithmetic) -> None:
        self._rows, self._arithmetic = rows, arithmetic
        self._tiles: OrderedDict[int, Tile] = OrderedDict()
        self._lock = threading.Lock()
        self._n_bytes = 0

    def __len__(self) -> int:
        return -(-len(self._rows) // TILE_ROWS)

    def get(self, number: int) -> Tile:
        """The tile of rows ``number * TILE_ROWS`` and on."""
        with self._lock:
            if number in self._tiles:
                self._tiles.move_to_end(number)
                return self._tiles[number]
        start = number * TILE_ROWS
        tile = self._arithmetic.make_tile(self._rows.block(start, min(start + TILE_ROWS, len(self._rows))))
        with self._lock:
            if number not in self._tiles:  # another thread may have made it meanwhile
                self._tiles[number] = tile
                self._n_bytes += tile.values.nbytes
            while self._n_bytes > _CACHE_BYTES and len(self._tiles) > 1:
                self._n_bytes -= self._tiles.popitem(last=False)[1].values.nbytes
        return tile


def scan(
    problem: Problem,
    arithmetic: Arithmetic,
    shortlist: Shortlist,
    run: Run,
    *,
    on_done: Callable[[int], None],
    mirror: Shortlist | None = None,
) -> Iterator[None]:
    """Multiply all tile pairs into the shortlist; yields when a shortlist is full, so that it can be emptied.

    Each product also serves the base rows as queries: in a self search in the same shortlist, else in ``mirror``.
    """
    mirror = shortlist if problem.is_self else mirror
    queries = TileStore(problem.queries, arithmetic)
    base = queries if problem.is_self else TileStore(problem.base, arithmetic)
    stop = threading.Event()

    def multiply(pairs: list[tuple[int, int]]) -> int:
        for i, j in pairs:
            if stop.is_set():
                break
            is_diagonal = problem.is_self and i == j
            both_sides = mirror is not None and not is_diagonal
            tiles = queries.get(i), base.get(j)
            ours, theirs = arithmetic.multiply(*tiles, is_diagonal=is_diagonal, both_sides=both_sides)
            shortlist.add(i * TILE_ROWS, j * TILE_ROWS // SUB_BLOCK, ours)
            if mirror is not None and theirs is not None:
                mirror.add(j * TILE_ROWS, i * TILE_ROWS // SUB_BLOCK, theirs)
        return len(pairs)

    try:
        # the more query tiles stay in memory while the base passes by, the less often it is read
        n_fitting = _CACHE_BYTES // (2 * 4 * TILE_ROWS * problem.base.width)
        n_resident = max(PANEL_TILES, min(MOST_RESIDENT_TILES, n_fitting))
        panels = list_panels(len(queries), len(base), problem.is_self, n_resident)
        while wave := list(itertools.islice(panels, WAVE_PANELS)):
            for n_pairs in run(multiply, wave):
                on_done(n_pairs)
            if shortlist.is_full or (mirror is not None and mirror.is_full):
                yield
    finally:
        stop.set()  # after an interrupt, running calls end at their next pair


def count_pairs(problem: Problem) -> int:
    """How many tile pairs the scan multiplies."""
    n_queries, n_base = -(-len(problem.queries) // TILE_ROWS), -(-len(problem.base) // TILE_ROWS)
    return n_queries * (n_queries + 1) // 2 if problem.is_self else n_queries * n_base


def list_panels(n_queries: int, n_base: int, is_self: bool, n_resident: int) -> Iterator[list[tuple[int, int]]]:
    """Tile pairs in an order in which few tiles are needed at a time; a self search takes the upper triangle."""
    for first in range(0, n_queries, n_resident):
        last = min(first + n_resident, n_queries)
        for j in range(first if is_self else 0, n_base):
            for start in range(first, min(last, j + 1) if is_self else last, PANEL_TILES):
                yield [(i, j) for i in range(start, min(start + PANEL_TILES, last)) if i <= j or not is_self]
