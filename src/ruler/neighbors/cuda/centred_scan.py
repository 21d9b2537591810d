"""A search among distinct rows laid out by cluster: clusters in themselves first, then what distances do not rule out.

What clusters find in themselves are bars that most pairs of clusters cannot reach: a row is at least as far from the
rows of a cluster as from its centre, less the cluster's radius.
"""

from collections.abc import Callable
from typing import Any

from ruler.core.arithmetic import iterate_blocks
from ruler.core.progress import show_progress
from ruler.neighbors.cuda.centred_launch import Room, Sides, has_kernel, launch
from ruler.neighbors.cuda.centred_rows import measure_apart, store_centred
from ruler.neighbors.cuda.fused_pass import TileShape, multiply_pairs
from ruler.neighbors.cuda.scan import BestPairs, Pairs, rows_for

CENTRED = TileShape(span=256, rows=128, columns=128, slice=64, n_warps=4, n_stages=3)
OWN_SAMPLE = 256
ANY_SAMPLE = 128
MOST_FOUND = 1 << 26
_BANDS_PER_DOUBLING = 4
_GROUP = 8  # spans: pairs of near groups run together, so that their rows stay in the cache
_LOWEST = -4.0  # below minus half the squared distance of any two unit rows, above that of padding
_ELEMENTS = 1 << 24


