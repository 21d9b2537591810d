"""Tiles stored relative to centres of clusters, where low precision tells rows apart that lie close together.

With a = c + u and b = d + v, half the squared distance of two unit rows, 1 - a.b, is alpha + beta - u.v, where alpha
and beta depend on one row and the two centres. Rounding u and v costs |u| |v|, not 1, and storing the result costs a
share of the distance itself. Alpha and beta travel in extra columns of the product, each in several parts.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ruler.core.types import FloatArray
from ruler.neighbors.tiles import SUB_BLOCK, Maxima, TorchTiles

_SHORT = 1e-3  # centres nearer to the origin have no direction that float64 knows well
_FAR = 4.0  # more than half the squared distance of any two unit rows


@dataclass(frozen=True)
class CentredTile:
    """Rows of one cluster less its centre, as both factors of a product, padded to whole sub-blocks.

    Args:
        left: (padded, p + 2 parts): minus the rows, ones, and the parts of what each row adds to its distances.
        right: (padded, p + 2 parts): the rows, the parts, and ones.
        width: p.
        cluster: Number of the centre.
        norms: (n,) of the rows less the centre.
        lost: (n,) norm of what rounding took from them.
        dots: (n, centres) products of the rows less their centre with all centres.
        zeros: Rows that were all zero, whose similarity to everything is 0.
        offsets: (n,) what each row adds to its half squared distances: alpha, or beta.
        lost_offset: The most that splitting took from one of them.
    """

    left: Any
    right: Any
    width: int
    cluster: int
    norms: FloatArray
    lost: FloatArray
    dots: FloatArray
    zeros: Any
    offsets: FloatArray
    lost_offset: float

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def nbytes(self) -> int:
        """Memory that the tile takes."""
        return int(self.left.nbytes + self.right.nbytes + self.dots.nbytes)


class CentredArithmetic(TorchTiles):
    """torch on CPU in bfloat16 or float32, relative to centres."""

    def __init__(self, torch: Any, dtype: str, centres: FloatArray) -> None:
        super().__init__(torch, dtype)
        self.name = f"torch centred {dtype}"
        self._centres = centres
        self._squares = np.square(centres).sum(axis=1)
        self._grams = centres @ centres.T
        self._n_parts = 3 if dtype == "bfloat16" else 2
        self._unit = torch.finfo(torch.float32).eps / 2

    def make_tile(self, rows: FloatArray, cluster: int = 0) -> CentredTile:
        """Round float64 unit rows (n, p) less the centre of their cluster."""
        zeros = np.flatnonzero(~rows.any(axis=1))
        rows = rows - self._centres[cluster]
        n_rows, width = rows.shape
        exact = self._torch.from_numpy(rows)
        right = self._torch.zeros((-(-n_rows // SUB_BLOCK) * SUB_BLOCK, width + 2 * self._n_parts), dtype=self._dtype)
        values = right[:n_rows, :width]
        values.copy_(exact)
        right[:, width + self._n_parts :] = 1.0
        left = right.clone()
        self._torch.neg(values, out=left[:n_rows, :width])
        left[:, width : width + self._n_parts] = 1.0
        lost = np.sqrt(np.square((exact - values).numpy()).sum(axis=1))
        squares = np.square(rows).sum(axis=1)
        dots = rows @ self._centres.T
        tile = CentredTile(left, right, width, cluster, np.sqrt(squares), lost, dots, zeros, squares / 2, 0.0)
        return replace(tile, lost_offset=self._set_offsets(tile))

    def multiply(
        self, a: CentredTile, b: CentredTile, *, is_diagonal: bool, both_sides: bool
    ) -> tuple[Maxima, Maxima | None]:
        """Maxima of a's rows over b's sub-blocks, (n_a, blocks_b), and if asked of b's rows over a's."""
        if a.cluster != b.cluster:
            a, b = self._move(a, b.cluster), self._move(b, a.cluster)
        product = self._torch.mm(a.left, b.right.T, out=self._buffer(len(a.left), len(b.right)))
        if is_diagonal:
            product.fill_diagonal_(_FAR)
        if len(a.zeros) or len(b.zeros):
            product[a.zeros, : len(b)] = 1.0
            product[: len(a), b.zeros] = 1.0
        ours = self._enclose(self._cut(product, 1).amin(2)[: len(a)], a, b)
        return ours, self._enclose(self._cut(product, 0).amin(1).T[: len(b)], b, a) if both_sides else None

    def cosines(self, tile: CentredTile) -> FloatArray:
        """Of the rows of a tile with all centres, (n, centres); 1, which excludes nothing, where a centre is near 0."""
        lengths = np.sqrt(self._squares)
        has_direction = lengths > _SHORT
        found = (tile.dots + self._grams[tile.cluster]) / np.where(has_direction, lengths, 1.0)
        return np.where(has_direction, found, 1.0)

    def _move(self, tile: CentredTile, other: int) -> CentredTile:
        """The tile with the offsets that it has against another cluster."""
        own = tile.cluster
        apart = self._squares[own] + self._squares[other] - 2 * self._grams[own, other]
        offsets = np.square(tile.norms) / 2 + tile.dots[:, own] - tile.dots[:, other] + apart / 4
        moved = replace(tile, left=tile.left.clone(), right=tile.right.clone(), offsets=offsets)
        return replace(moved, lost_offset=self._set_offsets(moved))

    def _set_offsets(self, tile: CentredTile) -> float:
        """Write the parts of the offsets into both factors; returns the most that they leave out."""
        first, last = slice(tile.width, tile.width + self._n_parts), slice(tile.width + self._n_parts, None)
        parts, left = tile.right[:, first], self._torch.from_numpy(tile.offsets)
        parts[len(tile) :] = 0.0
        parts[len(tile) :, 0] = _FAR
        for place in range(self._n_parts):
            parts[: len(tile), place] = left
            left = left - parts[: len(tile), place]
        tile.left[:, last] = parts
        return float(left.abs().max())

    def _enclose(self, minima: Any, tile: CentredTile, other: CentredTile) -> Maxima:
        """Bound the largest similarities from the smallest half squared distances of rows to sub-blocks."""
        if minima.dtype == self._torch.int16:
            minima = minima.view(self._torch.bfloat16)
        values = np.maximum(minima.double().numpy(), 0.0)  # a negative one only says that it is at most 0
        # |du| |v| + |u| |dv| + |du| |dv| by Cauchy-Schwarz; float32 sums lose a share of all magnitudes, which are
        # |u| |v| + |alpha| + |beta|: a product of what is known of the row and what is known of the sub-block
        share = 2 * (tile.width + 8) * self._unit
        norms, lost, offsets = (_block_maxima(part) for part in (other.norms, other.lost, np.abs(other.offsets)))
        rest = tile.lost_offset + other.lost_offset + 8 * (tile.width + 8) * float(np.finfo(np.float64).eps) + 1e-30
        of_rows = np.stack([tile.lost, tile.norms, np.abs(tile.offsets), np.ones(len(tile))], axis=1)
        of_blocks = np.stack([norms + lost, lost + share * norms, np.full_like(norms, share), share * offsets + rest])
        error = of_rows @ (1.05 * of_blocks) + (2 * self._output_unit) * values
        return Maxima(1.0 - np.maximum(values - error, 0.0), 1.0 - (values + error))


def _block_maxima(values: FloatArray) -> FloatArray:
    """Largest value of each sub-block."""
    maxima: FloatArray = np.maximum.reduceat(values, np.arange(0, len(values), SUB_BLOCK))
    return maxima
