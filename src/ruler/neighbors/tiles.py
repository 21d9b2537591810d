"""Tiles of unit rows on a CPU: how they are stored and multiplied in low precision, and how wrong that can be.

An arithmetic turns float64 unit rows into a `Tile`, and two tiles into the maximum product of every row with every
sub-block of columns, and of every column with every sub-block of rows. A maximum without its index runs at the
speed of memory; with it, 18 to 30 times slower.
"""

import threading
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ruler.core.types import FloatArray

SUB_BLOCK = 128
"""Rows per sub-block: the unit in which the first pass names where the best rows may be."""


@dataclass(frozen=True)
class Tile:
    """Unit rows as an arithmetic stores them, with the largest norm of what rounding took from a row."""

    values: Any
    rounding: float

    @property
    def nbytes(self) -> int:
        """Memory that the tile takes."""
        return int(self.values.nbytes)

    @classmethod
    def measure(cls, values: Any, lost: FloatArray) -> "Tile":
        """A tile from its values and what rounding took from each row."""
        return cls(values, float(np.sqrt(np.square(lost).sum(axis=1).max(initial=0.0))))


@dataclass(frozen=True)
class Maxima:
    """Largest products by sub-block; ``upper`` and ``lower`` enclose the true maximum of unit rows."""

    upper: FloatArray
    lower: FloatArray


