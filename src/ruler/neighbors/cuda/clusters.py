"""Whether rows lie in clusters that make a search cheaper, found on a sample without leaving the device."""

from dataclasses import dataclass
from typing import Any

from ruler.neighbors.cuda.centred_rows import assign
from ruler.neighbors.cuda.operands import Pilot, spread_evenly

_SAMPLE_ROWS = 4096
_ROWS_PER_CENTRE = 2048
_FEWEST_CENTRES = 32
_MOST_CENTRES = 128
_DRAWS = 8
_LLOYD_STEPS = 2
_PILOT_QUERIES = 512
_PILOT_ROWS = 1 << 16
_PEAK_ROWS = 16
_GAIN = 2.0**-10  # of the norms of two rows less their centres: how far a product can be off, about
MOST_PAIRS = 400.0  # per query: above it a search in higher precision is cheaper
UNEVEN = 8.0  # ratio of distances from neighbours: one bound on all errors is too coarse for the near ones above it
WORTH_LOOKING = 5e13  # multiply-adds: below it looking for clusters takes too large a share of the time
WORTH_PRUNING = 0.5  # of all products: above it clusters save too little


@dataclass(frozen=True)
class Centres:
    """Centres of clusters.

    Args:
        points: (c, p) float64, on the device.
        n_pairs: Pairs per query that float64 must look at, as a sample has it.
        needed: Share of all products that distances between rows and clusters do not rule out, likewise.
    """

    points: Any
    n_pairs: float
    needed: float


def choose_centres(torch: Any, queries: Any, base: Any, k: int, pilot: Pilot) -> Any:
    """Centres to lay rows out by, (c, p) float64; None where the search is cheaper with rows as they stand."""
    is_plain_good = pilot.n_parts == 1 and pilot.unevenness < UNEVEN
    if is_plain_good and float(len(queries)) * len(base) * base.width < WORTH_LOOKING:
        return None
    found = find_centres(torch, queries, base, k)
    is_cheaper = found.needed < WORTH_PRUNING if is_plain_good else True
    return found.points if is_cheaper and found.n_pairs <= MOST_PAIRS else None


def find_centres(torch: Any, queries: Any, base: Any, k: int) -> Centres:
    """Centres of a sample of the base, and what they would save."""
    n_centres = min(_MOST_CENTRES, max(_FEWEST_CENTRES, len(base) // _ROWS_PER_CENTRE), len(base))
    sample = base.take(spread_evenly(torch, base, _SAMPLE_ROWS))
    points = _draw(torch, sample, n_centres)
    for _ in range(_LLOYD_STEPS):
        nearest = _squared_distances(sample, points).argmin(1)
        belongs = (nearest == torch.arange(len(points), device=nearest.device)[:, None]).double()
        sizes = belongs.sum(1, keepdim=True)
        points = torch.where(sizes > 0, belongs @ sample / sizes.clamp(min=1), points)
    return _try(torch, queries, base, k, points)


def _draw(torch: Any, sample: Any, n_centres: int) -> Any:
    """Rows that are far from those drawn before, several at a time, as k-means|| draws them."""
    generator = torch.Generator().manual_seed(0)
    points = sample.mean(0, keepdim=True)
    distances = _squared_distances(sample, points)[:, 0]
    for last in (n_centres * (draw + 1) // _DRAWS for draw in range(_DRAWS)):
        n_new = last + 1 - len(points)
        if n_new > 0:
            waits = torch.empty(len(sample), dtype=torch.float64).exponential_(generator=generator)
            chosen = (waits.to(sample.device) / distances).topk(min(n_new, len(sample)), largest=False).indices
            points = torch.cat([points, sample[chosen]])
            distances = torch.minimum(distances, _squared_distances(sample, sample[chosen]).amin(1))
    return points[1:] if len(points) > 1 else points


def _squared_distances(rows: Any, points: Any) -> Any:
    """Of rows to points, (n, c), never negative, as exact as the points are close to each other."""
    middle = points.mean(0)
    rows, points = rows - middle, points - middle
    return (rows.square().sum(1)[:, None] + points.square().sum(1) - 2 * rows @ points.T).clamp_(min=0)


def _try(torch: Any, queries: Any, base: Any, k: int, points: Any) -> Centres:
    """Search a sample, and count what float16 relative to centres and distances from them do not rule out."""
    some = queries.pick(spread_evenly(torch, queries, _PILOT_QUERIES).cpu().numpy())
    near = base.pick(spread_evenly(torch, base, _PILOT_ROWS).cpu().numpy())
    (own, norms), (clusters, reach) = assign(torch, some, points), assign(torch, near, points)
    unit = some.block(0, len(some))
    halves = 1 - unit @ near.block(0, len(near)).T  # half the squared distances
    few = min(_PEAK_ROWS, max(1, len(near) // (k + 1)))
    peaks = halves[:, : len(near) // few * few].view(len(some), few, -1).amin(1)
    kth = peaks.topk(min(k + 1, peaks.shape[1]), 1, largest=False).values[:, -1:].clamp(min=0)  # one may be the query
    n_pairs = float((halves - 2 * _GAIN * norms[:, None] * reach <= kth).sum()) / len(some)
    distances = _squared_distances(unit, points).sqrt()
    n_centres = len(points)
    radius = torch.zeros(n_centres, dtype=torch.float64, device=reach.device)
    radius.scatter_reduce_(0, clusters, reach, "amax")
    is_near = distances - radius <= (2 * kth).sqrt()
    belongs = (own == torch.arange(n_centres, device=own.device)[:, None]).double()
    is_needed = belongs @ is_near.double() > 0
    is_needed |= is_needed.T.clone() | torch.eye(n_centres, dtype=torch.bool, device=own.device)
    sizes = torch.bincount(clusters, minlength=n_centres).double() / len(near)
    return Centres(points, n_pairs, float(sizes @ is_needed.double() @ sizes))
