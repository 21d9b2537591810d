"""Loss and gradient of stacked members over one chunk of rows, written out by hand.

Classes lie along the second-last axis, (members, n_classes, rows): products with two columns are slow, with
two rows they are not. Hidden units are kept without dropout's factor 1 / (1 - rate), which enters the
products as ``alpha`` instead; a unit is above zero exactly where the gradient passes ReLU and dropout.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ruler.core.arithmetic import iterate_blocks
from ruler.models.products import has_onednn, multiply
from ruler.training.ensemble.dropout import N_DROPOUTS, DropoutStream, keep_above_
from ruler.training.ensemble.stacked_mlp import Layers


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
    is_alone = len(layers.bias_1) == 1 and layers.bias_1.device.type == "cpu" and has_onednn()
    first, second = scratch.hidden_1, scratch.hidden_2
    torch.baddbmm(layers.bias_1[:, None], chunk.inputs, layers.weight_1.mT, out=first).clamp_min_(0)
    stream.drop_(first, position=drawn + chunk.positions[0])
    if is_alone:
        second = multiply(first[0], layers.weight_2[0] * scale, layers.bias_2[0])[None]
    else:
        torch.baddbmm(layers.bias_2[:, None], first, layers.weight_2.mT, alpha=scale, out=second)
    second.clamp_min_(0)
    stream.drop_(second, position=drawn + chunk.positions[1])
    logits = torch.baddbmm(layers.bias_3[:, :, None], layers.weight_3, second.mT, alpha=scale)
    loss, at_logits = differentiate_loss(logits, chunk)

    gradients.weight_3.baddbmm_(at_logits, second, alpha=scale)
    gradients.bias_3.add_(at_logits.sum(dim=2))
    at_second = scratch.gradient_2.baddbmm_(at_logits.mT, layers.weight_3, beta=0, alpha=scale)
    keep_above_(at_second, second, 0.0)
    gradients.bias_2[:, None].baddbmm_(scratch.ones, at_second)
    if is_alone:
        gradients.weight_2[0].add_(multiply(at_second[0].t(), first[0].t()), alpha=scale)
        at_first = multiply(at_second[0], layers.weight_2[0].t() * scale)[None]
    else:
        gradients.weight_2.baddbmm_(at_second.mT, first, alpha=scale)
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
