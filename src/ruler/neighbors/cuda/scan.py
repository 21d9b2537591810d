"""The two passes of a search among distinct rows on a torch device, with similarities equal to the CPU's to the bit."""

from dataclasses import dataclass, field
from typing import Any

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows
from ruler.core.progress import show_progress
from ruler.neighbors.tiles import SUB_BLOCK

LARGEST_BLOCK = 1 << 15
_CHUNK_BYTES = 1 << 29
MOST_HELD = 1 << 25
_TENSOR_CORE_LOSS = 8.0  # tensor cores truncate where the processor rounds

Span = tuple[int, int]


def rows_for(width: int) -> int:
    """How many rows of this width make a chunk of 512 MB in float64."""
    return max(SUB_BLOCK, _CHUNK_BYTES // (8 * width))


@dataclass(frozen=True)
class Pairs:
    """Queries and base rows with their exact similarity: k per query, ordered by query, best first."""

    rows: Any
    columns: Any
    values: Any


class BestPairs:
    """The best pairs so far; k empty places per query at first."""

    def __init__(self, torch: Any, queries: Any, base: Any, k: int) -> None:
        self._torch, self._queries, self._base, self._k = torch, queries, base, k
        rows = torch.arange(len(queries), device=base.matrix.device).repeat_interleave(k)
        nobody = torch.full_like(rows, torch.iinfo(torch.int64).max)
        self.pairs = Pairs(rows, nobody, torch.full_like(rows, -torch.inf, dtype=torch.float64))

    def merge(self, rows: Any, columns: Any) -> None:
        """Take in new pairs and keep the k best per query, ties by smallest base row."""
        torch, known = self._torch, self.pairs
        spans = iterate_blocks(len(rows), rows_for(self._base.width) // 4)
        values = [
            similarity_of_unit_rows(self._queries.take(rows[a:b]), self._base.take(columns[a:b])) for a, b in spans
        ]
        rows, columns = torch.cat([known.rows, rows]), torch.cat([known.columns, columns])
        similarity = torch.cat([known.values, *values])
        order = torch.argsort(columns, stable=True)
        for key in (-similarity, rows):  # stable, so the last key counts most
            order = order[torch.argsort(key[order], stable=True)]
        place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows[order], rows[order])
        best = order[place < self._k]
        self.pairs = Pairs(rows[best], columns[best], similarity[best])

    def kth_values(self) -> Any:
        """The lowest of the k similarities of each query, -inf where fewer are known."""
        return self.pairs.values.view(-1, self._k)[:, -1]


@dataclass
class Stored:
    """Unit rows in one precision, and how far a product of two such rows can be from the true one.

    The error is ``error + relative |product|``: rounding of the rows and accumulation, and storing the result.
    """

    queries: Any
    base: Any
    error: float
    relative: float


@dataclass
class DeviceScan:
    """One search among distinct rows: low precision names sub-blocks, float32 rows, float64 decides.

    A sub-block is every n-th row of a block of base rows, not a run of rows: a maximum over the slow axis of a
    product is three times as fast as one over the fast axis.
    """

    torch: Any
    queries: Any
    base: Any
    k: int
    is_self: bool
    dtype: Any
    _held: list[tuple[Any, Any, Any]] = field(default_factory=list)
    _n_held: int = 0

    def __post_init__(self) -> None:
        is_double = self.dtype == self.torch.float64
        self._coarse = self._store(self.dtype)
        self._fine = self._coarse if self.dtype != self.torch.bfloat16 else self._store(self.torch.float32)
        self._bound_type = self.torch.float64 if is_double else self.torch.float32
        self._best = self.torch.full(
            (len(self.queries), self.k), -self.torch.inf, dtype=self._bound_type, device=self.base.matrix.device
        )
        self._block_rows = self._choose_block_rows()
        self._best_pairs = BestPairs(self.torch, self.queries, self.base, self.k)

    def _choose_block_rows(self) -> int:
        """Rows per block, so that products take at most an eighth of the free memory."""
        if self.base.matrix.device.type != "cuda":
            return LARGEST_BLOCK // 2
        free_bytes, _ = self.torch.cuda.mem_get_info(self.base.matrix.device)
        n_rows = LARGEST_BLOCK
        while n_rows > SUB_BLOCK and n_rows * n_rows * self.dtype.itemsize > free_bytes / 8:
            n_rows //= 2
        return n_rows

    def _store(self, dtype: Any) -> Stored:
        base, base_rounding = self._round_rows(self.base, dtype)
        queries, rounding = (base, base_rounding) if self.is_self else self._round_rows(self.queries, dtype)
        accumulator = self.torch.float64 if dtype == self.torch.float64 else self.torch.float32
        accumulation = _TENSOR_CORE_LOSS * (self.base.width + 2) * self.torch.finfo(accumulator).eps
        error = 1.01 * (rounding + base_rounding + rounding * base_rounding + accumulation)
        return Stored(queries, base, error, self.torch.finfo(dtype).eps)

    def _round_rows(self, rows: Any, dtype: Any) -> tuple[Any, float]:
        """All rows in a precision, and the largest norm of what rounding took from a row."""
        stored = self.torch.empty((len(rows), rows.width), dtype=dtype, device=rows.matrix.device)
        rounding = 0.0
        for start, stop in iterate_blocks(len(rows), rows_for(rows.width)):
            exact = rows.block(start, stop)
            stored[start:stop] = exact
            rounding = max(rounding, float((exact - stored[start:stop].double()).square().sum(1).max()) ** 0.5)
        return stored, 1.0001 * rounding

    def run(self) -> Pairs:
        """The k best base rows of every query."""
        self.multiply_all(recheck_at=MOST_HELD)
        return self._recheck()

    def multiply_all(self, recheck_at: int | None = None) -> None:
        """First pass over all block pairs, the upper triangle in a self search."""
        query_spans = iterate_blocks(len(self.queries), self._block_rows)
        base_spans = iterate_blocks(len(self.base), self._block_rows)
        with show_progress("searching neighbours", len(query_spans)) as advance:
            for i, rows in enumerate(query_spans):
                for columns in base_spans[i if self.is_self else 0 :]:
                    self._multiply(rows, columns)
                    if recheck_at is not None and self._n_held > recheck_at:
                        self._recheck()
                advance(1)

    def _multiply(self, rows: Span, columns: Span) -> None:
        product = self._coarse.queries[slice(*rows)] @ self._coarse.base[slice(*columns)].T
        is_diagonal = self.is_self and rows == columns
        if is_diagonal:
            product.fill_diagonal_(-2.0)
        self._add(rows, columns, self._maxima(product, 1))
        if self.is_self and not is_diagonal:
            self._add(columns, rows, self._maxima(product, 0).T)

    def _maxima(self, product: Any, axis: int) -> Any:
        """Maxima over sub-blocks along an axis."""
        remainder = -product.shape[axis] % SUB_BLOCK
        if remainder:
            padding = (0, remainder) if axis == 1 else (0, 0, 0, remainder)
            product = self.torch.nn.functional.pad(product, padding, value=-2.0)
        rows, columns = product.shape
        if axis == 0:
            return product.view(SUB_BLOCK, -1, columns).amax(0)
        return product.view(rows, SUB_BLOCK, -1).amax(1)

    def _add(self, rows: Span, columns: Span, maxima: Any) -> None:
        maxima = maxima.to(self._bound_type)
        error = self._coarse.error + self._coarse.relative * maxima.abs()
        best = self._best[slice(*rows)]
        if self.k == 1:
            self.torch.maximum(best, (maxima - error).amax(1, keepdim=True), out=best)
        else:
            best.copy_(self.torch.cat([best, maxima - error], 1).topk(self.k, 1).values)
        upper = maxima.add_(error)
        row, block = self.torch.nonzero(upper >= best[:, -1:], as_tuple=True)
        self._held.append((row + rows[0], block + columns[0] // SUB_BLOCK, upper[row, block]))
        self._n_held += len(row)

    def take(self) -> tuple[Any, Any]:
        """Take out the queries and sub-blocks that the bounds have not ruled out meanwhile."""
        rows, blocks, upper = (self.torch.cat(part) for part in zip(*self._held, strict=True))
        self._held, self._n_held = [], 0
        keep = upper >= self._best[rows, -1]
        return rows[keep], blocks[keep]

    def _recheck(self) -> Pairs:
        """Second pass: finer products of the candidates, then exact similarities of the best."""
        if self._held:
            rows, blocks = self.take()
            floor = self._best[:, -1].double()
            waiting: list[tuple[Any, Any]] = []
            for chunk in self.torch.argsort(rows).split(max(1, _CHUNK_BYTES // (4 * SUB_BLOCK * self.base.width))):
                waiting.append(self._pairs_near_top(rows[chunk], blocks[chunk], floor))
                if sum(len(part) for part, _ in waiting) > MOST_HELD:
                    self._merge(waiting)
                    waiting = []
            if waiting:
                self._merge(waiting)
        known = self._best_pairs.kth_values().to(self._bound_type) - self._coarse.error  # rounded down for sure
        self.torch.maximum(self._best[:, -1], known, out=self._best[:, -1])
        return self._best_pairs.pairs

    def _pairs_near_top(self, rows: Any, blocks: Any, floor: Any) -> tuple[Any, Any]:
        """Queries and base rows whose finer product does not rule them out; raises ``floor`` where it can."""
        columns = self._columns_of(blocks)
        is_real = columns < len(self.base)
        if self.is_self:
            is_real &= columns != rows[:, None]
        near = self._fine.base[columns.clamp(max=len(self.base) - 1)]  # (candidates, rows of a sub-block, p)
        products = self.torch.bmm(near, self._fine.queries[rows][:, :, None])[:, :, 0].double()
        products = products.where(is_real, -self.torch.inf)
        error = self._fine.error + self._fine.relative
        if self.k == 1:
            floor.scatter_reduce_(0, rows, products.amax(1) - error, "amax")
        is_near = is_real & (products + error >= floor[rows, None])
        return rows[:, None].expand_as(columns)[is_near], columns[is_near]

    def _columns_of(self, blocks: Any) -> Any:
        """Base rows of each sub-block, (n, SUB_BLOCK); past the end where a block is short."""
        per_block = self._block_rows // SUB_BLOCK
        first = blocks // per_block * self._block_rows
        n_rows = (len(self.base) - first).clamp(max=self._block_rows)
        step = (n_rows + SUB_BLOCK - 1) // SUB_BLOCK
        inside = (blocks % per_block)[:, None] + step[:, None] * self.torch.arange(SUB_BLOCK, device=blocks.device)
        return self.torch.where(inside < n_rows[:, None], first[:, None] + inside, len(self.base))

    def _merge(self, waiting: list[tuple[Any, Any]]) -> None:
        self._best_pairs.merge(*(self.torch.cat(part) for part in zip(*waiting, strict=True)))
