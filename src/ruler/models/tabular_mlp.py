"""The paper's primary model: a perceptron with two hidden layers, and dropout with the paper's masks on every CPU."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ruler.models.fused_pass import FusedPass

_HEAD_DROPOUT = 5  # the layers before it end with the second ReLU
_BITS = (1 << 53) - 1  # a double between 0 and 1 holds 53 random bits
_AT_ONCE = 1 << 16  # numbers: 512 kB of raw bits stay in a core's cache

CHUNK = 1 << 20
"""Bits per chunk of a sequence that is kept."""

MOST_CHUNKS = 1 << 10
"""Chunks that all sequences together keep, 128 kB each; what comes after them is drawn anew for every model."""

Packed = npt.NDArray[np.uint8]


class TabularMLP(nn.Module):
    """Linear, ReLU, Dropout twice, then a linear head; parameters ``net.0``, ``net.3`` and ``net.6``.

    The layers are made in this order, so that a seed set just before gives the published initial weights.

    Args:
        n_features: Columns of the input.
        n_classes: Columns of the logits.
        hidden: Width of both hidden layers, and of the representation.
        dropout: Share of units dropped after each ReLU in train mode.

    Example:
        >>> model = TabularMLP(13).eval()
        >>> rows = torch.zeros(4, 13)
        >>> tuple(model(rows).shape), tuple(model.penultimate(rows).shape)
        ((4, 2), (4, 128))
    """

    def __init__(self, n_features: int, n_classes: int = 2, hidden: int = 128, dropout: float = 0.2) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_features, hidden),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden, n_classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of rows (n, n_features)."""
        replay, weights = ACTIVE.get(), tuple(self.parameters())
        rates = {getattr(self.net[place], "p", 0.0) for place in _DROPOUTS}
        logits: torch.Tensor
        if replay is not None and len(rates) == 1 and 0 < (rate := rates.pop()) < 1 and self._can_fuse(x, weights):
            masks = [replay.read(len(x) * len(weights[0]), rate) for _ in range(2)]
            logits = FusedPass.apply(x, *weights, *masks, rate)  # type: ignore[no-untyped-call]
        else:
            logits = self.net(x)
        return logits

    def _can_fuse(self, x: torch.Tensor, weights: tuple[nn.Parameter, ...]) -> bool:
        """Whether a pass is training, in float32 on a CPU, of all these layers and nothing else."""
        return (
            self.training
            and torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and all(value.dtype is torch.float32 and value.device.type == "cpu" for value in (x, *weights))
            and all(value.requires_grad for value in weights)
            and len(weights) == 6
            and not x.requires_grad
            and x.ndim == 2
            and x.is_contiguous()
            and len(x) > 0
            and len(weights[0]) % 8 == 0  # masks are read by the byte
            and [type(layer) for layer in self.net] == _LAYERS
            and not any(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks for layer in self.net)
        )

    def penultimate(self, x: torch.Tensor) -> torch.Tensor:
        """The representation of each row: the output of the second ReLU, (n, hidden)."""
        representation: torch.Tensor = self.net[:_HEAD_DROPOUT](x)
        return representation


class Dropout(nn.Dropout):
    """``nn.Dropout`` whose CPU masks are those of torch's Mersenne Twister, bit for bit, on any processor.

    The published weights were trained with masks from the sequential generator. torch itself draws them so on most
    processors, but from another generator on Intel's. Here the raw bits are compared with a whole number instead of
    being made into doubles first. Other devices use torch's own dropout.

    Example:
        >>> rows = torch.ones(3, 4)
        >>> _ = torch.manual_seed(0)
        >>> Dropout(0.5)(rows).unique().tolist()
        [0.0, 2.0]
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop each unit with the rate in train mode; scale the others up."""
        if not self.training or not 0 < self.p < 1 or x.device.type != "cpu":
            return super().forward(x)
        return x * draw_noise(x, self.p)


