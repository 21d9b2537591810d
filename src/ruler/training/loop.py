"""The only optimiser loop: plain training and every unlearning method run through it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ruler.core.checks import check_number
from ruler.core.errors import DivergedError, InputError
from ruler.core.progress import track
from ruler.core.registry import Registry
from ruler.training.batches import Batch, Batches, cycle

LOOP_VERSION = 1
"""Raised with every change that can move a trained weight; part of each checkpoint's key."""

Objective = Callable[..., torch.Tensor]
"""(model, one batch of each source) -> the loss to minimise."""

State = dict[str, Any]


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is optimised; the defaults are the paper's full-batch training.

    Args:
        epochs: Passes over the (first) source of records.
        learning_rate: Step size of the optimiser.
        batch_size: Records a step; None takes all at once.
        weight_decay: As the optimiser understands it.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        momentum: Of ``sgd`` alone.
        loss_bound: A loss beyond this size, on either side of zero, counts as diverged.

    Example:
        >>> TrainingSettings(epochs=0)
        Traceback (most recent call last):
        ruler.core.errors.InputError: epochs must be a whole number of at least 1; got 0.
    """

    epochs: int = 50
    learning_rate: float = 1e-3
    batch_size: int | None = None
    weight_decay: float = 0.0
    optimizer: str = "adam"
    momentum: float = 0.0
    loss_bound: float = 1e4

    def __post_init__(self) -> None:
        check_number(self.epochs, "epochs", minimum=1, is_whole=True)
        check_number(self.learning_rate, "learning_rate", minimum=0, is_strict=True)
        if self.batch_size is not None:
            check_number(self.batch_size, "batch_size", minimum=1, is_whole=True)
        check_number(self.weight_decay, "weight_decay", minimum=0)
        check_number(self.momentum, "momentum", minimum=0)
        check_number(self.loss_bound, "loss_bound", minimum=0, is_strict=True)
        OPTIMIZERS[self.optimizer]


def _make_adam(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def _make_adamw(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def _make_sgd(parameters: list[nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        parameters, lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )


OPTIMIZERS = Registry("optimizer", {"adam": _make_adam, "adamw": _make_adamw, "sgd": _make_sgd})


def optimize(
    model: nn.Module,
    objective: Objective,
    sources: Mapping[str, Any],
    settings: TrainingSettings,
    *,
    seed: int = 0,
    progress: bool = False,
    on_epoch: Callable[[int, float], None] | None = None,
) -> tuple[float, ...]:
    """Minimise ``objective(model, *batches)`` in place, in train mode, where the model lies.

    An epoch is one pass over the first source; each of its batches meets the next batch of every other
    source, which starts over, freshly shuffled, whenever it ends. With ``batch_size`` None every source is
    one batch. Dropout draws from the global torch stream, as the caller seeded it; the order of mini batches
    has its own generators.

    Args:
        model: Parameters with ``requires_grad`` are trained; train and eval flags are put back afterwards.
        objective: From the model and one batch of each source to a scalar loss.
        sources: Name -> pair (X, y), Dataset or DataLoader, in the order of the objective's arguments.
        settings: Epochs, rate, batch size, optimiser, bound.
        seed: Of the mini-batch order.
        progress: Show a bar, if stderr is a terminal.
        on_epoch: Called with (epoch from 1, mean loss) after each epoch.

    Returns:
        The mean loss of each epoch.

    Raises:
        DivergedError: A loss is not finite or beyond its bound. The model is left in its last good state,
            which the error carries too.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model, rows = nn.Linear(1, 2), torch.tensor([[-1.0], [1.0]])
        >>> data = {"data": (rows, torch.tensor([0, 1]))}
        >>> losses = optimize(model, cross_entropy, data, TrainingSettings(epochs=20))
        >>> losses[-1] < losses[0]
        True
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("model must have parameters with requires_grad; got none. Unfreeze some layers.")
    streams = [
        Batches(source, model, batch_size=settings.batch_size, seed=_order_seed(seed, i), name=name)
        for i, (name, source) in enumerate(sources.items())
    ]
    optimizer = OPTIMIZERS[settings.optimizer](parameters, settings)
    guard = _Guard(model, settings.loss_bound)
    was_training = [(module, module.training) for module in model.modules()]
    history: list[float] = []
    try:
        model.train()
        others = [cycle(stream) for stream in streams[1:]]
        for epoch in track(range(1, settings.epochs + 1), "training", n_items=settings.epochs, is_shown=progress):
            losses = _run_epoch(model, objective, _pair(streams[0], others), optimizer, guard, epoch)
            history.append(float(np.mean(losses)))
            if on_epoch is not None:
                on_epoch(epoch, history[-1])
        guard.check_parameters(settings.epochs)
    finally:
        optimizer.zero_grad(set_to_none=True)
        for module, is_training in was_training:
            module.training = is_training
    return tuple(history)


def _order_seed(seed: int, source: int) -> int:
    return int(np.random.SeedSequence([seed, source]).generate_state(1)[0])


def _pair(first: Batches, others: list[Iterator[Batch]]) -> Iterator[tuple[Batch, ...]]:
    for batch in first:
        yield (batch, *(next(other) for other in others))


def _run_epoch(
    model: nn.Module,
    objective: Objective,
    steps: Iterator[tuple[Batch, ...]],
    optimizer: torch.optim.Optimizer,
    guard: "_Guard",
    epoch: int,
) -> list[float]:
    losses = []
    for batches in steps:
        guard.remember()
        optimizer.zero_grad()
        loss = objective(model, *batches)
        losses.append(guard.check_loss(loss.item(), epoch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    if not losses:
        raise InputError("data must yield at least one batch an epoch; got none. Give a loader that holds records.")
    return losses


class _Guard:
    """Watches the loss and keeps the state of the last step whose loss was sound.

    A bad loss condemns the update before it, so the state to go back to is the one that gave the last sound
    loss.
    """

    def __init__(self, model: nn.Module, loss_bound: float) -> None:
        self._model = model
        self._bound = loss_bound
        self._good = self._candidate = self._copy_state()

    def _copy_state(self) -> State:
        return {name: value.detach().clone() for name, value in self._model.state_dict().items()}

    def remember(self) -> None:
        self._candidate = self._copy_state()

    def check_loss(self, loss: float, epoch: int) -> float:
        if not math.isfinite(loss) or abs(loss) > self._bound:
            self._stop(f"loss must stay finite and within {self._bound:g}; got {loss:g} in epoch {epoch}")
        self._good = self._candidate
        return loss

    def check_parameters(self, epoch: int) -> None:
        if not all(bool(parameter.isfinite().all()) for parameter in self._model.parameters()):
            self._stop(f"parameters must stay finite; got NaN or inf after epoch {epoch}")

    def _stop(self, what: str) -> None:
        self._model.load_state_dict(self._good)
        raise DivergedError(
            f"{what}. The last good state is kept; lower learning_rate or epochs, or look for bad inputs.",
            last_good_state=self._good,
        )


def compute_logits(model: nn.Module, inputs: Any) -> torch.Tensor:
    """Class scores of a batch: a mapping of inputs is spread, and an output with ``.logits`` is opened."""
    output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of one (inputs, labels) batch: the objective of plain training."""
    inputs, labels = batch
    return functional.cross_entropy(compute_logits(model, inputs), labels)
