"""Nearest neighbours on an accelerator: the same two passes in torch, without leaving the device.

The arithmetic of the final similarities is that of the CPU engines, so the answer is the same to the last bit.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks, norm_rows, similarity_of_unit_rows, unit_rows
from ruler.core.checks import as_matrix, is_on_cuda, measure_norms
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import show_progress
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.engines import SUB_BLOCK
from ruler.neighbors.recheck import BestRows
from ruler.neighbors.rows import hash_multipliers
from ruler.neighbors.search import check_request
from ruler.neighbors.twins import Collapsed, collapse, expand

_BLOCK_ROWS = 16384
_CHUNK_BYTES = 1 << 29
_MOST_HELD = 1 << 25
_PILOT_ROWS = 1024
_FEW_CANDIDATES = 16.0  # sub-blocks a query beyond k that cost less to recheck than a finer pass


def search_on_accelerator(
    queries: Any, base: Any, *, names: tuple[str, str], k: int, exclude_self: bool, device: str
) -> Neighbors:
    """`find_neighbors` with all work on a torch device.

    Raises:
        InputError: As `find_neighbors`, or a device that is not there.
    """
    torch = load_optional("torch", "searching on an accelerator")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device must be one that torch can use; got {device!r} without CUDA. Leave device out.")
    is_same = queries is base
    base_rows = _load(torch, base, names[1], device)
    query_rows = base_rows if is_same else _load(torch, queries, names[0], device)
    check_request(tuple(query_rows.matrix.shape), tuple(base_rows.matrix.shape), names, k, exclude_self)
    collapsed_base = collapse(base_rows)
    collapsed_queries = collapsed_base if is_same else collapse(query_rows)
    best = _search_distinct(torch, collapsed_queries, collapsed_base, k + (exclude_self and not is_same))
    return expand(best, collapsed_queries, collapsed_base, k=k, exclude_self=exclude_self)


@dataclass(frozen=True)
class DeviceRows:
    """Unit rows of a tensor, made on the device when asked for; the counterpart of `UnitRows`."""

    torch: Any
    matrix: Any
    norms: FloatArray
    device_norms: Any
    subset: IndexArray | None = None

    def __len__(self) -> int:
        return len(self.norms) if self.subset is None else len(self.subset)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    def block(self, start: int, stop: int) -> Any:
        """Consecutive unit rows, (stop - start, p) float64 on the device."""
        if self.subset is not None:
            return self.take(self.torch.arange(start, stop, device=self.matrix.device))
        return unit_rows(self.matrix[start:stop].double(), self.device_norms[start:stop])

    def take(self, index: Any) -> Any:
        """Unit rows by number, on the device."""
        index = self.torch.as_tensor(index, device=self.matrix.device)
        if self.subset is not None:
            index = self.torch.as_tensor(self.subset, device=self.matrix.device)[index]
        return unit_rows(self.matrix[index].double(), self.device_norms[index])

    def hash(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """A number for each row that is equal for identical rows."""
        bits = (self.block(start, stop) + 0.0).view(self.torch.int64)
        factors = self.torch.from_numpy(hash_multipliers(self.width).view(np.int64)).to(bits.device)
        bits = (bits ^ (bits >> 29)) * factors
        hashes: npt.NDArray[np.int64] = (bits ^ (bits >> 32)).sum(1).cpu().numpy()
        return hashes

    def differ(self, a: IndexArray, b: IndexArray) -> npt.NDArray[np.bool_]:
        """Whether rows a[i] and b[i] differ anywhere."""
        is_different: npt.NDArray[np.bool_] = (self.take(a) != self.take(b)).any(1).cpu().numpy()
        return is_different


def _load(torch: Any, value: Any, name: str, device: str) -> DeviceRows:
    if is_on_cuda(value):
        tensor = value.detach() if hasattr(value, "detach") else torch.from_dlpack(value)
        if tensor.ndim != 2 or tensor.numel() == 0:
            as_matrix(value, name)  # says what is wrong
    else:
        tensor = torch.from_numpy(np.ascontiguousarray(as_matrix(value, name))).to(device)
    norms = torch.cat([norm_rows(block.double()) for block in tensor.split(_rows_for(tensor.shape[1]))])
    host_norms: FloatArray = norms.cpu().numpy()
    with np.errstate(over="ignore"):
        is_sound = bool(np.isfinite(host_norms).all() and (host_norms**2 >= np.finfo(np.float64).tiny).all())
    if not is_sound:
        measure_norms(as_matrix(value, name), name)  # raises, unless the small ones are all-zero rows
    return DeviceRows(torch, tensor, host_norms, norms)


def _rows_for(width: int) -> int:
    return max(SUB_BLOCK, _CHUNK_BYTES // (8 * width))


def _search_distinct(torch: Any, queries: Collapsed, base: Collapsed, k: int) -> BestRows:
    """The k best base groups of each query group, the group itself left out when a set is searched in itself."""
    is_self = queries is base
    k = min(k, len(base.rows) - is_self)
    best = BestRows(len(queries.rows), k)
    if k == 0:
        return best
    scan = _Scan(torch, queries.rows, base.rows, k, is_self, _choose_dtype(torch, queries.rows, base.rows, k))
    scan.run()
    pairs = scan.pairs
    best.similarity[:] = pairs.values.view(-1, k).cpu().numpy()
    best.index[:] = pairs.columns.view(-1, k).cpu().numpy()
    return best


def _choose_dtype(torch: Any, queries: DeviceRows, base: DeviceRows, k: int) -> Any:
    """The coarsest storage that leaves few candidates for a sample of queries."""
    sample = np.unique(np.linspace(0, len(queries) - 1, _PILOT_ROWS).astype(np.int64))
    pilot_base = DeviceRows(torch, base.matrix, base.norms, base.device_norms, _every(base, 8 * _BLOCK_ROWS))
    pilot_queries = DeviceRows(torch, queries.matrix, queries.norms, queries.device_norms, _pick(queries, sample))
    pilot_k = min(k + 1, len(pilot_base))  # one more: a query may meet itself
    for dtype in (torch.bfloat16, torch.float32):
        scan = _Scan(torch, pilot_queries, pilot_base, pilot_k, False, dtype)
        scan.multiply_all()
        if len(scan.take()[0]) / len(sample) <= pilot_k + _FEW_CANDIDATES:
            return dtype
    return torch.float64


def _pick(rows: DeviceRows, index: IndexArray) -> IndexArray:
    return index if rows.subset is None else rows.subset[index]


def _every(rows: DeviceRows, most: int) -> IndexArray:
    """Runs of sub-blocks, evenly spaced, ``most`` rows in all."""
    n_blocks = -(-len(rows) // SUB_BLOCK)
    chosen = np.unique(np.linspace(0, n_blocks - 1, min(n_blocks, most // SUB_BLOCK)).astype(np.int64))
    index = (chosen[:, None] * SUB_BLOCK + np.arange(SUB_BLOCK)).ravel()
    return _pick(rows, index[index < len(rows)])


@dataclass(frozen=True)
class _Pairs:
    """Queries, base rows and their exact similarity; at most k a query once reduced."""

    rows: Any
    columns: Any
    values: Any


@dataclass
class _Scan:
    """One search among distinct rows on the device."""

    torch: Any
    queries: DeviceRows
    base: DeviceRows
    k: int
    is_self: bool
    dtype: Any
    pairs: Any = None
    _held: list[tuple[Any, Any, Any]] = field(default_factory=list)
    _n_held: int = 0

    def __post_init__(self) -> None:
        device = self.base.matrix.device
        self._best = self.torch.full(
            (len(self.queries), self.k), -self.torch.inf, dtype=self.torch.float64, device=device
        )
        self._base_blocks, base_rounding = self._store(self.base)
        self._query_blocks, rounding = (self._base_blocks, base_rounding) if self.is_self else self._store(self.queries)
        accumulator = self.torch.float64 if self.dtype == self.torch.float64 else self.torch.float32
        accumulation = 8 * (self.base.width + 2) * self.torch.finfo(accumulator).eps  # tensor cores truncate
        output = self.torch.finfo(self.dtype).eps / 2
        self._error = 1.01 * (rounding + base_rounding + rounding * base_rounding + accumulation + output)

    def _store(self, rows: DeviceRows) -> tuple[Any, float]:
        """All rows in low precision, and the largest norm of what rounding took from a row."""
        stored = self.torch.empty((len(rows), rows.width), dtype=self.dtype, device=rows.matrix.device)
        rounding = 0.0
        for start, stop in iterate_blocks(len(rows), _rows_for(rows.width)):
            exact = rows.block(start, stop)
            stored[start:stop] = exact
            rounding = max(rounding, float((exact - stored[start:stop].double()).square().sum(1).max()) ** 0.5)
        return stored, 1.0001 * rounding

    def run(self) -> None:
        """Find the k best base rows of every query; they are left in ``pairs``, ordered by query."""
        self.multiply_all(recheck_at=_MOST_HELD)
        self._recheck()

    def multiply_all(self, recheck_at: int | None = None) -> None:
        """First pass over all block pairs, the upper triangle in a self search."""
        query_spans = iterate_blocks(len(self.queries), _BLOCK_ROWS)
        base_spans = iterate_blocks(len(self.base), _BLOCK_ROWS)
        with show_progress("searching neighbours", len(query_spans)) as advance:
            for i, rows in enumerate(query_spans):
                for columns in base_spans[i if self.is_self else 0 :]:
                    self._multiply(rows, columns)
                    if recheck_at is not None and self._n_held > recheck_at:
                        self._recheck()
                advance(1)

    def _multiply(self, rows: tuple[int, int], columns: tuple[int, int]) -> None:
        product = self._query_blocks[slice(*rows)] @ self._base_blocks[slice(*columns)].T
        is_diagonal = self.is_self and rows == columns
        if is_diagonal:
            product.fill_diagonal_(-2.0)
        self._add(rows, columns, self._maxima(product, 1))
        if self.is_self and not is_diagonal:
            self._add(columns, rows, self._maxima(product, 0).T)

    def _maxima(self, product: Any, axis: int) -> Any:
        remainder = -product.shape[axis] % SUB_BLOCK
        if remainder:
            padding = (0, remainder) if axis == 1 else (0, 0, 0, remainder)
            product = self.torch.nn.functional.pad(product, padding, value=-2.0)
        rows, columns = product.shape
        if axis == 0:
            return product.view(-1, SUB_BLOCK, columns).amax(1)
        return product.view(rows, -1, SUB_BLOCK).amax(2)

    def _add(self, rows: tuple[int, int], columns: tuple[int, int], maxima: Any) -> None:
        maxima = maxima.double()
        best = self._best[slice(*rows)]
        if self.k == 1:
            self.torch.maximum(best, maxima.amax(1, keepdim=True) - self._error, out=best)
        else:
            best.copy_(self.torch.cat([best, maxima - self._error], 1).topk(self.k, 1).values)
        row, block = self.torch.nonzero(maxima + self._error >= best[:, -1:], as_tuple=True)
        self._held.append((row + rows[0], block + columns[0] // SUB_BLOCK, maxima[row, block] + self._error))
        self._n_held += len(row)

    def take(self) -> tuple[Any, Any]:
        """Take out the queries and sub-blocks that the bounds have not ruled out meanwhile."""
        rows, blocks, upper = (self.torch.cat(part) for part in zip(*self._held, strict=True))
        self._held, self._n_held = [], 0
        keep = upper >= self._best[rows, -1]
        return rows[keep], blocks[keep]

    def _recheck(self) -> None:
        """Second pass: float64 products of the candidates, then exact similarities of the best."""
        if not self._held:
            return
        rows, blocks = self.take()
        waiting: list[tuple[Any, Any]] = []
        for chunk in self.torch.argsort(rows).split(max(1, _CHUNK_BYTES // (8 * SUB_BLOCK * self.base.width))):
            waiting.append(self._pairs_near_top(rows[chunk], blocks[chunk]))
            if sum(len(part) for part, _ in waiting) > _MOST_HELD:
                self._merge(waiting)
                waiting = []
        if waiting:
            self._merge(waiting)
        self.torch.maximum(self._best[:, -1], self.pairs.values.view(-1, self.k)[:, -1], out=self._best[:, -1])

    def _pairs_near_top(self, rows: Any, blocks: Any) -> tuple[Any, Any]:
        """Queries and base rows whose float64 product does not rule them out."""
        columns = blocks[:, None] * SUB_BLOCK + self.torch.arange(SUB_BLOCK, device=rows.device)
        is_real = columns < len(self.base)
        if self.is_self:
            is_real &= columns != rows[:, None]
        near = self.base.take(columns.clamp(max=len(self.base) - 1).view(-1)).view(*columns.shape, -1)
        products = self.torch.bmm(near, self.queries.take(rows)[:, :, None])[:, :, 0].where(is_real, -self.torch.inf)
        slack = 4 * (self.base.width + 4) * self.torch.finfo(self.torch.float64).eps
        if self.k == 1:
            self._best[:, 0].scatter_reduce_(0, rows, products.amax(1) - slack, "amax")
        is_near = is_real & (products >= self._best[rows, -1:] - slack)
        return rows[:, None].expand_as(columns)[is_near], columns[is_near]

    def _merge(self, waiting: list[tuple[Any, Any]]) -> None:
        """Keep the k best of what is known and the new pairs, ties by smallest base row."""
        torch = self.torch
        rows, columns = (torch.cat(part) for part in zip(*waiting, strict=True))
        spans = iterate_blocks(len(rows), _rows_for(self.base.width) // 4)
        values = torch.cat(
            [similarity_of_unit_rows(self.queries.take(rows[a:b]), self.base.take(columns[a:b])) for a, b in spans]
        )
        known = self.pairs or self._no_pairs()
        rows, columns = torch.cat([known.rows, rows]), torch.cat([known.columns, columns])
        values = torch.cat([known.values, values])
        order = torch.argsort(columns, stable=True)
        for key in (-values, rows):  # stable, so the last key counts most
            order = order[torch.argsort(key[order], stable=True)]
        place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows[order], rows[order])
        best = order[place < self.k]
        self.pairs = _Pairs(rows[best], columns[best], values[best])

    def _no_pairs(self) -> _Pairs:
        """k empty places a query."""
        rows = self.torch.arange(len(self.queries), device=self._best.device).repeat_interleave(self.k)
        nobody = self.torch.full_like(rows, self.torch.iinfo(self.torch.int64).max)
        return _Pairs(rows, nobody, self.torch.full_like(rows, -self.torch.inf, dtype=self.torch.float64))
