"""The only optimiser loop: plain training and every unlearning method run through it."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from ruler.core.errors import InputError
from ruler.core.precision import fixed_algorithms
from ruler.core.progress import track
from ruler.training.batches import Batch, Batches, cycle
from ruler.training.cuda_graph import CapturedStep, can_capture, capture_graph
from ruler.training.objectives import compute_logits, cross_entropy
from ruler.training.settings import AUGMENTATIONS, TrainingSettings, make_optimizer
from ruler.training.steps import Clock, Guard, Objective, Step, Steps, run_checked, run_deferred

__all__ = ["LOOP_VERSION", "Objective", "TrainingSettings", "compute_logits", "cross_entropy", "optimize"]

LOOP_VERSION = 1
"""Raised with every change that can move a trained weight; part of each checkpoint's key. What moves those of one kind
of model alone is named in its trainer's description, which is part of the key too."""


@fixed_algorithms(torch)
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

    On CUDA, mini batches of tensors are trained on without waiting: a step is captured into a graph and replayed
    where that is possible, losses are looked at once an epoch, and the last good state is that of an epoch's start.
    There the objective must depend on nothing but the model and its batches. Convolutions give the same bits every
    time, unless another thread of the process embeds or searches meanwhile; other operations do as far as torch's do.

    Args:
        model: Parameters with ``requires_grad`` are trained; train and eval flags are put back afterwards.
        objective: From the model and one batch of each source to a scalar loss.
        sources: Name -> pair (X, y), ``MaskedSentences``, Dataset or DataLoader, in the order of the objective's
            arguments.
        settings: Epochs, rate, batch size, optimiser, bound.
        seed: Of the mini-batch order, of masks and of augmentation.
        progress: Show a bar, if stderr is a terminal.
        on_epoch: Called with (epoch from 1, mean loss) after each epoch.

    Returns:
        The mean loss of each epoch.

    Raises:
        DivergedError: A loss is not finite or beyond its bound. The model is left in its last good state,
            which the error carries too.

    Example:
        >>> import torch
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
    step = Step(model, objective, optimizer, settings.precision)
    run_epoch = partial(run_deferred, CapturedStep(step, capture_graph)) if is_captured else partial(run_checked, step)
    clock, guard = Clock(optimizer, settings, streams[0]), Guard(model, settings.loss_bound)
    was_training = [(module, module.training) for module in model.modules()]
    history: list[float] = []
    try:
        model.train()
        others = [cycle(stream) for stream in streams[1:]]
        for epoch in track(range(1, settings.epochs + 1), "training", n_items=settings.epochs, is_shown=progress):
            losses = run_epoch(clock.pace(_pair(streams[0], others)), guard, epoch)
            history.append(float(np.mean(losses)))
            if on_epoch is not None:
                on_epoch(epoch, history[-1])
        guard.check_parameters(settings.epochs)
    finally:
        optimizer.zero_grad(set_to_none=True)
        for module, is_training in was_training:
            module.training = is_training
    return tuple(history)


def _open_streams(sources: Mapping[str, Any], model: nn.Module, settings: TrainingSettings, seed: int) -> list[Batches]:
    """One stream a source; drawing fewer records and augmentation are for the first alone."""
    first: dict[str, Any] = {
        "records_per_epoch": settings.records_per_epoch,
        "augment": AUGMENTATIONS[settings.augment],
    }
    return [
        Batches(
            source,
            model,
            batch_size=settings.batch_size,
            seed=_order_seed(seed, i),
            name=name,
            **(first if i == 0 else {}),
        )
        for i, (name, source) in enumerate(sources.items())
    ]


def _order_seed(seed: int, source: int) -> int:
    return int(np.random.SeedSequence([seed, source]).generate_state(1)[0])


def _pair(first: Batches, others: list[Iterator[Batch]]) -> Steps:
    for batch in first:
        yield (batch, *(next(other) for other in others))