def draw_noise(like: torch.Tensor, rate: float) -> torch.Tensor:
    """A factor for each unit, 0 with probability ``rate`` and else 1 / (1 - rate), from the global generator.

    Example:
        >>> units = torch.ones(64)
        >>> _ = torch.manual_seed(3)
        >>> noise = draw_noise(units, 0.2)
        >>> _ = torch.manual_seed(3)
        >>> bool((torch.empty(64, dtype=torch.double).uniform_().lt(0.8) == (noise > 0)).all())
        True
    """
    noise = torch.empty_like(like, requires_grad=False, memory_format=torch.contiguous_format)
    replay = ACTIVE.get()
    if replay is None:
        _draw_bits(rate, noise.view(-1))
    else:
        packed = replay.read(noise.numel(), rate)
        noise.view(-1).copy_(torch.from_numpy(np.unpackbits(packed, count=noise.numel())))
    return noise.mul_(1 / (1 - rate))


def _draw_bits(rate: float, flat: torch.Tensor, generator: torch.Generator | None = None) -> None:
    """Fill numbers of any type with 0 at this rate and else 1, one number of the generator for each."""
    raw = torch.empty(min(_AT_ONCE, flat.numel()), dtype=torch.int64)
    threshold = math.ceil((1 - rate) * 2.0**53)
    for part in torch.split(flat, _AT_ONCE):
        bits = raw[: len(part)].random_(-(2**63), None, generator=generator).bitwise_and_(_BITS)
        torch.lt(bits, threshold, out=part)


class _Sequence:
    """Bits of a generator from a state on, in chunks."""

    def __init__(self, state: torch.Tensor, rate: float) -> None:
        self._rate, self._generator = rate, torch.Generator()
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
            bits = torch.empty(CHUNK, dtype=torch.bool)
            _draw_bits(self._rate, bits, self._generator)
            self._live = np.packbits(bits.numpy())
            if may_keep and self._next == len(self.kept):
                self.kept.append(self._live)
                self._end_of_kept = self._generator.get_state()
            self._next += 1
        return self._live


class MaskReplay:
    """Dropout masks that are drawn once and used by every model that starts from the same seed.

    Models of one seed draw from one sequence of random bits: the original and its oracles, and all unlearned models. On
    a CPU drawing takes a third of a step, and reading bits that were kept far less. The masks are the same, bit for
    bit. Sequences are found by the state of torch's generator that they start from.
    """

    def __init__(self) -> None:
        self._sequences: OrderedDict[tuple[bytes, float], _Sequence] = OrderedDict()
        self._state: tuple[bytes, float] | None = None
        self._offset = 0

    def read(self, n_bits: int, rate: float) -> Packed:
        """The next bits of the global generator's sequence, packed; the generator itself stays where it is."""
        state = torch.get_rng_state()
        key = (state.numpy().tobytes(), rate)
        if key != self._state:  # seeded anew
            self._state, self._offset = key, 0
        if key not in self._sequences:
            self._sequences[key] = _Sequence(state, rate)
        self._sequences.move_to_end(key)
        while len(self._sequences) > 1 and self.n_kept >= MOST_CHUNKS:
            self._sequences.popitem(last=False)
        parts, end = [np.empty(0, dtype=np.uint8)], self._offset + n_bits
        is_aligned = self._offset % 8 == 0
        while self._offset < end:
            number, start = divmod(self._offset, CHUNK)
            stop = min(CHUNK, start + end - self._offset)
            packed = self._sequences[key].chunk(number, self.n_kept < MOST_CHUNKS)
            parts.append(
                packed[start // 8 : -(-stop // 8)] if is_aligned else np.unpackbits(packed, count=stop)[start:]
            )
            self._offset += stop - start
        found = np.concatenate(parts)
        return found if is_aligned else np.packbits(found)

    @property
    def n_kept(self) -> int:
        """Chunks that are kept."""
        return sum(len(sequence.kept) for sequence in self._sequences.values())


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


_LAYERS = [nn.Linear, nn.ReLU, Dropout, nn.Linear, nn.ReLU, Dropout, nn.Linear]
_DROPOUTS = 2, 5
