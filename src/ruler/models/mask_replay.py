"""Dropout masks that are drawn once and used by every model that starts from the same seed.

Models of one seed draw from one sequence of random bits: the original and its oracles, and all unlearned models. On a
CPU drawing takes a third of a step, and reading bits that were kept far less. The masks are the same, bit for bit.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt
import torch

CHUNK = 1 << 20
"""Bits per chunk of a sequence."""

MOST_CHUNKS = 1 << 10
"""Chunks that all sequences together keep, 128 kB each; what comes after them is drawn anew for every model."""

DrawBits = Callable[[torch.Tensor, torch.Generator], None]
"""Fill a float tensor with 0 and 1, one number of the generator for each."""

Packed = npt.NDArray[np.uint8]


class _Sequence:
    """Bits of a generator from a state on, in chunks."""

    def __init__(self, state: torch.Tensor, draw: DrawBits) -> None:
        self._draw, self._generator = draw, torch.Generator()
        self._generator.set_state(state)
        self.kept: list[Packed] = []
        self._end_of_kept = state
        self._next, self._live = 0, np.empty(0, dtype=np.uint8)  # number of the next chunk, and the bits of the last

    def chunk(self, number: int, may_keep: bool) -> Packed:
        """The packed bits of a chunk."""
        if number < len(self.kept):
            return self.kept[number]
        if number < self._next - 1:  # it was not kept: draw again from where keeping ended
            self._generator.set_state(self._end_of_kept)
            self._next = len(self.kept)
        while self._next <= number:
            bits = torch.empty(CHUNK)
            self._draw(bits, self._generator)
            self._live = np.packbits(bits.numpy().astype(bool))
            if may_keep and self._next == len(self.kept):
                self.kept.append(self._live)
                self._end_of_kept = self._generator.get_state()
            self._next += 1
        return self._live


class MaskReplay:
    """Sequences of bits by the state of torch's generator that they start from."""

    def __init__(self) -> None:
        self._sequences: OrderedDict[tuple[bytes, float], _Sequence] = OrderedDict()
        self._state: tuple[bytes, float] | None = None
        self._offset = 0

    def fill(self, flat: torch.Tensor, rate: float, draw: DrawBits) -> None:
        """The next bits of the global generator's sequence, as 0 and 1; the generator itself stays where it is."""
        state = torch.get_rng_state()
        key = (state.numpy().tobytes(), rate)
        if key != self._state:  # seeded anew
            self._state, self._offset = key, 0
        if key not in self._sequences:
            self._sequences[key] = _Sequence(state, draw)
        self._sequences.move_to_end(key)
        self._make_room()
        sequence, done = self._sequences[key], 0
        while done < len(flat):
            number, start = divmod(self._offset, CHUNK)
            n_bits = min(CHUNK - start, len(flat) - done)
            bits = np.unpackbits(sequence.chunk(number, self.n_kept < MOST_CHUNKS), count=start + n_bits)[start:]
            flat[done : done + n_bits].copy_(torch.from_numpy(bits))
            done += n_bits
            self._offset += n_bits

    @property
    def n_kept(self) -> int:
        """Chunks that are kept."""
        return sum(len(sequence.kept) for sequence in self._sequences.values())

    def _make_room(self) -> None:
        while len(self._sequences) > 1 and self.n_kept >= MOST_CHUNKS:
            self._sequences.popitem(last=False)


ACTIVE: ContextVar[MaskReplay | None] = ContextVar("mask replay", default=None)


@contextmanager
def replay_masks(replay: MaskReplay) -> Iterator[None]:
    """Let masks on a CPU come from ``replay`` in this block, in which dropout alone may draw from torch's generator.

    Afterwards that generator is where it was: seed it before it is used again.
    """
    replay._state = None
    token = ACTIVE.set(replay)
    try:
        yield
    finally:
        ACTIVE.reset(token)
