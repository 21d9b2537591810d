"""Dropout of stacked members, decided by counters.

Whether a unit is dropped is a hash of seed and position and depends neither on the other members nor on the chunk. A
word of 64 random bits decides four units, 16 bits each, so that the rate is exact to 2**-16. The hash is SplitMix64 in
plain integer operations, which give the same bits on CPU and GPU. On a CPU it takes half as long as the products, and
models of one seed read the same decisions: these are kept, a bit each.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch

N_DROPOUTS = 2
"""Layers with dropout: how often an epoch draws for a row."""

_LANES = 4  # units decided by one 64-bit word
_LANE_VALUES = 1 << 16
_WEYL = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9 - (1 << 64)  # as signed 64-bit numbers, which is what torch multiplies
_SECOND_FACTOR = 0x94D049BB133111EB - (1 << 64)

KEPT_ROWS = 1 << 12
"""Rows of decisions per block."""

MOST_BYTES = 1 << 27
"""Of all blocks that are kept; those beyond are drawn anew for every model."""


class DropoutStream:
    """The dropout decisions of members that train on the same rows.

    Each seed has one long stream of decisions, a row of units after the other, and position p is the p-th row
    that training drops units of: all rows of the first layer, all rows of the second, then the next pass or epoch.
    The one-by-one loop reads its generator in the same order. So here as there, equal seeds and row counts give
    equal decisions, and an original and its oracles read the same stream but shift against each other.

    Args:
        seeds: One per member. Members that all have the same seed share the decisions, computed once.
        rate: Share of units dropped; 0 drops none.
        width: Units per row.

    Example:
        >>> stream = DropoutStream([7], rate=0.2, width=8, device=torch.device("cpu"))
        >>> whole, part = torch.ones(1, 4, 8), torch.ones(1, 2, 8)
        >>> stream.drop_(whole, position=0)
        >>> stream.drop_(part, position=2)
        >>> bool((whole[:, 2:] == part).all())
        True
    """

    def __init__(self, seeds: Sequence[int], *, rate: float, width: int, device: torch.device) -> None:
        self._n_words, self._width = -(-width // _LANES), width
        self.threshold = float(round(rate * _LANE_VALUES) - _LANE_VALUES // 2 - 1)
        self._rate, self._seed = rate, seeds[0]
        is_shared = len(set(seeds)) == 1
        keys = torch.tensor(seeds[:1] if is_shared else seeds, dtype=torch.int64)
        self._keys = mix_(keys + 1).view(-1, 1, 1).to(device)
        self._buffers: dict[int, tuple[torch.Tensor, ...]] = {}
        self._lanes: dict[int, torch.Tensor] = {}

    @property
    def scale(self) -> float:
        """The factor that makes up for the dropped units."""
        return 1.0 / (1.0 - self._rate)

    def drop_(self, units: torch.Tensor, *, position: int) -> None:
        """Zero the dropped ``units`` (members, rows, width); their first row stands at ``position``."""
        if self._rate == 0:
            return
        if len(units) == 1 and units.device.type == "cpu" and self._width % 8 == 0:
            self._drop_kept(units, position)
        else:
            self._drop_anew(units, position)

    def _drop_kept(self, units: torch.Tensor, position: int) -> None:
        """Zero the dropped units of one member by decisions that are kept."""
        factors, done = _list_factors(), 0
        while done < units.shape[1]:
            number, start = divmod(position + done, KEPT_ROWS)
            stop = min(KEPT_ROWS, start + units.shape[1] - done)
            part = units[:, done : done + stop - start]
            if part.shape[1] not in self._lanes:
                self._lanes[part.shape[1]] = torch.empty_like(part)
            lanes = self._lanes[part.shape[1]]
            np.take(factors, self._read(number)[start:stop].ravel(), axis=0, out=lanes.view(-1, 8).numpy(), mode="clip")
            keep_above_(part, lanes, 0.0)
            done += stop - start

    def _read(self, number: int) -> npt.NDArray[np.uint8]:
        """A block of decisions as packed bits, (KEPT_ROWS, width / 8)."""

        def draw() -> npt.NDArray[np.uint8]:
            kept = torch.ones(1, KEPT_ROWS, self._width)
            self._drop_anew(kept, number * KEPT_ROWS)
            return np.packbits(kept[0].bool().numpy(), axis=1)

        return _KEPT.read((self._seed, self._rate, self._width), number, draw)

    def _drop_anew(self, units: torch.Tensor, position: int) -> None:
        n_rows, width = units.shape[1:]
        if n_rows not in self._buffers:
            counters = torch.arange(n_rows * self._n_words, device=units.device) * _as_signed(_WEYL)
            words = torch.empty(len(self._keys), n_rows, self._n_words, dtype=torch.int64, device=units.device)
            lanes = torch.empty(len(self._keys), n_rows, width, device=units.device)
            self._buffers[n_rows] = (counters.view(n_rows, -1), words, torch.empty_like(words), lanes)
        counters, words, spare, lanes = self._buffers[n_rows]
        offset = self._keys + _as_signed(position * self._n_words * _WEYL)
        torch.add(counters, offset, out=words)
        mix_(words, spare)
        lanes.copy_(words.view(torch.int16)[..., : lanes.shape[-1]])
        keep_above_(units, lanes, self.threshold)


def keep_above_(values: torch.Tensor, guide: torch.Tensor, threshold: float) -> None:
    """Zero ``values`` where ``guide`` is not above the threshold: one pass, where a boolean mask takes three.

    Example:
        >>> values = torch.ones(3)
        >>> keep_above_(values, torch.tensor([-1.0, 0.0, 1.0]), 0.0)
        >>> values
        tensor([0., 0., 1.])
    """
    torch.ops.aten.threshold_backward.grad_input(values, guide, threshold, grad_input=values)


def mix_(words: torch.Tensor, spare: torch.Tensor | None = None) -> torch.Tensor:
    """Hash 64-bit words in place by SplitMix64's finaliser; ``spare`` is scratch of the same shape."""
    spare = torch.empty_like(words) if spare is None else spare
    for shift, factor in ((30, _FIRST_FACTOR), (27, _SECOND_FACTOR), (31, None)):
        torch.bitwise_right_shift(words, shift, out=spare)
        spare.bitwise_and_((1 << (64 - shift)) - 1)  # torch shifts copies of the sign in: take them out
        words.bitwise_xor_(spare)
        if factor is not None:
            words.mul_(factor)
    return words


