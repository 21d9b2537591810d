"""A search among distinct rows on a CUDA device with Triton: tensor cores name pairs, float64 decides."""

import importlib
import warnings
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.determinism import tensor_cores
from ruler.core.progress import show_progress
from ruler.neighbors.cuda.operands import NARROW_WIDTH, store_rows
from ruler.neighbors.cuda.scan import BestPairs, Pairs, rows_for

MOST_NEIGHBORS = 16
WORTH_FUSING = 1e12  # multiply-adds; under it the kernels take longer to load than they save
FEWEST_ROWS = 1 << 13
SAMPLE_ROWS = 1024
_RUN_ROWS = 32  # rows per run of the sample: a multiple of the number of slots
_SEED_BYTES = 1 << 29
MOST_FOUND = 1 << 26
_PAIR_BYTES = 12
_BANDS_PER_DOUBLING = 4
_PAIRS_PER_PROGRAM = 8
_SLOT_BLOCK = 1024
MOST_PROGRAMS = (1 << 31) - 1  # of a grid, by CUDA


@dataclass(frozen=True)
class TileShape:
    """How a kernel cuts its work: rows per span, rows and columns per tile, columns per slice of the width."""

    span: int
    rows: int
    columns: int
    slice: int
    n_warps: int
    n_stages: int

    @property
    def programs(self) -> int:
        """Of a pair of spans: one per tile, or one per row of tiles where a program holds all of its width."""
        n_rows = self.span // self.rows
        return n_rows * (self.span // self.columns) if self.slice else n_rows


# Two programs per multiprocessor hide each other's start and end: on an H200 as fast as any larger tile, or faster.
NARROW = TileShape(span=4096, rows=128, columns=128, slice=0, n_warps=4, n_stages=2)
WIDE = TileShape(span=2048, rows=128, columns=128, slice=64, n_warps=4, n_stages=3)


def can_fuse(torch: Any, matrix: Any) -> bool:
    """Whether the Triton kernels run on this tensor and its device."""
    return matrix.device.type == "cuda" and matrix.stride(1) == 1 and can_launch(torch, matrix.device)


@cache
def can_launch(torch: Any, device: Any) -> bool:
    """Try the smallest kernel: Triton may be missing, old, or without the C compiler it needs."""
    kernels = importlib.import_module("ruler.neighbors.cuda.fused_kernels")
    if kernels.TensorDescriptor is None:
        return False
    row, number = torch.ones((1, 16), device=device), torch.zeros(1, dtype=torch.int64, device=device)
    product = torch.zeros(1, dtype=torch.float64, device=device)
    try:
        kernels.multiply_pairs[(1,)](row, row, number, number, product, 1, 16, 16, 16, PAIRS=8, BLOCK_WIDTH=16)
    except Exception as error:  # whatever stops a compiler: the search goes on without it
        message = f"Triton cannot build its kernels ({error}): the search takes plain torch, several times slower."
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False
    return float(product) == 16.0


def is_worth_fusing(torch: Any, queries: Any, base: Any, k: int) -> bool:
    """Whether the fused pass suits the device, the size and the number of neighbours."""
    work = float(len(queries)) * len(base) * base.width
    if work < WORTH_FUSING or len(base) < FEWEST_ROWS or k > MOST_NEIGHBORS:
        return False
    return can_fuse(torch, base.matrix) and can_fuse(torch, queries.matrix)


def plan_spans(
    n_queries: int, n_base: int, shape: TileShape, *, is_self: bool
) -> tuple[npt.NDArray[np.int32], list[tuple[int, int]]]:
    """Pairs of spans in the order of their distance, so that all queries see as much at any time, cut into bands.

    Bands grow as the bars rise, but no further than a grid of programs can.

    Example:
        >>> spans, bands = plan_spans(5000, 5000, WIDE, is_self=True)
        >>> spans.tolist(), bands
        ([[0, 0], [1, 1], [2, 2], [0, 1], [1, 2], [0, 2]], [(0, 3), (3, 5), (5, 6)])
    """
    n_query_spans, n_base_spans = (-(-n_rows // shape.span) for n_rows in (n_queries, n_base))
    rows, distance = (part.ravel() for part in np.meshgrid(np.arange(n_query_spans), np.arange(n_base_spans)))
    columns = rows + distance if is_self else (rows + distance) % n_base_spans
    is_needed = columns < n_base_spans
    spans = np.stack([rows, columns], 1)[is_needed].astype(np.int32)
    begins = np.searchsorted(distance[is_needed], np.arange(n_base_spans + 1))
    edges = [0]
    while edges[-1] < n_base_spans:
        edges.append(min(n_base_spans, edges[-1] + max(1, edges[-1] // _BANDS_PER_DOUBLING)))
    most = MOST_PROGRAMS // shape.programs
    bands = ((int(begins[a]), int(begins[b])) for a, b in pairwise(edges))
    return spans, [
        (start + first, start + last) for start, stop in bands for first, last in iterate_blocks(stop - start, most)
    ]


class FusedScan:
    """One search: bars rise from band to band, the pairs that reach them are kept and looked at in float64.

    The k-th best similarity of a query is at least the k-th largest of its slots. A slot holds the best lower bound
    among the base rows whose number leaves the same remainder, so that no base row counts twice.
    """

    def __init__(self, torch: Any, queries: Any, base: Any, k: int, is_self: bool, n_parts: int) -> None:
        self.torch, self.queries, self.base, self.k, self.is_self = torch, queries, base, k, is_self
        self._kernels = importlib.import_module("ruler.neighbors.cuda.fused_kernels")
        self._device = base.matrix.device
        self._stored = store_rows(torch, queries, base, is_self, n_parts)
        self._shape = NARROW if self._stored.width <= NARROW_WIDTH else WIDE
        n_slots = 1 if k == 1 else 1 << (2 * k - 1).bit_length()
        self._slots = torch.full((len(queries), n_slots), -torch.inf, device=self._device)
        self._known = torch.full((len(queries),), -torch.inf, device=self._device)
        self._all_bars = torch.full((len(self._stored.queries),), torch.inf, device=self._device)
        self._best = BestPairs(torch, queries, base, k)

    def run(self) -> Pairs:
        """The k best base rows of every query."""
        self.find_pairs()
        return self.recheck()

    def find_pairs(self) -> None:
        """First pass: all products, of which the pairs that may be among the best are kept."""
        self._make_room()
        self._seed()
        spans, bands = plan_spans(len(self.queries), len(self.base), self._shape, is_self=self.is_self)
        spans = self.torch.from_numpy(spans).to(self._device)
        with show_progress("searching neighbours", len(spans)) as advance:
            for start, stop in bands:
                self._scan(spans, start, stop)
                advance(stop - start)

    def _make_room(self) -> None:
        torch, capacity = self.torch, MOST_FOUND
        if self._device.type == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info(self._device)
            capacity = min(capacity, max(2 * self._shape.span**2, free_bytes // (8 * _PAIR_BYTES)))
        self._capacity = capacity
        self._found = torch.empty(capacity, dtype=torch.int64, device=self._device)
        self._values = torch.empty(capacity, dtype=torch.float32, device=self._device)
        self._counter = torch.zeros(1, dtype=torch.int32, device=self._device)
        self._n_found = 0

    def _seed(self) -> None:
        """Lower bounds from a sample of the base: without them the first band would keep every pair."""
        torch, n_slots = self.torch, self._slots.shape[1]
        n_runs = len(self.base) // _RUN_ROWS
        first = np.unique(np.linspace(0, n_runs - 1, SAMPLE_ROWS // _RUN_ROWS).astype(np.int64)) * _RUN_ROWS
        sample = torch.from_numpy((first[:, None] + np.arange(_RUN_ROWS)).ravel()).to(self._device)
        near = self._stored.base[sample].float()
        for start, stop in iterate_blocks(len(self.queries), _SEED_BYTES // (4 * (len(sample) + near.shape[1]))):
            with tensor_cores(torch):  # TF32 holds float16 to the last bit
                product = self._stored.queries[start:stop].float() @ near.T
            if self.is_self:
                own = torch.nonzero((sample >= start) & (sample < stop))[:, 0]
                product[sample[own] - start, own] = -torch.inf
            self._slots[start:stop] = product.view(stop - start, -1, n_slots).amax(1) - self._stored.error

    def _bars(self) -> Any:
        """What a product must reach to be kept, infinite past the last query."""
        kth = self._slots[:, 0] if self.k == 1 else self._slots.topk(self.k, 1).values[:, -1]
        self.torch.sub(
            self.torch.maximum(kth, self._known), self._stored.error, out=self._all_bars[: len(self.queries)]
        )
        return self._all_bars

    def _scan(self, spans: Any, start: int, stop: int) -> None:
        """Scan a band; where the pairs found outgrow the room, recheck them and scan its halves."""
        self.launch(spans[start:stop])
        n_before, n_now = self._n_found, int(self._counter)
        self._raise_slots(n_before, min(n_now, self._capacity))
        if n_now < self._capacity:  # a counter at its end says that kernels stopped writing
            self._n_found = n_now
            if n_now > self._capacity // 2:
                self.recheck()
            return
        self.recheck()
        middle = (start + stop) // 2 if n_before == 0 else stop
        for part in ((start, middle), (middle, stop)):
            if part[0] < part[1]:
                self._scan(spans, *part)

    def launch(self, spans: Any) -> None:
        """Start the kernel on some pairs of spans."""
        shape, stored, bars = self._shape, self._stored, self._bars()
        self._counter.fill_(self._n_found)
        room = (bars, bars, spans, self._counter, self._found, self._values)
        cut = {"SPAN": shape.span, "BLOCK_ROWS": shape.rows, "BLOCK_COLUMNS": shape.columns, "IS_SELF": self.is_self}
        options = {"N_WARPS": shape.n_warps, "num_warps": shape.n_warps, "num_stages": shape.n_stages}
        n_rows = len(self.queries), len(self.base)
        grid = (len(spans) * shape.programs,)
        if shape is NARROW:
            self._kernels.scan_narrow[grid](
                stored.queries, stored.base, *room, *n_rows, self._capacity, WIDTH=stored.width, **cut, **options
            )
            return
        describe = self._kernels.TensorDescriptor.from_tensor
        self._kernels.scan_wide[grid](
            describe(stored.queries, [shape.rows, shape.slice]),
            describe(stored.base, [shape.columns, shape.slice]),
            *(*room, *n_rows, self._capacity, stored.width),
            BLOCK_WIDTH=shape.slice,
            **cut,
            **options,
        )

    def _raise_slots(self, start: int, stop: int) -> None:
        if start < stop:
            self._kernels.raise_slots[(-(-(stop - start) // _SLOT_BLOCK),)](
                *(self._found, self._values, self._slots, start, stop, self._stored.error),
                N_SLOTS=self._slots.shape[1],
                IS_SELF=self.is_self,
                BLOCK=_SLOT_BLOCK,
            )

    def recheck(self) -> Pairs:
        """Second pass: float64 products of the pairs found, then exact similarities of the best."""
        found, values = self._found[: self._n_found], self._values[: self._n_found]
        rows, columns = found >> 32, found & 0xFFFFFFFF
        self._n_found = 0
        bars = self._bars()
        keep = values >= bars[rows]
        sides = [(rows[keep], columns[keep])]
        if self.is_self:
            keep = values >= bars[columns]
            sides.append((columns[keep], rows[keep]))
        rows, columns = (self.torch.cat(part) for part in zip(*sides, strict=True))
        products = multiply_pairs(self.torch, self.queries, self.base, rows, columns)
        near = self._near_top(rows, products)
        self._best.merge(rows[near], columns[near])
        known = (self._best.kth_values() - self._stored.error).float()  # rounded down for sure
        self._known = self.torch.maximum(self._known, known)
        return self._best.pairs

    def _near_top(self, rows: Any, products: Any) -> Any:
        """Which pairs no k others of their query surpass for sure."""
        torch = self.torch
        slack = 8 * (self.base.width + 8) * torch.finfo(torch.float64).eps
        kth = torch.full((len(self.queries),), -torch.inf, dtype=torch.float64, device=self._device)
        if self.k == 1:
            kth.scatter_reduce_(0, rows, products, "amax")
        else:
            order = torch.argsort(products, descending=True)
            order = order[torch.argsort(rows[order], stable=True)]
            sorted_rows = rows[order]
            place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(sorted_rows, sorted_rows)
            is_kth = place == self.k - 1
            kth[sorted_rows[is_kth]] = products[order[is_kth]]
        return products >= kth[rows] - slack


def multiply_pairs(torch: Any, queries: Any, base: Any, rows: Any, columns: Any, *, has_kernel: bool = True) -> Any:
    """Float64 products of pairs of unit rows."""
    products = torch.empty(len(rows), dtype=torch.float64, device=rows.device)
    if not has_kernel:
        for start, stop in iterate_blocks(len(rows), rows_for(base.width) // 2):
            products[start:stop] = (queries.take(rows[start:stop]) * base.take(columns[start:stop])).sum(1)
        return products
    query, near = queries.numbers(rows), base.numbers(columns)
    a, b = queries.matrix, base.matrix
    if len(rows):
        kernels = importlib.import_module("ruler.neighbors.cuda.fused_kernels")
        kernels.multiply_pairs[(-(-len(rows) // _PAIRS_PER_PROGRAM),)](
            *(a, b, query, near, products, len(rows), base.width, a.stride(0), b.stride(0)),
            PAIRS=_PAIRS_PER_PROGRAM,
            BLOCK_WIDTH=min(256, 1 << max(4, (base.width - 1).bit_length())),
        )
    norms = queries.device_norms[query] * base.device_norms[near]
    return products / norms.where(norms > 0, 1.0)
