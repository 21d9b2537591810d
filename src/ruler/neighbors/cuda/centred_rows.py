"""Unit rows in spans of one cluster each, stored relative to its centre, so that low precision tells near rows apart.

As in `centred.py`: with a = c + u and b = d + v, half the squared distance of two unit rows is alpha + beta - u.v.
Alpha and beta depend on one row and the centres. Rounding u and v to float16 costs |u| |v|, not 1. Alpha and beta lie
in a table with one line per centre, less all that rounding can cost, so that no distance comes out too large.
"""

from dataclasses import dataclass
from typing import Any

from ruler.core.arithmetic import iterate_blocks
from ruler.neighbors.cuda.operands import TRUNCATION, padded_width
from ruler.neighbors.cuda.scan import rows_for

FAR = 8.0
"""An offset of padding: more than half the squared distance of any two unit rows."""
_EPS = 2.0**-52
_OFFSET_LOSS = 2.0**-21  # of an offset: float32 holds it, and adds it twice
_LEAST_SHARE = 2.0**-10  # of the largest norm of a span: below it float16 loses a larger share of a row


@dataclass(frozen=True)
class CentredRows:
    """One side of a search, row by row of its spans; positions past the last row of a cluster are padding.

    Args:
        rows: The rows that are stored.
        span: Positions per span.
        order: (positions,) row at each position, -1 for padding and for an all-zero row.
        position_of: (n,) position of each row.
        clusters: (spans,) int32 centre of each span.
        stored: (positions, padded width) float16 rows less their centre, in units of their span's scale.
        scales: (spans,) float32 powers of two.
        reach: (spans,) float32 largest norm of a row less its centre.
        norms: (positions,) float32 of the rows less their centre; a little more for those near their centre.
        offsets: (centres, positions) float32, what a row adds to its half squared distances from rows of a cluster.
        loss: The most that rounding takes from a norm, as a share.
    """

    rows: Any
    span: int
    order: Any
    position_of: Any
    clusters: Any
    stored: Any
    scales: Any
    reach: Any
    norms: Any
    offsets: Any
    loss: float

    @property
    def n_spans(self) -> int:
        """Number of spans."""
        return len(self.clusters)

    @property
    def gain(self) -> float:
        """How far a product can be off, in units of both norms, with room for what is computed from it in float32."""
        width = int(self.stored.shape[1])
        eps: float = 2.0**-23
        return 1.02 * (2 * self.loss + self.loss**2 + TRUNCATION * (width + 2) * eps + 16 * eps)


def assign(torch: Any, rows: Any, centres: Any) -> tuple[Any, Any]:
    """The nearest centre of each row, and the distance from it, (n,) float64 each."""
    middle = centres.mean(0)
    shifted = centres - middle
    half_squares = shifted.square().sum(1) / 2
    found, distances = [], []
    for start, stop in iterate_blocks(len(rows), rows_for(max(rows.width, len(centres))) // 2):
        block = rows.block(start, stop)
        nearest = ((block - middle) @ shifted.T - half_squares).argmax(1)
        found.append(nearest)
        distances.append((block - centres[nearest]).square_().sum(1).sqrt())
    return torch.cat(found), torch.cat(distances)


def store_centred(torch: Any, rows: Any, centres: Any, span: int) -> CentredRows:
    """Lay rows out by cluster, those near their centre first, and round them."""
    order, position_of, clusters = _lay_out(torch, rows, centres, span)
    device, n_centres, n = order.device, len(centres), len(order)
    width = rows.width
    stored = torch.zeros((n, padded_width(width)), dtype=torch.float16, device=device)
    offsets = torch.empty((n_centres, n), dtype=torch.float32, device=device)
    scales, reach, norms, losses = [], [], [], []
    shifted = centres - centres.mean(0)
    apart = measure_apart(centres)
    farthest = float(shifted.square().sum(1).max()) ** 0.5
    for start, stop in iterate_blocks(n, max(1, rows_for(max(width, n_centres)) // (2 * span)) * span):
        number, own = order[start:stop], clusters[start // span : stop // span].repeat_interleave(span).long()
        is_row = number >= 0
        left = (rows.take(number.clamp(min=0)) - centres[own]).mul_(is_row[:, None])
        norm = left.square().sum(1).sqrt_()
        most = norm.view(-1, span).amax(1)
        scale = torch.ldexp(torch.ones_like(most), torch.frexp(most).exponent)
        units = scale.repeat_interleave(span)
        stored[start:stop, :width] = left / units[:, None]
        lost = (left - stored[start:stop, :width].double().mul_(units[:, None])).square_().sum(1).sqrt_()
        safe = torch.maximum(norm, _LEAST_SHARE * most.repeat_interleave(span))
        losses.append((lost / safe.where(safe > 0, 1.0)).max())
        dots = left @ shifted.T
        dots = dots.gather(1, own[:, None]) - dots + apart[own] / 4
        rest = 8 * (width + 8) * _EPS * (norm * farthest + farthest**2)
        rest = rest[:, None] * (own[:, None] != torch.arange(n_centres, device=device)) + 32 * _EPS * norm[:, None]
        values = norm.square()[:, None] / 2 + dots
        values -= values.abs() * _OFFSET_LOSS + rest
        offsets[:, start:stop] = values.where(is_row[:, None], FAR).T
        scales.append(scale)
        reach.append(most)
        norms.append(safe)
    room = 1 + 2.0**-20
    reach, norms = (torch.cat(part).mul_(room).float() for part in (reach, norms))
    loss = 1.0001 * float(torch.stack(losses).max())
    return CentredRows(
        rows, span, order, position_of, clusters, stored, torch.cat(scales).float(), reach, norms, offsets, loss
    )


def measure_apart(centres: Any) -> Any:
    """Squared distances of centres from each other."""
    shifted = centres - centres.mean(0)
    squares = shifted.square().sum(1)
    return (squares[:, None] + squares - 2 * shifted @ shifted.T).clamp_(min=0).fill_diagonal_(0.0)


def _lay_out(torch: Any, rows: Any, centres: Any, span: int) -> tuple[Any, Any, Any]:
    """Row at each position, position of each row, and centre of each span."""
    cluster_of, distances = assign(torch, rows, centres)
    by_cluster = (4 * cluster_of + distances).argsort()  # distances of unit rows are at most 2
    n_rows = torch.bincount(cluster_of, minlength=len(centres))
    n_spans = (n_rows + span - 1) // span
    first = (n_spans.cumsum(0) - n_spans) * span
    clusters = torch.arange(len(centres), device=n_rows.device).repeat_interleave(n_spans)
    sorted_clusters = cluster_of[by_cluster]
    place = torch.arange(len(by_cluster), device=n_rows.device) - (n_rows.cumsum(0) - n_rows)[sorted_clusters]
    positions = first[sorted_clusters] + place
    order = torch.full((len(clusters) * span,), -1, device=n_rows.device)
    position_of = torch.empty_like(by_cluster)
    position_of[by_cluster] = positions
    is_zero = rows.device_norms[rows.numbers(by_cluster)] == 0
    order[positions] = by_cluster.where(~is_zero, -1)
    return order, position_of, clusters.int()