class CentredScan:
    """One search: bars rise from band to band, and the pairs that reach them are looked at in float64 at once.

    A slot of a query holds the best similarity, less 1 and less what float64 can be off, among the base rows whose
    number leaves the same remainder; the k-th best row cannot fall under the k-th largest slot.
    """

    def __init__(self, torch: Any, queries: Any, base: Any, k: int, is_self: bool, centres: Any) -> None:
        self.torch, self.queries, self.base, self.k, self.is_self = torch, queries, base, k, is_self
        self._shape, self._device = CENTRED, base.matrix.device
        self._has_kernel = has_kernel(torch, queries.matrix, base.matrix, self._shape)
        right = store_centred(torch, base, centres, self._shape.span)
        left = right if is_self else store_centred(torch, queries, centres, self._shape.span)
        self._left, self._right, self._apart = left, right, measure_apart(centres)
        gain = max(left.gain, right.gain)
        self._sides = Sides(left, right, left.norms * gain, is_self)
        self._slack = 8 * (base.width + 8) * 2.0**-52
        self._n_slots = 1 if k == 1 else 1 << (2 * k - 1).bit_length()
        size = (len(left.order), self._n_slots)
        self._slots = torch.full(size, -torch.inf, dtype=torch.float64, device=self._device)
        self._best = BestPairs(torch, queries, base, k)
        self._kept: list[tuple[Any, Any, Any]] = []
        self._n_kept = self._n_done = 0

    def run(self) -> Pairs:
        """The k best base rows of every query."""
        left, right = self._left, self._right
        self._make_room()
        self._seed()
        is_own = left.clusters[:, None] == right.clusters
        n_pairs = left.n_spans * (left.n_spans + 1) // 2 if self.is_self else left.n_spans * right.n_spans
        with show_progress("searching neighbours", n_pairs) as advance:
            self._scan_all(is_own.triu() if self.is_self else is_own, advance)
            is_needed = self._find_needed() & ~is_own
            self._scan_all((is_needed | is_needed.T).triu() if self.is_self else is_needed, advance)
            advance(n_pairs - self._n_done)
        self._merge_kept()
        self._add_zeros()
        return self._best.pairs

    def _make_room(self) -> None:
        torch, capacity = self.torch, MOST_FOUND
        if self._device.type == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info(self._device)
            capacity = min(capacity, free_bytes // 96)
        capacity = max(capacity, self._shape.span**2 + 1)
        found = torch.empty(capacity, dtype=torch.int64, device=self._device)
        values = torch.empty(capacity, dtype=torch.float32, device=self._device)
        self._room = Room(found, values, torch.zeros(1, dtype=torch.int32, device=self._device))

    def _seed(self) -> None:
        """Bounds from some rows of the own cluster and some of all: without them the first band keeps every pair."""
        torch, left, span = self.torch, self._left, self._shape.span
        own, anywhere = self._sample_clusters(), self._sample(len(self.base), ANY_SAMPLE)[None]
        near_anywhere = self.base.take(anywhere[0]).T
        for start, stop in iterate_blocks(left.n_spans, max(1, rows_for(self.base.width) // (2 * OWN_SAMPLE + span))):
            numbers = left.order[start * span : stop * span].view(-1, span)
            unit = self.queries.take(numbers.clamp(min=0).view(-1)).view(*numbers.shape, -1)
            chosen = own[left.clusters[start:stop].long()]
            near = self.base.take(chosen.clamp(min=0).view(-1)).view(*chosen.shape, -1)
            for sample, products in (
                (chosen, torch.bmm(unit, near.transpose(1, 2))),
                (anywhere.expand(stop - start, -1), unit @ near_anywhere),
            ):
                is_out = (sample < 0)[:, None, :] | (numbers < 0)[:, :, None]
                if self.is_self:
                    is_out |= sample[:, None, :] == numbers[:, :, None]
                lower = (products - 1 - self._slack).masked_fill_(is_out, -torch.inf)
                slot = (sample % self._n_slots)[:, None, :].expand(lower.shape)
                slots = self._slots[start * span : stop * span].view(*numbers.shape, self._n_slots)
                slots.scatter_reduce_(2, slot, lower, "amax")

    def _sample_clusters(self) -> Any:
        """Some base rows of every cluster, (centres, OWN_SAMPLE), possibly twice; -1 for none."""
        n_centres, span = len(self._right.offsets), self._shape.span
        n_positions = span * self.torch.bincount(self._right.clusters, minlength=n_centres)
        first = n_positions.cumsum(0) - n_positions
        inside = self.torch.arange(OWN_SAMPLE, device=self._device) * n_positions[:, None] // OWN_SAMPLE
        chosen = self._right.order[(first[:, None] + inside).clamp(max=len(self._right.order) - 1)]
        return chosen.where(n_positions[:, None] > 0, -1)

    def _sample(self, n_rows: int, most: int) -> Any:
        n_chosen = min(n_rows, most)
        return self.torch.arange(n_chosen, device=self._device) * n_rows // n_chosen

    def _floors(self) -> Any:
        """What the k-th best similarity of the row at each query position is at least, less 1; 0 at padding."""
        kth = self._slots[:, 0] if self.k == 1 else self._slots.topk(self.k, 1).values[:, -1]
        return kth.clamp(max=0.0).where(self._left.order >= 0, 0.0)

    def _bars(self) -> Any:
        """`_floors` rounded down to float32; infinite at padding."""
        bars = (self._floors() * (1 + 2.0**-20) - 1e-30).clamp(min=_LOWEST).float()
        return bars.where(self._left.order >= 0, self.torch.inf)

    def _scan_all(self, is_wanted: Any, advance: Callable[[int], None]) -> None:
        """Scan pairs of spans in bands that grow as the bars rise, so that all queries see as much at any time."""
        rows, columns = self.torch.nonzero(is_wanted, as_tuple=True)
        order = ((columns - rows) % self._right.n_spans).argsort(stable=True)
        start = 0
        while start < len(order):
            grown = (self._n_done + start) // _BANDS_PER_DOUBLING
            stop = min(len(order), start + max(self._left.n_spans, grown))
            band = order[start:stop]
            i, j = rows[band], columns[band]
            key = ((i // _GROUP) << 40) | ((j // _GROUP) << 20) | (i % _GROUP * _GROUP + j % _GROUP)
            band = key.argsort()
            self._scan(self.torch.stack([i[band], j[band]], 1).int())
            advance(stop - start)
            start = stop
        self._n_done += len(order)

    def _scan(self, spans: Any) -> None:
        """Scan a band; where the pairs found outgrow the room, use them to raise the bars and scan its halves."""
        bars = self._bars()
        launch(self.torch, self._sides, (bars, bars), spans, self._room, self._shape, has_kernel=self._has_kernel)
        n_found, capacity = int(self._room.counter), len(self._room.pairs)
        is_complete = n_found < capacity  # a counter at its end says that the launch stopped writing
        self._look(min(n_found, capacity), keep=is_complete)
        if not is_complete:
            for half in spans.tensor_split(2):
                self._scan(half)

    def _look(self, n_found: int, *, keep: bool) -> None:
        """Float64 products of the pairs found raise the bars; those that still reach one are kept."""
        pairs = self._room.pairs[:n_found]
        i, j = pairs >> 32, pairs & 0xFFFFFFFF
        rows, columns = self._left.order[i], self._right.order[j]
        near = multiply_pairs(self.torch, self.queries, self.base, rows, columns, has_kernel=self._has_kernel) - 1
        slots = self._slots.view(-1)
        slots.scatter_reduce_(0, i * self._n_slots + columns % self._n_slots, near - self._slack, "amax")
        if self.is_self:
            slots.scatter_reduce_(0, j * self._n_slots + rows % self._n_slots, near - self._slack, "amax")
        if keep:
            floors = self._floors()
            is_kept = near + self._slack >= (self.torch.minimum(floors[i], floors[j]) if self.is_self else floors[i])
            self._kept.append((i[is_kept], j[is_kept], near[is_kept]))
            self._n_kept += len(self._kept[-1][0])
            if self._n_kept > MOST_FOUND:
                self._merge_kept()

    def _merge_kept(self) -> None:
        """Exact similarities of the pairs kept that no k others of their query surpass for sure."""
        if not self._kept:
            return
        i, j, near = (self.torch.cat(part) for part in zip(*self._kept, strict=True))
        self._kept, self._n_kept = [], 0
        floors, near = self._floors(), near + self._slack
        rows, columns = self._left.order[i], self._right.order[j]
        sides = [(rows, columns, near >= floors[i])]
        if self.is_self:
            sides.append((columns, rows, near >= floors[j]))
        self._best.merge(*(self.torch.cat([side[place][side[2]] for side in sides]) for place in (0, 1)))

    def _find_needed(self) -> Any:
        """Pairs of spans that distances do not rule out for a query, (query spans, base spans)."""
        torch, left, right = self.torch, self._left, self._right
        within = (-2 * self._bars().double()).clamp_(min=0).sqrt_()
        own, gaps = left.clusters.long().repeat_interleave(left.span), []
        for start, stop in iterate_blocks(len(left.offsets), max(1, _ELEMENTS // len(own))):
            squares = 2 * left.offsets[start:stop].double() + self._apart[start:stop][:, own] / 2 - 1e-12
            gap = squares.clamp_(min=0).sqrt_() - within
            gap.masked_fill_(left.order < 0, torch.inf)
            gaps.append(gap.view(len(gap), -1, left.span).amin(2))
        return torch.cat(gaps).T[:, right.clusters.long()] <= right.reach.double() * (1 + 1e-6)

    def _add_zeros(self) -> None:
        """All-zero rows, which are as similar to every row as to any: 0. Among distinct rows there is at most one."""
        torch = self.torch
        query, near = (
            torch.nonzero(rows.device_norms[rows.numbers(torch.arange(len(rows), device=self._device))] == 0)[:, 0]
            for rows in (self.queries, self.base)
        )
        for zero in near.tolist():
            rows = torch.arange(len(self.queries), device=self._device)
            rows = rows[rows != zero] if self.is_self else rows
            self._best.merge(rows, torch.full_like(rows, zero))
        for zero in query.tolist():
            columns = torch.arange(len(self.base), device=self._device)
            columns = columns[~torch.isin(columns, near)]
            self._best.merge(torch.full_like(columns, zero), columns)
