"""Loss and gradient of stacked members over one chunk of rows, written out by hand, and their dropout.

Classes lie along the second-last axis, (members, n_classes, rows): products with two columns are slow, with
two rows they are not. Hidden units are kept without dropout's factor 1 / (1 - rate), which enters the
products as ``alpha`` instead; a unit is above zero exactly where the gradient passes ReLU and dropout.

Dropout comes from counters: whether a unit is dropped is a hash of seed and position and depends neither on the other
members nor on the chunk. A word of 64 random bits decides four units, 16 bits each, so that the rate is exact to
2**-16. The hash is SplitMix64 in plain integer operations, which give the same bits on CPU and GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ruler.core.arithmetic import iterate_blocks
from ruler.training.ensemble.stacked_mlp import Layers

N_DROPOUTS = 2
"""Layers with dropout: how often an epoch draws for a row."""

_LANES = 4  # units decided by one 64-bit word
_LANE_VALUES = 1 << 16
_WEYL = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9 - (1 << 64)  # as signed 64-bit numbers, which is what torch multiplies
_SECOND_FACTOR = 0x94D049BB133111EB - (1 << 64)


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
        self._n_words = -(-width // _LANES)
        self.threshold = float(round(rate * _LANE_VALUES) - _LANE_VALUES // 2 - 1)
        self._rate = rate
        is_shared = len(set(seeds)) == 1
        keys = torch.tensor(seeds[:1] if is_shared else seeds, dtype=torch.int64)
        self._keys = mix_(keys + 1).view(-1, 1, 1).to(device)
        self._buffers: dict[int, tuple[torch.Tensor, ...]] = {}

    @property
    def scale(self) -> float:
        """The factor that makes up for the dropped units."""
        return 1.0 / (1.0 - self._rate)

    def drop_(self, units: torch.Tensor, *, position: int) -> None:
        """Zero the dropped ``units`` (members, rows, width); their first row stands at ``position``."""
        if self._rate == 0:
            return
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


@dataclass(frozen=True, eq=False)
class Pass:
    """One sweep over some rows in an epoch, and what its rows add to the loss.

    The loss is the mean over the rows of ``ce_weight`` CE(label) + ``kl_weight`` KL(teacher || student), the
    divergence being of logits divided by ``temperature``.

    Args:
        features: (n, n_features) rows that all members read.
        targets: (n_classes, n) one-hot labels.
        teacher: (members or 1, n_classes, n) softened probabilities; None where ``kl_weight`` is 0.
    """

    features: torch.Tensor
    targets: torch.Tensor
    ce_weight: float = 1.0
    kl_weight: float = 0.0
    temperature: float = 1.0
    teacher: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.features)


class Scratch:
    """Memory for hidden units and their gradients, used again by every chunk of the same size."""

    def __init__(self, layers: Layers, n_rows: int) -> None:
        members, hidden = layers.bias_1.shape
        self.hidden_1, self.hidden_2, self.gradient_1, self.gradient_2 = (
            layers.bias_1.new_empty(members, n_rows, hidden) for _ in range(4)
        )
        self.ones = layers.bias_1.new_ones(1, 1, n_rows).expand(members, 1, n_rows)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive rows of a pass that go through the members at once, with weights of a single row."""

    inputs: torch.Tensor  # (members, rows, n_features)
    targets: torch.Tensor  # (n_classes, rows)
    teacher: torch.Tensor | None  # (members or 1, n_classes, rows)
    ce_weight: float
    kl_weight: float
    temperature: float
    positions: tuple[int, int]  # of its first row in the first epoch's dropout, for either hidden layer
    scratch: Scratch


def split_passes(passes: Sequence[Pass], layers: Layers, chunk_rows: int) -> list[Chunk]:
    """All chunks of an epoch, in order."""
    chunks, drawn, scratch = [], 0, dict[int, Scratch]()
    for sweep in passes:
        for start, stop in iterate_blocks(len(sweep), chunk_rows):
            if stop - start not in scratch:
                scratch[stop - start] = Scratch(layers, stop - start)
            chunk = Chunk(
                inputs=sweep.features[start:stop].expand(len(layers.bias_1), -1, -1),
                targets=sweep.targets[:, start:stop],
                teacher=None if sweep.teacher is None else sweep.teacher[:, :, start:stop],
                ce_weight=sweep.ce_weight / len(sweep),
                kl_weight=sweep.kl_weight / len(sweep),
                temperature=sweep.temperature,
                positions=(drawn + start, drawn + len(sweep) + start),
                scratch=scratch[stop - start],
            )
            chunks.append(chunk)
        drawn += N_DROPOUTS * len(sweep)
    return chunks


def add_gradient(layers: Layers, gradients: Layers, chunk: Chunk, stream: DropoutStream, *, drawn: int) -> torch.Tensor:
    """Add the gradient of a chunk's share of the loss to ``gradients``; returns that share, (members,).

    Args:
        drawn: Rows that dropout was drawn for before this epoch.
    """
    scale, scratch = stream.scale, chunk.scratch
    first, second = scratch.hidden_1, scratch.hidden_2
    torch.baddbmm(layers.bias_1[:, None], chunk.inputs, layers.weight_1.mT, out=first).clamp_min_(0)
    stream.drop_(first, position=drawn + chunk.positions[0])
    torch.baddbmm(layers.bias_2[:, None], first, layers.weight_2.mT, alpha=scale, out=second).clamp_min_(0)
    stream.drop_(second, position=drawn + chunk.positions[1])
    logits = torch.baddbmm(layers.bias_3[:, :, None], layers.weight_3, second.mT, alpha=scale)
    loss, at_logits = differentiate_loss(logits, chunk)

    gradients.weight_3.baddbmm_(at_logits, second, alpha=scale)
    gradients.bias_3.add_(at_logits.sum(dim=2))
    at_second = scratch.gradient_2.baddbmm_(at_logits.mT, layers.weight_3, beta=0, alpha=scale)
    keep_above_(at_second, second, 0.0)
    gradients.weight_2.baddbmm_(at_second.mT, first, alpha=scale)
    gradients.bias_2[:, None].baddbmm_(scratch.ones, at_second)
    at_first = scratch.gradient_1.baddbmm_(at_second, layers.weight_2, beta=0, alpha=scale)
    keep_above_(at_first, first, 0.0)
    gradients.weight_1.mT.baddbmm_(chunk.inputs.mT, at_first)
    gradients.bias_1[:, None].baddbmm_(scratch.ones, at_first)
    return loss


def differentiate_loss(logits: torch.Tensor, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    """The chunk's share of the loss (members,), and its gradient at the logits (members, n_classes, rows)."""
    loss, gradient = torch.zeros_like(logits[:, 0, 0]), torch.zeros_like(logits)
    if chunk.ce_weight:
        log_student = logits.log_softmax(dim=1)
        loss.sub_((log_student * chunk.targets).sum(dim=(1, 2)), alpha=chunk.ce_weight)
        gradient.add_(log_student.exp_().sub_(chunk.targets), alpha=chunk.ce_weight)
    if chunk.teacher is not None:
        log_student = (logits / chunk.temperature).log_softmax(dim=1)
        divergence = torch.xlogy(chunk.teacher, chunk.teacher) - chunk.teacher * log_student
        loss.add_(divergence.sum(dim=(1, 2)), alpha=chunk.kl_weight)
        gradient.add_(log_student.exp_().sub_(chunk.teacher), alpha=chunk.kl_weight / chunk.temperature)
    return loss, gradient