def _as_signed(value: int) -> int:
    """The signed 64-bit number with the same low 64 bits."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


class KeptBlocks:
    """Blocks of packed decisions by stream and number; when there are too many, the stream unused for longest goes."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Hashable, dict[int, npt.NDArray[np.uint8]]] = OrderedDict()
        self._lock, self._n_bytes = Lock(), 0

    def read(self, stream: Hashable, number: int, draw: Callable[[], npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
        """A block of a stream; ``draw`` makes it if it is not kept."""
        with self._lock:
            blocks = self._streams.setdefault(stream, {})
            self._streams.move_to_end(stream)
            if number in blocks:
                return blocks[number]
        block = draw()
        with self._lock:
            while self._n_bytes + block.nbytes > MOST_BYTES and len(self._streams) > 1:
                _, dropped = self._streams.popitem(last=False)
                self._n_bytes -= sum(old.nbytes for old in dropped.values())
            if self._n_bytes + block.nbytes <= MOST_BYTES and number not in self._streams.setdefault(stream, {}):
                self._streams[stream][number] = block
                self._n_bytes += block.nbytes
        return block


_KEPT = KeptBlocks()


@cache
def _list_factors() -> npt.NDArray[np.float32]:
    """Eight decisions as numbers, 0 or 1, by the byte that holds their bits, (256, 8)."""
    return np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
