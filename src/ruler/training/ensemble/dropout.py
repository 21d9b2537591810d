"""Dropout from counters: a unit's fate is a hash of seed and position, never of the company or the chunk.

A word of 64 random bits decides four units, 16 bits each, so that the rate is exact to 2**-16. The hash is
SplitMix64 (a Weyl sequence, then a finaliser of two multiplications) in plain integer operations, which give
the same bits on CPU and GPU.
"""

from collections.abc import Sequence

import torch

_LANES = 4  # units decided by one 64-bit word
_LANE_VALUES = 1 << 16
_WEYL = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9 - (1 << 64)  # as signed 64-bit numbers, which is what torch multiplies
_SECOND_FACTOR = 0x94D049BB133111EB - (1 << 64)


class DropoutStream:
    """The dropout decisions of members that train on the same rows.

    Each seed has one long stream of decisions, a row of units after the other, and position p is the p-th row
    that a run drops units of: all rows of the first layer, all rows of the second, then the next pass or epoch.
    The one-by-one loop reads its generator in the same order. So here as there, equal seeds and row counts give
    equal decisions, and an original and its oracles read the same stream but shift against each other.

    Args:
        seeds: One a member. Members that all have the same seed share the decisions, computed once.
        rate: Share of units dropped; 0 drops none.
        width: Units a row.

    Example:
        >>> stream = DropoutStream([7], rate=0.2, width=8, device=torch.device("cpu"))
        >>> whole, part = torch.ones(1, 4, 8), torch.ones(1, 2, 8)
        >>> stream.drop_(whole, position=0)
        >>> stream.drop_(part, position=2)
        >>> bool((whole[:, 2:] == part).all())
        True
    """

    def __init__(self, seeds: Sequence[int], *, rate: float, width: int, device: torch.device) -> None:
        self._n_words = -(-width // _LANES)
        self._threshold = float(round(rate * _LANE_VALUES) - _LANE_VALUES // 2 - 1)
        self._rate = rate
        is_shared = len(set(seeds)) == 1
        keys = torch.tensor(seeds[:1] if is_shared else seeds, dtype=torch.int64)
        self._keys = _mix_(keys + 1).view(-1, 1, 1).to(device)
        self._buffers: dict[int, tuple[torch.Tensor, ...]] = {}

    @property
    def scale(self) -> float:
        """The factor that makes up for the dropped units."""
        return 1.0 / (1.0 - self._rate)

    def drop_(self, units: torch.Tensor, *, position: int) -> None:
        """Zero the dropped ``units`` (members, rows, width); their first row stands at ``position``."""
        if self._rate == 0:
            return
        counters, words, spare, lanes = self._buffers_for(units)
        offset = self._keys + _as_signed(position * self._n_words * _WEYL)
        torch.add(counters, offset, out=words)
        _mix_(words, spare)
        lanes.copy_(words.view(torch.int16)[..., : lanes.shape[-1]])
        keep_above_(units, lanes, self._threshold)

    def _buffers_for(self, units: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n_rows, width = units.shape[1:]
        if n_rows not in self._buffers:
            n_streams = len(self._keys)
            counters = torch.arange(n_rows * self._n_words, device=units.device) * _as_signed(_WEYL)
            words = torch.empty(n_streams, n_rows, self._n_words, dtype=torch.int64, device=units.device)
            lanes = torch.empty(n_streams, n_rows, width, device=units.device)
            self._buffers[n_rows] = (counters.view(n_rows, -1), words, torch.empty_like(words), lanes)
        return self._buffers[n_rows]


def keep_above_(values: torch.Tensor, guide: torch.Tensor, threshold: float) -> None:
    """Zero ``values`` where ``guide`` is not above the threshold: one pass, where a boolean mask takes three.

    Example:
        >>> values = torch.ones(3)
        >>> keep_above_(values, torch.tensor([-1.0, 0.0, 1.0]), 0.0)
        >>> values
        tensor([0., 0., 1.])
    """
    torch.ops.aten.threshold_backward.grad_input(values, guide, threshold, grad_input=values)


def _mix_(words: torch.Tensor, spare: torch.Tensor | None = None) -> torch.Tensor:
    """SplitMix64's finaliser, in place; ``spare`` is scratch of the same shape."""
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
