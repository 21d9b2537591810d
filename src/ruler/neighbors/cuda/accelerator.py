"""Nearest neighbours on an accelerator: the same two passes in torch, without leaving the device.

The arithmetic of the final similarities is that of the CPU engines, so the answer is the same to the last bit.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ruler.core.arithmetic import norm_rows, unit_rows
from ruler.core.checks import as_matrix, is_on_cuda, measure_norms
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.precision import full_precision
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.neighbors.cuda.fused_pass import FusedScan, choose_parts
from ruler.neighbors.cuda.groups import group_on_device
from ruler.neighbors.cuda.pairs import rows_for
from ruler.neighbors.cuda.scan import DeviceScan
from ruler.neighbors.engines import SUB_BLOCK
from ruler.neighbors.recheck import BestRows
from ruler.neighbors.rows import hash_multipliers
from ruler.neighbors.search import check_request
from ruler.neighbors.twins import Collapsed, expand

_PILOT_QUERIES = 1024
_PILOT_ROWS = 1 << 17
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
    base_rows = load_rows(torch, base, names[1], device)
    query_rows = base_rows if is_same else load_rows(torch, queries, names[0], device)
    check_request(tuple(query_rows.matrix.shape), tuple(base_rows.matrix.shape), names, k, exclude_self)
    with _current_device(torch, base_rows.matrix.device), full_precision(torch):
        collapsed_base = _collapse(base_rows)
        collapsed_queries = collapsed_base if is_same else _collapse(query_rows)
        best = _search_distinct(torch, collapsed_queries, collapsed_base, k + (exclude_self and not is_same))
    return expand(best, collapsed_queries, collapsed_base, k=k, exclude_self=exclude_self)


def _current_device(torch: Any, device: Any) -> AbstractContextManager[Any]:
    """Triton launches on the thread's current device, wherever its tensors lie."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


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


def _collapse(rows: DeviceRows) -> Collapsed:
    groups = group_on_device(rows)
    distinct = rows if groups is None else replace(rows, subset=groups.first)
    return Collapsed(len(rows), distinct, groups, np.asarray(rows.norms == 0))


def load_rows(torch: Any, value: Any, name: str, device: str) -> DeviceRows:
    """Rows of a matrix on the device, checked like any input."""
    if is_on_cuda(value):
        tensor = value.detach() if hasattr(value, "detach") else torch.from_dlpack(value)
        if tensor.ndim != 2 or tensor.numel() == 0:
            as_matrix(value, name)  # says what is wrong
    else:
        tensor = torch.from_numpy(np.ascontiguousarray(as_matrix(value, name))).to(device)
    norms = torch.cat([norm_rows(block.double()) for block in tensor.split(rows_for(tensor.shape[1]))])
    host_norms: FloatArray = norms.cpu().numpy()
    if not bool((norms.isfinite() & (norms.square() >= torch.finfo(torch.float64).tiny)).all()):
        measure_norms(as_matrix(value, name), name)  # raises, unless the small ones are all-zero rows
    return DeviceRows(torch, tensor, host_norms, norms)


def _search_distinct(torch: Any, queries: Collapsed, base: Collapsed, k: int) -> BestRows:
    """The k best base groups of each query group, the group itself left out when a set is searched in itself."""
    is_self = queries is base
    k = min(k, len(base.rows) - is_self)
    best = BestRows(len(queries.rows), k)
    if k == 0:
        return best
    n_parts = choose_parts(torch, queries.rows, base.rows, k)
    if n_parts:
        pairs = FusedScan(torch, queries.rows, base.rows, k, is_self, n_parts).run()
    else:
        dtype = _choose_dtype(torch, queries.rows, base.rows, k)
        pairs = DeviceScan(torch, queries.rows, base.rows, k, is_self, dtype).run()
    best.similarity[:] = pairs.values.view(-1, k).cpu().numpy()
    best.index[:] = pairs.columns.view(-1, k).cpu().numpy()
    return best


def _choose_dtype(torch: Any, queries: DeviceRows, base: DeviceRows, k: int) -> Any:
    """The coarsest storage that leaves few candidates for a sample of queries."""
    sample = np.unique(np.linspace(0, len(queries) - 1, _PILOT_QUERIES).astype(np.int64))
    pilot_queries = replace(queries, subset=_pick(queries, sample))
    pilot_base = replace(base, subset=_every(base, _PILOT_ROWS))
    pilot_k = min(k + 1, len(pilot_base))  # one more: a query may meet itself
    for dtype in (torch.bfloat16, torch.float32):
        pilot = DeviceScan(torch, pilot_queries, pilot_base, pilot_k, False, dtype)
        pilot.multiply_all()
        rows, _ = pilot.take()
        if len(rows) / len(sample) <= pilot_k + _FEW_CANDIDATES:
            return dtype
    return torch.float64


def _pick(rows: DeviceRows, index: IndexArray) -> IndexArray:
    return index if rows.subset is None else rows.subset[index]


def _every(rows: DeviceRows, most: int) -> IndexArray:
    """Runs of rows, evenly spaced, ``most`` in all."""
    n_runs = -(-len(rows) // SUB_BLOCK)
    chosen = np.unique(np.linspace(0, n_runs - 1, min(n_runs, most // SUB_BLOCK)).astype(np.int64))
    index = (chosen[:, None] * SUB_BLOCK + np.arange(SUB_BLOCK)).ravel()
    return _pick(rows, index[index < len(rows)])
