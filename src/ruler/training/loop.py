"""The only optimiser loop: plain training and every unlearning method run through it."""

import math
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import ExitStack
from itertools import chain, count, repeat
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from ruler.core.determinism import fixed_algorithms, kept_modes
from ruler.core.errors import DivergedError, InputError
from ruler.core.progress import track
from ruler.training.batches import Batch, Batches, Source
from ruler.training.cuda_graph import CapturedStep, GraphCapture, can_capture
from ruler.training.fused import fused_norms, skipped_masks
from ruler.training.rotation import fused_rotation
from ruler.training.sentences import Completions, Preferences
from ruler.training.settings import SCHEDULES, TrainingSettings
from ruler.training.steps import Objective, Step, make_optimizer, set_rate

LOOP_VERSION = 1
"""Raised with every change that can move a trained weight; part of each checkpoint's key. What moves those of one kind
of model alone is named in its trainer's description, which is part of the key too."""


@fixed_algorithms(torch)
def optimize(
    model: nn.Module,
    objective: Objective,
    sources: Mapping[str, Source],
    settings: TrainingSettings,
    *,
    seed: int = 0,
    progress: bool = False,
    on_epoch: Callable[[int, float], None] | None = None,
    after_step: Callable[[nn.Module], None] | None = None,
) -> tuple[float, ...]:
    """Minimise ``objective(model, *batches)`` in place, in train mode, where the model lies.

    An epoch is one pass over the first source; each of its batches meets the next batch of every other
    source, which starts over, freshly shuffled, whenever it ends. With ``batch_size`` None every source is
    one batch. Dropout draws from the global torch stream, as the caller seeded it; the order of mini batches
    has its own generators.

    On CUDA, mini batches of tensors are trained on without waiting: a step is captured into a graph and replayed
    where that is possible, losses are checked once per epoch, and the last good state is that of an epoch's start.
    There the objective must depend on nothing but the model and its batches. Norms and rotations of causal language
    models are fused, and masks that places imply are left out. Convolutions give the same bits every time, unless
    another thread of the process embeds or searches meanwhile; other operations do as far as torch's do.

    Args:
        model: Parameters with ``requires_grad`` are trained; train and eval flags are put back afterwards.
        objective: From the model and one batch of each source to a scalar loss.
        sources: Name -> pair (X, y), ``MaskedSentences``, ``Completions``, Dataset or DataLoader, in the order of the
            objective's arguments.
        settings: Epochs, rate, batch size, optimiser, bound.
        seed: Of the mini-batch order, of masks and of augmentation.
        progress: Show a bar, if stderr is a terminal.
        on_epoch: Called with (epoch from 1, mean loss) after each epoch.
        after_step: Called with the model after every step, without gradients; part of the step that is captured.

    Returns:
        The mean loss of each epoch.

    Raises:
        DivergedError: A loss is not finite or beyond its bound. The model is left in its last good state,
            which the error carries too.

    Example:
        >>> from ruler.training.steps import cross_entropy
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
    streams = _open_streams(sources, model, settings, seed)
    is_captured = settings.batch_size is not None and can_capture(parameters, streams)
    optimizer = make_optimizer(parameters, settings, is_capturable=is_captured)
    step = Step(model, objective, optimizer, settings.precision, after_step)
    captured = CapturedStep(step, GraphCapture()) if is_captured else None
    rates, guard = _list_rates(settings, streams[0]), _Guard(model, settings.loss_bound)
    history: list[float] = []
    is_causal = all(isinstance(source, Completions | Preferences) for source in sources.values())
    with ExitStack() as stack:
        if is_captured and is_causal:
            stack.enter_context(fused_norms(model))
            stack.enter_context(fused_rotation(model))
            stack.enter_context(skipped_masks(model))
        if captured:
            stack.callback(captured.close)
        stack.callback(optimizer.zero_grad, set_to_none=True)
        stack.enter_context(kept_modes(model))
        model.train()
        # without end: when an epoch of theirs is over the next one starts, freshly shuffled
        others = [chain.from_iterable(repeat(stream)) for stream in streams[1:]]
        for epoch in track(range(1, settings.epochs + 1), "training", n_items=settings.epochs, is_shown=progress):
            batches = _pace(zip(streams[0], *others, strict=False), optimizer, rates)
            losses = _run_deferred(captured, batches, guard, epoch) if captured else _run(step, batches, guard, epoch)
            if not losses:
                raise InputError(
                    "data must yield at least one batch per epoch; got none. Give a loader that holds records."
                )
            history.append(float(np.mean(losses)))
            if on_epoch is not None:
                on_epoch(epoch, history[-1])
        guard.check_parameters(settings.epochs)
    return tuple(history)


def _open_streams(
    sources: Mapping[str, Source], model: nn.Module, settings: TrainingSettings, seed: int
) -> list[Batches]:
    """One stream per source; drawing fewer records and augmentation are for the first alone."""
    streams = []
    for i, (name, source) in enumerate(sources.items()):
        order_seed = int(np.random.SeedSequence([seed, i]).generate_state(1)[0])
        first: dict[str, Any] = {}
        if i == 0:
            first = {"records_per_epoch": settings.records_per_epoch, "augment": settings.augment}
        streams.append(Batches(source, model, batch_size=settings.batch_size, seed=order_seed, name=name, **first))
    return streams


def _list_rates(settings: TrainingSettings, epoch: Sized) -> Iterator[float] | None:
    """The rate of every step in order; None if it is constant."""
    if settings.schedule == "constant":
        return None
    try:
        n_steps = settings.epochs * len(epoch)
    except TypeError:
        raise InputError(
            f"schedule must be 'constant' for a loader that does not know its length; got {settings.schedule!r}."
        ) from None
    share_at = SCHEDULES[settings.schedule]
    return (settings.learning_rate * share_at(step, n_steps) for step in count())


def _pace(
    batches: Iterator[tuple[Batch, ...]], optimizer: torch.optim.Optimizer, rates: Iterator[float] | None
) -> Iterator[tuple[Batch, ...]]:
    """Pass the batches of an epoch on, each at its own rate."""
    for batch in batches:
        if rates is not None:
            set_rate(optimizer, next(rates))
        yield batch


def _run(step: Step, batches: Iterator[tuple[Batch, ...]], guard: "_Guard", epoch: int) -> list[float]:
    """Run an epoch in which every loss is checked before its step is taken."""
    losses = []
    for batch in batches:
        guard.remember()
        loss = step.compute_loss(batch)
        losses.append(guard.check_loss(loss.item(), epoch))
        step.descend(loss)
    return losses


def _run_deferred(step: CapturedStep, batches: Iterator[tuple[Batch, ...]], guard: "_Guard", epoch: int) -> list[float]:
    """Run an epoch whose losses stay on the device until its end, so that the host never waits for a step.

    The state is remembered once, at the start; it counts as good if the first loss, which it gave, is sound.
    """
    guard.remember()
    losses = [step(batch).clone() for batch in batches]
    values = torch.stack(losses).tolist() if losses else []
    return [guard.check_loss(loss, epoch) for loss in values]


class _Guard:
    """Watches the loss and keeps the last state that gave a sound one: a bad loss condemns the update before it."""

    def __init__(self, model: nn.Module, loss_bound: float) -> None:
        self._model, self._bound = model, loss_bound
        self.remember()
        self._good = self._candidate

    def remember(self) -> None:
        """Keep the present state, which is good if the loss that it gives is."""
        self._candidate = {name: value.detach().clone() for name, value in self._model.state_dict().items()}

    def check_loss(self, loss: float, epoch: int) -> float:
        """The loss itself if it is sound; otherwise put the model back into its last good state and raise."""
        if not math.isfinite(loss) or abs(loss) > self._bound:
            self._stop(f"loss must stay finite and within {self._bound:g}; got {loss:g} in epoch {epoch}")
        self._good = self._candidate
        return loss

    def check_parameters(self, epoch: int) -> None:
        """Check what the last step, which no loss follows, left behind."""
        if not all(bool(parameter.isfinite().all()) for parameter in self._model.parameters()):
            self._stop(f"parameters must stay finite; got NaN or inf after epoch {epoch}")

    def _stop(self, what: str) -> NoReturn:
        self._model.load_state_dict(self._good)
        raise DivergedError(
            f"{what}. The last good state is kept; lower learning_rate or epochs, or look for bad inputs.",
            last_good_state=self._good,
        )
