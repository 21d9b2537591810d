"""One launch of the first pass over rows laid out by cluster: the kernel, or plain torch where it cannot run."""

import importlib
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

from ruler.core.arithmetic import iterate_blocks
from ruler.core.determinism import tensor_cores
from ruler.neighbors.cuda.centred_rows import CentredRows
from ruler.neighbors.cuda.fused_pass import TileShape, can_fuse

_TORCH_ELEMENTS = 1 << 26
_CHECKED_WIDTH = 128


@dataclass(frozen=True)
class Sides:
    """What a launch reads: both sides of the search, and how far products can be off.

    Args:
        left: The queries.
        right: The base; the same object in a self search.
        slack: (query positions,) float32: times the reach of a base span, how far a product can be off.
        is_self: Each pair counts once, with the query first in position, and serves both of its rows.
    """

    left: CentredRows
    right: CentredRows
    slack: Any
    is_self: bool


@dataclass(frozen=True)
class Room:
    """Where a launch writes: pairs of positions, half their squared distance or less, negated, and how many."""

    pairs: Any
    values: Any
    counter: Any


def launch(
    torch: Any, sides: Sides, bars: tuple[Any, Any], spans: Any, room: Room, shape: TileShape, *, has_kernel: bool
) -> None:
    """Find the pairs of some pairs of spans, (n, 2) int32, that may reach the bar of one of their rows."""
    room.counter.zero_()
    if not has_kernel:
        _launch_torch(torch, sides, bars, spans, room)
        return
    kernels = importlib.import_module("ruler.neighbors.cuda.fused_kernels")
    left, right = sides.left, sides.right
    width = int(right.stored.shape[1])
    slice_width = min(shape.slice, width)
    describe = kernels.TensorDescriptor.from_tensor
    kernels.scan_centred[(len(spans) * shape.programs,)](
        describe(left.stored, [shape.rows, slice_width]),
        describe(right.stored, [shape.columns, slice_width]),
        *(*bars, left.offsets, right.offsets, sides.slack, left.scales, right.scales, right.reach),
        *(left.clusters, right.clusters, spans, room.counter, room.pairs, room.values),
        *(len(left.order), len(right.order), len(room.pairs), width),
        SPAN=shape.span,
        BLOCK_ROWS=shape.rows,
        BLOCK_COLUMNS=shape.columns,
        BLOCK_WIDTH=slice_width,
        IS_SELF=sides.is_self,
        N_WARPS=shape.n_warps,
        num_warps=shape.n_warps,
        num_stages=shape.n_stages,
    )


def _launch_torch(torch: Any, sides: Sides, bars: tuple[Any, Any], spans: Any, room: Room) -> None:
    left, right, span = sides.left, sides.right, sides.left.span
    inside = torch.arange(span, device=spans.device)
    n_found, capacity = 0, len(room.pairs)
    for start, stop in iterate_blocks(
        len(spans), max(1, _TORCH_ELEMENTS // (span * span + 2 * span * int(right.stored.shape[1])))
    ):
        i, j = (spans[start:stop, side].long() for side in (0, 1))
        rows, columns = (one[:, None] * span + inside for one in (i, j))
        with tensor_cores(torch):  # TF32 holds float16 to the last bit
            products = torch.bmm(left.stored[rows].float(), right.stored[columns].float().transpose(1, 2))
        alpha = left.offsets[right.clusters[j].long()[:, None], rows] - sides.slack[rows] * right.reach[j][:, None]
        beta = right.offsets[left.clusters[i].long()[:, None], columns]
        near = products * (left.scales[i] * right.scales[j])[:, None, None] - alpha[:, :, None] - beta[:, None, :]
        bar = bars[0][rows][:, :, None]
        if sides.is_self:
            bar = torch.minimum(bar, bars[1][columns][:, None, :])
        is_found = near >= bar
        if sides.is_self:
            is_found &= columns[:, None, :] > rows[:, :, None]
        pair, row, column = torch.nonzero(is_found, as_tuple=True)
        n_new = min(len(pair), capacity - n_found)
        at = slice(n_found, n_found + n_new)
        room.pairs[at] = ((rows[pair, row] << 32) | columns[pair, column])[:n_new]
        room.values[at] = near[pair, row, column][:n_new]
        n_found += n_new
    room.counter.fill_(n_found)


def has_kernel(torch: Any, queries: Any, base: Any, shape: TileShape) -> bool:
    """Whether the kernel can take these tensors, and finds on this device what plain torch finds."""
    return can_fuse(torch, base) and can_fuse(torch, queries) and is_kernel_right(torch, base.device, shape)


@cache
def is_kernel_right(torch: Any, device: Any, shape: TileShape) -> bool:
    """Compare the kernel with plain torch on small whole numbers, whose products are exact."""
    generator = torch.Generator().manual_seed(0)

    def draw(most: int, *size: int) -> Any:
        return torch.randint(-most, most + 1, size, generator=generator).to(device)

    n, n_spans = 3 * shape.span, 3
    clusters = torch.tensor([0, 0, 1], dtype=torch.int32, device=device)
    scales = torch.tensor([1.0, 0.5, 2.0], device=device)
    side = CentredRows(
        *(None, shape.span, draw(1, n), None, clusters, draw(2, n, _CHECKED_WIDTH).half(), scales, scales),
        *(draw(2, n).float(), draw(9, 2, n).float(), 0.0),
    )
    sides = Sides(side, side, draw(2, n).float(), True)
    bars = 60.0 + draw(5, n).float()
    spans = torch.triu_indices(n_spans, n_spans, device=device).T.int().contiguous()
    found = []
    try:
        for with_kernel in (False, True):
            size = {"size": (n * n,), "device": device}
            counter = torch.zeros(1, dtype=torch.int32, device=device)
            room = Room(torch.zeros(**size, dtype=torch.int64), torch.zeros(**size), counter)
            launch(torch, sides, (bars, bars), spans, room, shape, has_kernel=with_kernel)
            pairs, order = room.pairs[: int(counter)].sort()
            found.append((pairs, room.values[: int(counter)][order]))
        if len(found[0][0]) and all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True)):
            return True
        reason = f"{len(found[1][0])} pairs where there are {len(found[0][0])}"
    except Exception as error:  # whatever stops a compiler: the search goes on without it
        reason = str(error)
    message = f"The kernel for rows laid out by cluster does not work here ({reason}): the search takes plain torch."
    warnings.warn(message, RuntimeWarning, stacklevel=2)
    return False
