"""The engine for an NVIDIA GPU: the same two passes in torch, without leaving the device.

The arithmetic of the final similarities is that of the CPU engines, so the answer is the same to the last bit.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks, norm_rows, unit_rows
from ruler.core.checks import as_matrix, is_on_cuda, measure_norms
from ruler.core.determinism import full_precision
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.cuda.centred_scan import CentredScan
from ruler.neighbors.cuda.clusters import choose_centres
from ruler.neighbors.cuda.fused_pass import FusedScan, is_worth_fusing
from ruler.neighbors.cuda.operands import try_sample
from ruler.neighbors.cuda.scan import DeviceScan, rows_for
from ruler.neighbors.engines import Request
from ruler.neighbors.rows import DistinctRows, Groups, hash_multipliers, list_neighbors
from ruler.neighbors.tiles import SUB_BLOCK

_PILOT_QUERIES = 1024
_PILOT_ROWS = 1 << 17
_FEW_CANDIDATES = 16.0  # sub-blocks per query beyond k that cost less to recheck than a finer pass


@dataclass(frozen=True)
class CudaEngine:
    """Exact search on a torch device: where the data is, or the one that is named.

    Args:
        dtype: "bfloat16", "float32" or "float64" for a first pass in plain torch; None lets a pilot on the data choose
            among these and the kernels. The answer does not depend on it.
    """

    dtype: str | None = None

    def is_usable_for(self, request: Request) -> bool:
        """Whether a CUDA device is named or holds the data."""
        return request.wants_cuda

    def search(self, request: Request) -> Neighbors:
        """The k best base rows of each query.

        Raises:
            InputError: As `find_neighbors`, or a device that is not there.
        """
        torch = load_optional("torch", "searching on an accelerator")
        device = request.device or "cuda"
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(f"device must be one that torch can use; got {device!r} without CUDA. Leave device out.")
        base = load_rows(torch, request.base, request.names[1], device)
        queries = base if request.is_self else load_rows(torch, request.queries, request.names[0], device)
        request.check_shapes(tuple(queries.matrix.shape), tuple(base.matrix.shape))
        device = base.matrix.device
        # Triton launches on the thread's current device, wherever its tensors are
        current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with current, full_precision(torch):
            base_set = DistinctRows.choose(base, _group_identical(base))
            query_set = base_set
            if not request.is_self:
                query_set = DistinctRows.choose(queries, _group_identical(queries))
            wanted = request.k + (request.exclude_self and not request.is_self)
            best = _search_distinct(torch, query_set.rows, base_set.rows, wanted, self.dtype)
        return list_neighbors(best, query_set, base_set, k=request.k, exclude_self=request.exclude_self)


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
        index = self.numbers(self.torch.as_tensor(index, device=self.matrix.device))
        return unit_rows(self.matrix[index].double(), self.device_norms[index])

    def pick(self, index: IndexArray) -> "DeviceRows":
        """Some of these rows, in this order."""
        return replace(self, subset=index if self.subset is None else self.subset[index])

    def numbers(self, index: Any) -> Any:
        """Rows of the matrix behind rows of this set."""
        return index if self._device_subset is None else self._device_subset[index]

    @cached_property
    def _device_subset(self) -> Any:
        return None if self.subset is None else self.torch.as_tensor(self.subset, device=self.matrix.device)

    def hash(self, start: int, stop: int) -> Any:
        """A number for each row that is equal for identical rows, on the device."""
        bits = (self.block(start, stop) + 0.0).view(self.torch.int64)
        factors = self.torch.from_numpy(hash_multipliers(self.width).view(np.int64)).to(bits.device)
        bits = (bits ^ (bits >> 29)) * factors
        return (bits ^ (bits >> 32)).sum(1)


def load_rows(torch: Any, value: Any, name: str, device: str) -> DeviceRows:
    """Rows of a matrix on the device, checked like any input."""
    if is_on_cuda(value):
        tensor = value.detach() if hasattr(value, "detach") else torch.from_dlpack(value)
        if tensor.ndim != 2 or tensor.numel() == 0:
            as_matrix(value, name)  # says what is wrong
    else:
        tensor = _copy_rows(torch, np.ascontiguousarray(as_matrix(value, name)), device)
    norms = torch.cat([norm_rows(block.double()) for block in tensor.split(rows_for(tensor.shape[1]))])
    host_norms: FloatArray = norms.cpu().numpy()
    if not bool((norms.isfinite() & (norms.square() >= torch.finfo(torch.float64).tiny)).all()):
        measure_norms(as_matrix(value, name), name)  # raises, unless the small ones are all-zero rows
    return DeviceRows(torch, tensor, host_norms, norms)


def _copy_rows(torch: Any, rows: npt.NDArray[Any], device: str) -> Any:
    """Rows as a tensor on the device; those of a file that is open for reading alone block by block."""
    if rows.flags.writeable:
        return torch.from_numpy(rows).to(device)
    tensor = torch.empty(rows.shape, dtype=torch.from_numpy(rows[:1].copy()).dtype, device=device)
    for start, stop in iterate_blocks(len(rows), rows_for(rows.shape[1])):
        tensor[start:stop] = torch.from_numpy(rows[start:stop].copy())  # torch warns of arrays that are not writeable
    return tensor


def _group_identical(rows: DeviceRows) -> Groups | None:
    """`group_identical` without leaving the device: None when all rows differ, the common case."""
    torch = rows.torch
    spans = iterate_blocks(len(rows), rows_for(rows.width))
    hashes, order = torch.cat([rows.hash(*span) for span in spans]).sort(stable=True)  # equal ones stay in row order
    starts_run = torch.ones(len(order), dtype=torch.bool, device=order.device)
    starts_run[1:] = hashes[1:] != hashes[:-1]
    if bool(starts_run.all()):
        return None
    leader = torch.empty_like(order)
    leader[order] = order[starts_run][starts_run.cumsum(0) - 1]
    followers = torch.nonzero(leader != torch.arange(len(order), device=order.device))[:, 0]
    for index in followers.split(rows_for(rows.width) // 2):  # a hash proposes, the rows decide
        differs = (rows.take(index) != rows.take(leader[index])).any(1)
        leader[index[differs]] = index[differs]
    first, group_of = torch.unique(leader, return_inverse=True)
    if len(first) == len(order):
        return None
    members = group_of.argsort(stable=True)
    offsets = torch.searchsorted(group_of[members], torch.arange(len(first) + 1, device=order.device))
    return Groups(*(part.cpu().numpy() for part in (first, group_of, members, offsets)))


def _search_distinct(torch: Any, queries: DeviceRows, base: DeviceRows, wanted: int, dtype: str | None) -> Neighbors:
    """The best distinct base rows of each distinct query, never the row itself when a set is searched in itself."""
    is_self = queries is base
    k = min(wanted, len(base) - is_self)
    if k == 0:
        return Neighbors(np.empty((len(queries), 0)), np.empty((len(queries), 0), dtype=np.int64))
    if dtype is None:
        pairs = _choose_scan(torch, queries, base, k, is_self).run()
    else:
        pairs = DeviceScan(torch, queries, base, k, is_self, getattr(torch, dtype)).run()
    return Neighbors(pairs.values.view(-1, k).cpu().numpy(), pairs.columns.view(-1, k).cpu().numpy())


def _choose_scan(torch: Any, queries: Any, base: Any, k: int, is_self: bool) -> Any:
    """The search that suits size and data: with the kernels, by cluster where that helps, or in plain torch."""
    if is_worth_fusing(torch, queries, base, k):
        pilot = try_sample(torch, queries, base, k)
        centres = choose_centres(torch, queries, base, k, pilot)
        if centres is not None:
            return CentredScan(torch, queries, base, k, is_self, centres)
        if pilot.n_parts:
            return FusedScan(torch, queries, base, k, is_self, pilot.n_parts)
    return DeviceScan(torch, queries, base, k, is_self, _choose_dtype(torch, queries, base, k))


def _choose_dtype(torch: Any, queries: DeviceRows, base: DeviceRows, k: int) -> Any:
    """The coarsest storage that leaves few candidates for a sample of queries."""
    sample = np.unique(np.linspace(0, len(queries) - 1, _PILOT_QUERIES).astype(np.int64))
    n_runs = -(-len(base) // SUB_BLOCK)
    chosen = np.unique(np.linspace(0, n_runs - 1, min(n_runs, _PILOT_ROWS // SUB_BLOCK)).astype(np.int64))
    index = (chosen[:, None] * SUB_BLOCK + np.arange(SUB_BLOCK)).ravel()  # runs of rows, evenly spaced
    pilot_queries, pilot_base = queries.pick(sample), base.pick(index[index < len(base)])
    pilot_k = min(k + 1, len(pilot_base))  # one more: a query may meet itself
    for dtype in (torch.bfloat16, torch.float32):
        pilot = DeviceScan(torch, pilot_queries, pilot_base, pilot_k, False, dtype)
        pilot.multiply_all()
        rows, _ = pilot.take()
        if len(rows) / len(sample) <= pilot_k + _FEW_CANDIDATES:
            return dtype
    return torch.float64
