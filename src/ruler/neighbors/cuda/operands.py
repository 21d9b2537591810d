"""Unit rows as tensor cores take them: float16, in one part or in three, and how wrong their products can be.

float16 is as fast as bfloat16 there and eight times finer; entries of a unit row never leave its range. Where it is
too coarse, a row is high + low, and (high, high, low) . (high, low, high) is a product as good as float32's.
"""

from dataclasses import dataclass
from typing import Any

from ruler.core.arithmetic import iterate_blocks
from ruler.neighbors.cuda.scan import rows_for

_PILOT_QUERIES = 512
_PILOT_ROWS = 1 << 16
_PEAK_ROWS = 16
_FEW_PAIRS = 16.0  # per query beyond k: looking at them again costs less than a finer pass
_ROUNDING = {1: 2.0**-11, 3: 2.0**-22}  # of a row of norm 1, at most
_PADDING = 4096  # rows: a multiple of every span
_SLICE = 64  # columns: a multiple of every slice
_LEAST_WIDTH = 16
NARROW_WIDTH = 128
TRUNCATION = 2.0  # tensor cores cut each addend off where the processor rounds, in units of float32's eps
_STORING = 1e-6  # bounds themselves are float32
_TAILS = (0.1, 0.9)


@dataclass(frozen=True)
class Operands:
    """Both sides of the product, zero rows past the last; a product is within ``error`` of the true one."""

    queries: Any
    base: Any
    error: float

    @property
    def width(self) -> int:
        """Stored columns."""
        return int(self.base.shape[1])


@dataclass(frozen=True)
class Pilot:
    """What a search of a sample says of the whole.

    Args:
        n_parts: The fewest parts that leave few pairs per query; 0 where even three leave many.
        unevenness: Ratio of the 90th to the 10th percentile of the distances of queries from their neighbours.
    """

    n_parts: int
    unevenness: float


def try_sample(torch: Any, queries: Any, base: Any, k: int) -> Pilot:
    """Search for a few queries in a sample of the base."""
    rows = spread_evenly(torch, queries, _PILOT_QUERIES)
    products = queries.take(rows).float() @ base.take(spread_evenly(torch, base, _PILOT_ROWS)).float().T
    peaks = products[:, : products.shape[1] // _PEAK_ROWS * _PEAK_ROWS].view(len(rows), _PEAK_ROWS, -1).amax(1)
    kth = peaks.topk(min(k + 1, peaks.shape[1]), 1).values[:, -1:]  # one more: a query may meet itself
    near, far = (1 - kth).clamp(min=_STORING).quantile(torch.tensor(_TAILS, device=kth.device)).tolist()
    for n_parts, rounding in _ROUNDING.items():
        error = _bound(torch, 2 * rounding, n_parts * base.width)
        n_pairs = float((products >= kth - 2 * error).sum()) / len(rows)
        if n_pairs <= k + 1 + _FEW_PAIRS:
            return Pilot(n_parts, far / near)
    return Pilot(0, far / near)


def spread_evenly(torch: Any, rows: Any, most: int) -> Any:
    """Numbers of some of the rows, evenly spaced."""
    n_rows = min(most, len(rows))
    return torch.arange(n_rows, device=rows.matrix.device) * len(rows) // n_rows


def _bound(torch: Any, rounding: float, n_columns: int) -> float:
    """Rounding costs what Cauchy-Schwarz allows; sums of at most 1 in magnitude are cut off once per addend."""
    return float(1.01 * (rounding + TRUNCATION * (n_columns + 2) * torch.finfo(torch.float32).eps) + _STORING)


def store_rows(torch: Any, queries: Any, base: Any, is_self: bool, n_parts: int) -> Operands:
    """Round both sides and bound what that does to a product."""
    right, rounding, rest = _round(torch, base, n_parts, is_base=True)
    if is_self and n_parts == 1:
        return Operands(right, right, _bound(torch, 2 * rounding + rounding**2, right.shape[1]))
    left, left_rounding, left_rest = _round(torch, queries, n_parts, is_base=False)
    lost = rounding + left_rounding + rounding * left_rounding + rest * left_rest
    return Operands(left, right, _bound(torch, lost, right.shape[1]))


def _round(torch: Any, rows: Any, n_parts: int, *, is_base: bool) -> tuple[Any, float, float]:
    """Stored rows, and the largest norm of what rounding took from a row and of its low part."""
    n_rows = -(-len(rows) // _PADDING) * _PADDING
    stored = torch.zeros((n_rows, padded_width(n_parts * rows.width)), dtype=torch.float16, device=rows.matrix.device)
    width, rounding, rest = rows.width, 0.0, 0.0
    for start, stop in iterate_blocks(len(rows), rows_for(width)):
        exact = rows.block(start, stop)
        high = exact.half()
        left = exact - high
        parts = [high]
        if n_parts == 3:
            low = left.half()
            rest = max(rest, _largest_norm(low.double()))
            left = left - low
            parts = [high, low, high] if is_base else [high, high, low]
        for place, part in enumerate(parts):
            stored[start:stop, place * width : (place + 1) * width] = part
        rounding = max(rounding, _largest_norm(left))
    return stored, rounding, rest


def _largest_norm(rows: Any) -> float:
    norm: float = 1.0001 * float(rows.square().sum(1).max()) ** 0.5
    return norm


def padded_width(n_columns: int) -> int:
    """A power of two where a kernel takes whole rows, a multiple of its slice where not."""
    if n_columns <= NARROW_WIDTH:
        return max(_LEAST_WIDTH, 1 << (n_columns - 1).bit_length())
    return -(-n_columns // _SLICE) * _SLICE
