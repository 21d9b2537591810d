"""In which order rows are searched: as they stand, or in tiles of rows that lie close together.

Rows of trained networks lie in clusters. Tiles that hold one cluster each can be stored relative to its centre, so that
low precision tells near rows apart (`centred.py`), and most pairs of tiles are ruled out by the angles between them.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.types import FloatArray, IndexArray
from ruler.neighbors.rows import UnitRows
from ruler.neighbors.tiles import SUB_BLOCK

SAMPLE_ROWS = 2048
_LEAST_SAMPLE = 1024
_MOST_CELLS = 256
_LLOYD_STEPS = 2
WORTH_CENTRING = 0.5  # of the spread around the origin: above it centres change too little
_NO_STRUCTURE = 0.95  # of the spread: eight centres leave less in up to 160 clusters
_WORTH_DOUBLING = 0.85  # of the spread: more centres must leave less
ANGLE_SLACK = 1e-12
"""How far a float64 product of two directions may be from the true one, with room to spare."""


@dataclass(frozen=True)
class Layout:
    """Which rows make which tile.

    Args:
        starts: (tiles + 1,) first position of each tile, and the end.
        tile_rows: Most rows of a tile: a multiple of a sub-block, so that sub-blocks are numbered alike in all tiles.
        order: (n,) row at each position; None where rows stay as they stand.
        clusters: (tiles,) the centre that a tile belongs to.
    """

    starts: IndexArray
    tile_rows: int
    order: IndexArray | None
    clusters: IndexArray

    @classmethod
    def plain(cls, n_rows: int, tile_rows: int) -> "Layout":
        """Rows as they stand, cut into tiles."""
        starts = np.append(np.arange(0, n_rows, tile_rows), n_rows)
        return cls(starts, tile_rows, None, np.zeros(len(starts) - 1, dtype=np.int64))

    @classmethod
    def group(cls, cluster_of: IndexArray, tile_rows: int, cell_of: IndexArray | None = None) -> "Layout":
        """Rows of one cluster beside each other, each cluster cut into tiles of almost equal size.

        Within a cluster rows of one cell stand together, if cells are given; rows of a sub-block ascend.
        """
        starts, clusters = [0], []
        for cluster, n_rows in enumerate(np.bincount(cluster_of).tolist()):
            first, n_tiles = starts[-1], -(-n_rows // tile_rows)
            starts += [first + (i + 1) * n_rows // n_tiles for i in range(n_tiles)]
            clusters += [cluster] * n_tiles
        order = np.argsort(cluster_of, kind="stable")
        if cell_of is not None:
            order = np.lexsort((cell_of, cluster_of))
            for start, stop in pairwise(starts):
                for first in range(start, stop, SUB_BLOCK):
                    order[first : min(first + SUB_BLOCK, stop)].sort()
        return cls(np.array(starts), tile_rows, order, np.array(clusters, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.clusters)

    def span(self, tile: int) -> tuple[int, int]:
        """First position of a tile and one past its last."""
        return int(self.starts[tile]), int(self.starts[tile + 1])

    def first_block(self, tile: int) -> int:
        """Number of the first sub-block of a tile."""
        return tile * (self.tile_rows // SUB_BLOCK)

    def rows_of_block(self, block: int) -> IndexArray:
        """The rows of a sub-block, by their number in the set."""
        tile, place = divmod(block, self.tile_rows // SUB_BLOCK)
        start, stop = self.span(tile)
        start += place * SUB_BLOCK
        return self.numbers(np.arange(start, min(start + SUB_BLOCK, stop)))

    def numbers(self, positions: IndexArray) -> IndexArray:
        """Rows of the set at these positions."""
        return positions if self.order is None else self.order[positions]

    def read(self, rows: UnitRows, tile: int) -> FloatArray:
        """The unit rows of a tile."""
        return self.read_rows(rows, self.numbers(np.arange(*self.span(tile))))

    def read_rows(self, rows: UnitRows, numbers: IndexArray) -> FloatArray:
        """The unit rows of a tile or of a sub-block."""
        return rows.take(numbers) if self.order is not None else rows.block(int(numbers[0]), int(numbers[-1]) + 1)


@dataclass(frozen=True)
class Clusters:
    """Centres of clusters of unit rows, found on a sample.

    Args:
        centres: (c, p) means of unit rows, in float64.
        spread: Mean squared distance of the sample to its centres; that of unit rows to the origin is 1.
        needed: Share of the products that angles between clusters do not rule out, as the sample has it.
        cells: (m, p) rows of the sample, to put rows that are nearest to one of them beside each other.
    """

    centres: FloatArray
    spread: float
    needed: float
    cells: FloatArray

    def assign(self, rows: UnitRows, tile_rows: int, *, is_fine: bool = False) -> Layout:
        """Put each row beside those of its nearest centre and, among them if asked, of its nearest cell."""
        points = [self.centres, self.cells] if is_fine else [self.centres]
        found: list[list[IndexArray]] = [[] for _ in points]
        for span in iterate_blocks(len(rows), block_rows_for(rows.width)):
            block = rows.block(*span)
            for parts, some in zip(found, points, strict=True):
                parts.append(_squared_distances(block, some).argmin(axis=1))
        cluster_of, *cells = (np.concatenate(parts) for parts in found)
        return Layout.group(cluster_of, tile_rows, cells[0] if cells else None)


def measure_reach(cosines: FloatArray) -> float:
    """The largest angle between a centre and rows with these cosines, or a little more."""
    return float(np.arccos(np.clip(cosines.min() - ANGLE_SLACK, -1.0, 1.0)))


def choose_sample(n_rows: int) -> IndexArray:
    """Evenly spaced rows to look for clusters in, a few thousand at most."""
    n_chosen = min(SAMPLE_ROWS, max(_LEAST_SAMPLE, n_rows // 16))
    return np.unique(np.linspace(0, n_rows - 1, n_chosen).astype(np.int64))


def find_clusters(sample: FloatArray, most: int, k: int) -> Clusters:
    """Centres that hold a sample of unit rows together: as many as make it much tighter, at most ``most``."""
    random = np.random.default_rng(0)
    best = centres = sample.mean(axis=0, keepdims=True)
    distances = _squared_distances(sample, centres).min(axis=1)
    spread = float(distances.mean())
    for n_centres in (1 << level for level in range(2, most.bit_length())):
        for _ in range(n_centres - len(centres)):  # far from all others, as k-means++ draws them
            if not distances.any():
                break
            new = sample[random.choice(len(sample), 1, p=distances / distances.sum())]
            centres = np.concatenate([centres, new])
            distances = np.minimum(distances, _squared_distances(sample, new)[:, 0])
        for _ in range(_LLOYD_STEPS):
            nearest = _squared_distances(sample, centres).argmin(axis=1)
            belongs = (nearest == np.unique(nearest)[:, None]).astype(np.float64)  # centres without rows are dropped
            centres = belongs @ sample / belongs.sum(axis=1, keepdims=True)
        distances = _squared_distances(sample, centres).min(axis=1)
        if float(distances.mean()) < _WORTH_DOUBLING * spread:
            best, spread = centres, float(distances.mean())
        elif n_centres > 4 and float(distances.mean()) > _NO_STRUCTURE * spread:
            break
    needed = _estimate_needed(sample, best, k) if spread < WORTH_CENTRING else 1.0
    cells = sample[:: max(1, len(sample) // _MOST_CELLS)]
    return Clusters(best, spread, needed, cells)


def _squared_distances(rows: FloatArray, centres: FloatArray) -> FloatArray:
    """Of unit rows to centres, (n, c), never negative."""
    squares: FloatArray = np.maximum(1 + np.square(centres).sum(axis=1) - 2 * (rows @ centres.T), 0)
    return squares


def _estimate_needed(rows: FloatArray, centres: FloatArray, k: int) -> float:
    """Share of the products of rows that angles between their clusters do not rule out."""
    if len(centres) == 1:
        return 1.0
    queries = np.arange(0, len(rows), 2)
    products = rows[queries] @ rows.T
    products[np.arange(len(queries)), queries] = -1.0
    floor = products.max(axis=1) if k == 1 else np.partition(products, -k, axis=1)[:, -k]
    nearest = _squared_distances(rows, centres).argmin(axis=1)
    angles = np.arccos((rows @ centres.T / np.linalg.norm(centres, axis=1)).clip(-1, 1))
    belongs = nearest == np.arange(len(centres))[:, None]
    reach = np.where(belongs.T, angles, 0).max(axis=0)
    is_near = np.cos(np.maximum(angles[queries] - reach, 0)) >= floor[:, None]
    pairs = belongs[:, queries].astype(np.float64) @ is_near > 0
    sizes = belongs.mean(axis=1)
    return float(sizes @ (pairs | pairs.T | np.eye(len(sizes), dtype=bool)) @ sizes)


def find_needed(cosines: FloatArray, floor: FloatArray, reach: FloatArray) -> npt.NDArray[np.bool_]:
    """Which tiles may hold one of the best rows of any of these queries, (tiles,).

    A row of a tile is within an angle ``reach`` of the tile's centre, hence at least ``angle - reach`` from a query at
    ``angle`` from that centre.

    Args:
        cosines: (n, tiles) of queries with the centres of tiles.
        floor: (n,) similarity that a row must reach to count.
        reach: (tiles,) largest angle between a tile's centre and its rows, or more: `measure_reach`.
    """
    angles = np.arccos((cosines + ANGLE_SLACK).clip(-1.0, 1.0))
    best = np.cos(np.maximum(angles - reach, 0.0)) + ANGLE_SLACK
    needed: npt.NDArray[np.bool_] = (best >= floor[:, None]).any(axis=0)
    return needed