class Arithmetic(Protocol):
    """What both passes of a search on a CPU ask for."""

    name: str
    has_own_threads: bool

    def make_tile(self, rows: FloatArray, cluster: int = 0) -> Tile:
        """Round float64 unit rows (n, p)."""
        ...

    def multiply(self, a: Tile, b: Tile, *, is_diagonal: bool, both_sides: bool) -> tuple[Maxima, Maxima | None]:
        """Maxima of a's rows over b's sub-blocks, (n_a, blocks_b), and if asked of b's rows over a's."""
        ...

    def products(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """All products of the rows of a and b in float64, (n_a, n_b)."""
        ...


def _bound_error(a: Tile, b: Tile, width: int, unit: float) -> float:
    """How far a product of two rounded unit rows can be from the true one, before it is stored.

    Rounding the rows costs |da| |b| + |a| |db| + |da| |db| by Cauchy-Schwarz; accumulating p products in any order
    costs at most p u (1 + p u) of the sum of magnitudes, which is at most 1.
    """
    rows = a.rounding + b.rounding + a.rounding * b.rounding
    return 1.01 * (rows + 2 * (width + 2) * unit) + 1e-30


def _enclose(maxima: FloatArray, error: float, output_unit: float) -> Maxima:
    """Bound the true maxima: a stored product may be off by ``error`` and by one rounding of itself."""
    reach = error + 2 * output_unit * np.abs(maxima)
    return Maxima(maxima + reach, maxima - reach)


class NumpyArithmetic:
    """Plain NumPy in float32 or float64; BLAS brings its own threads."""

    has_own_threads = True

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        self.name = f"numpy {np.dtype(dtype).name}"
        self._dtype = dtype
        self._unit = float(np.finfo(dtype).eps) / 2

    def make_tile(self, rows: FloatArray, cluster: int = 0) -> Tile:
        """Round float64 unit rows (n, p)."""
        values = rows.astype(self._dtype)
        return Tile.measure(values, rows - values.astype(np.float64))

    def multiply(self, a: Tile, b: Tile, *, is_diagonal: bool, both_sides: bool) -> tuple[Maxima, Maxima | None]:
        """Maxima of a's rows over b's sub-blocks, and if asked of b's rows over a's."""
        product = a.values @ b.values.T
        if is_diagonal:
            np.fill_diagonal(product, -2.0)
        error = _bound_error(a, b, a.values.shape[1], self._unit)
        ours = _enclose(_block_maxima(product, axis=1).astype(np.float64), error, self._unit)
        if not both_sides:
            return ours, None
        return ours, _enclose(_block_maxima(product, axis=0).T.astype(np.float64), error, self._unit)

    def products(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """All products of the rows of a and b in float64, (n_a, n_b)."""
        return a @ b.T


def _block_maxima(product: npt.NDArray[Any], axis: int) -> Any:
    starts = np.arange(0, product.shape[axis], SUB_BLOCK)
    if product.shape[axis] % SUB_BLOCK:
        return np.maximum.reduceat(product, starts, axis=axis)
    rows, columns = product.shape
    if axis == 0:
        return product.reshape(-1, SUB_BLOCK, columns).max(axis=1)
    return product.reshape(rows, -1, SUB_BLOCK).max(axis=2)


class TorchTiles:
    """What the arithmetics in torch on a CPU share; one thread per call, so that many can run side by side."""

    has_own_threads = False

    def __init__(self, torch: Any, dtype: str) -> None:
        self._torch, self._dtype = torch, getattr(torch, dtype)
        self._output_unit = torch.finfo(self._dtype).eps / 2
        self._buffers: dict[int, Any] = {}

    def products(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """All products of the rows of a and b in float64, (n_a, n_b)."""
        product: FloatArray = self._torch.mm(self._torch.from_numpy(a), self._torch.from_numpy(b).T).numpy()
        return product

    def _buffer(self, n_rows: int, n_columns: int) -> Any:
        """Room for a product in this thread, used again for the next one."""
        key, n_elements = threading.get_ident(), n_rows * n_columns
        if key not in self._buffers or self._buffers[key].numel() < n_elements:
            self._buffers[key] = self._torch.empty(n_elements, dtype=self._dtype)
        return self._buffers[key][:n_elements].view(n_rows, n_columns)

    def _cut(self, product: Any, axis: int) -> Any:
        """A product of whole sub-blocks with these on an axis of their own, the one after ``axis``."""
        if product.dtype == self._torch.bfloat16:
            # As 16-bit integers non-negative floats keep their order, and looking for the largest runs at full speed.
            product = product.view(self._torch.int16)
        rows, columns = product.shape
        return product.view(-1, SUB_BLOCK, columns) if axis == 0 else product.view(rows, -1, SUB_BLOCK)


class TorchArithmetic(TorchTiles):
    """torch on CPU in bfloat16, float32 or float64."""

    def __init__(self, torch: Any, dtype: str) -> None:
        super().__init__(torch, dtype)
        self.name = f"torch {dtype}"
        self._unit = torch.finfo(torch.float32 if dtype == "bfloat16" else self._dtype).eps / 2  # of sums

    def make_tile(self, rows: FloatArray, cluster: int = 0) -> Tile:
        """Round float64 unit rows (n, p)."""
        exact = self._torch.from_numpy(rows)
        values = exact.to(self._dtype)
        return Tile.measure(values, (exact - values).numpy())

    def multiply(self, a: Tile, b: Tile, *, is_diagonal: bool, both_sides: bool) -> tuple[Maxima, Maxima | None]:
        """Maxima of a's rows over b's sub-blocks, and if asked of b's rows over a's."""
        product = self._torch.mm(a.values, b.values.T, out=self._buffer(len(a.values), len(b.values)))
        if is_diagonal:
            product.fill_diagonal_(-2.0)
        error = _bound_error(a, b, a.values.shape[1], self._unit)
        ours = self._enclose(self._maxima(product, 1), error)
        return ours, self._enclose(self._maxima(product, 0).T, error) if both_sides else None

    def _maxima(self, product: Any, axis: int) -> Any:
        remainder = -product.shape[axis] % SUB_BLOCK
        if remainder:
            padding = (0, remainder) if axis == 1 else (0, 0, 0, remainder)
            product = self._torch.nn.functional.pad(product, padding, value=-2.0)
        return self._cut(product, axis).amax(axis + 1)

    def _enclose(self, maxima: Any, error: float) -> Maxima:
        if maxima.dtype != self._torch.int16:
            return _enclose(maxima.double().numpy(), error, self._output_unit)
        values = maxima.view(self._torch.bfloat16).double().numpy()
        is_known = values >= 0  # a negative integer only says that no product was positive
        bounds = _enclose(np.where(is_known, values, 0.0), error, self._output_unit)
        return Maxima(bounds.upper, np.where(is_known, bounds.lower, -2.0))
