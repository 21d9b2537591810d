"""One step of the optimiser, an epoch of them, and the guard that watches their losses."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ruler.core.errors import DivergedError, InputError
from ruler.training.batches import Batch, device_of
from ruler.training.settings import SCHEDULES, TrainingSettings, set_rate, use_precision

Objective = Callable[..., torch.Tensor]
"""(model, one batch of each source) -> the loss to minimise."""

State = dict[str, Any]

Steps = Iterator[tuple[Batch, ...]]
"""One batch of each source, for each step of an epoch."""


class Step:
    """One step, operation by operation: batches -> the loss before it, detached."""

    def __init__(
        self, model: nn.Module, objective: Objective, optimizer: torch.optim.Optimizer, precision: str = "float32"
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.device = device_of(model)
        self._objective, self._precision = objective, precision

    def compute_loss(self, batches: tuple[Batch, ...]) -> torch.Tensor:
        """The loss, with old gradients gone."""
        self.optimizer.zero_grad()
        with use_precision(self._precision, self.device):
            return self._objective(self.model, *batches)

    def descend(self, loss: torch.Tensor) -> None:
        """Its gradient, and the optimiser's move along it."""
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def __call__(self, batches: tuple[Batch, ...]) -> torch.Tensor:
        """Both together; the host need not wait for either."""
        loss = self.compute_loss(batches)
        self.descend(loss)
        return loss.detach()


def run_checked(step: Step, steps: Steps, guard: "Guard", epoch: int) -> list[float]:
    """An epoch in which every loss is looked at before its step is taken."""
    losses = []
    for batches in steps:
        guard.remember()
        loss = step.compute_loss(batches)
        losses.append(guard.check_loss(loss.item(), epoch))
        step.descend(loss)
    return _check_any(losses)


def run_deferred(
    run: Callable[[tuple[Batch, ...]], torch.Tensor], steps: Steps, guard: "Guard", epoch: int
) -> list[float]:
    """An epoch whose losses stay on the device until its end, so that the host never waits for a step.

    The state is remembered once, at the start; it counts as good if the first loss, which it gave, is sound.
    """
    guard.remember()
    losses = [run(batches).clone() for batches in steps]
    values = torch.stack(losses).tolist() if losses else []
    return _check_any([guard.check_loss(loss, epoch) for loss in values])


def _check_any(losses: list[float]) -> list[float]:
    if not losses:
        raise InputError("data must yield at least one batch an epoch; got none. Give a loader that holds records.")
    return losses


class Clock:
    """Counts steps and sets the rate that the schedule has for each."""

    def __init__(self, optimizer: torch.optim.Optimizer, settings: TrainingSettings, epoch: Any) -> None:
        self._optimizer, self._settings = optimizer, settings
        self._step = self._n_steps = 0
        if settings.schedule != "constant":
            self._n_steps = settings.epochs * _count_steps(epoch, settings.schedule)

    def pace(self, steps: Steps) -> Steps:
        """Pass the steps of an epoch on, each at its own rate."""
        if self._n_steps == 0:
            yield from steps
            return
        share_at = SCHEDULES[self._settings.schedule]
        for batches in steps:
            set_rate(self._optimizer, self._settings.learning_rate * share_at(self._step, self._n_steps))
            self._step += 1
            yield batches


def _count_steps(epoch: Any, schedule: str) -> int:
    try:
        return len(epoch)
    except TypeError:
        raise InputError(
            f"schedule must be 'constant' for a loader that does not know its length; got {schedule!r}."
        ) from None


class Guard:
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
        """Keep the present state, which is good if the loss that it gives is."""
        self._candidate = self._copy_state()

    def check_loss(self, loss: float, epoch: int) -> float:
        """The loss itself, if it is sound.

        Raises:
            DivergedError: It is not; the model is back in its last good state.
        """
        if not math.isfinite(loss) or abs(loss) > self._bound:
            self._stop(f"loss must stay finite and within {self._bound:g}; got {loss:g} in epoch {epoch}")
        self._good = self._candidate
        return loss

    def check_parameters(self, epoch: int) -> None:
        """Look at what the last step, which no loss follows, left behind."""
        if not all(bool(parameter.isfinite().all()) for parameter in self._model.parameters()):
            self._stop(f"parameters must stay finite; got NaN or inf after epoch {epoch}")

    def _stop(self, what: str) -> None:
        self._model.load_state_dict(self._good)
        raise DivergedError(
            f"{what}. The last good state is kept; lower learning_rate or epochs, or look for bad inputs.",
            last_good_state=self._good,
        )
