"""Adam on stacked members: the loop over epochs and row chunks, and who runs where."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from ruler.core.errors import DivergedError, InputError
from ruler.core.progress import show_progress
from ruler.training.ensemble.dropout import DropoutStream
from ruler.training.ensemble.gradient import N_DROPOUTS, Pass, add_gradient, split_passes
from ruler.training.ensemble.stacked_mlp import MLPShape, StackedMLP
from ruler.training.loop import TrainingSettings

CHUNK_UNITS = {"cpu": 1 << 18, "cuda": 1 << 25}
"""Hidden units (members x rows x width) a chunk: six such tensors stay in a CPU's last cache, or fill a GPU."""

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults


@dataclass(frozen=True, eq=False)
class Group:
    """Members that read the same rows and so can share batched products.

    Args:
        members: Their places in the stack.
        seeds: Of their dropout, one a member.
        make_passes: Places -> the passes of an epoch, made when the group's turn comes.
    """

    members: Sequence[int]
    seeds: Sequence[int]
    make_passes: Callable[[Sequence[int]], list[Pass]]

    def split(self) -> "Iterator[Group]":
        """A group for each member alone."""
        for member, seed in zip(self.members, self.seeds, strict=True):
            yield Group([member], [seed], self.make_passes)


class Adam:
    """torch.optim.Adam with its defaults, over one flat tensor.

    Example:
        >>> values = torch.tensor([1.0])
        >>> Adam(values, learning_rate=0.1).step(torch.tensor([3.0]))
        >>> values
        tensor([0.9000])
    """

    def __init__(self, values: torch.Tensor, *, learning_rate: float) -> None:
        self._values, self._rate, self._n_steps = values, learning_rate, 0
        self._mean, self._square = torch.zeros_like(values), torch.zeros_like(values)
        self._spare = torch.empty_like(values)

    def step(self, gradient: torch.Tensor) -> None:
        """Move the values once against the gradient."""
        self._n_steps += 1
        correction_1, correction_2 = 1 - _BETA_1**self._n_steps, 1 - _BETA_2**self._n_steps
        self._mean.lerp_(gradient, 1 - _BETA_1)
        self._square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1 - _BETA_2)
        torch.sqrt(self._square, out=self._spare).div_(correction_2**0.5).add_(_EPSILON)
        self._values.addcdiv_(self._mean, self._spare, value=-self._rate / correction_1)


def descend_groups(
    start: StackedMLP, groups: Sequence[Group], settings: TrainingSettings, *, progress: bool = False
) -> StackedMLP:
    """Optimise every group's members from ``start``, where it lies; returns new members in the same places.

    On a CPU each member is one task on one thread, so that its numbers cannot depend on the others; on other
    devices a group's members share batched products.

    Raises:
        InputError: Settings that only the one-by-one loop can run.
        DivergedError: A member's loss left its bound; the message names the members.
    """
    _check_settings(settings)
    flat = start.flat.clone()
    is_cpu = flat.device.type == "cpu"
    tasks = [task for group in groups for task in (group.split() if is_cpu else [group])]
    losses = flat.new_zeros(len(flat), settings.epochs)

    def run(task: Group) -> None:
        values = flat[task.members]
        losses[task.members] = descend(values, start.shape, task.make_passes(task.members), task.seeds, settings)
        flat[task.members] = values

    bar = show_progress("training an ensemble", len(tasks)) if progress else nullcontext(lambda amount: None)
    with bar as advance:
        for _ in _run_threaded(run, tasks) if is_cpu else map(run, tasks):
            advance(1)
    _check_converged(flat, losses, settings)
    return StackedMLP(flat, start.shape)


@torch.no_grad()
def descend(
    values: torch.Tensor,
    shape: MLPShape,
    passes: Sequence[Pass],
    seeds: Sequence[int],
    settings: TrainingSettings,
    *,
    chunk_units: int | None = None,
) -> torch.Tensor:
    """Optimise ``values`` (members, flat_size) in place; returns the loss of every epoch, (members, epochs).

    Args:
        chunk_units: Hidden units a chunk; moves sums within rounding, nothing else.
    """
    device, epochs = values.device, settings.epochs
    gradient = torch.zeros_like(values)
    layers, gradients = shape.view_layers(values), shape.view_layers(gradient)
    stream = DropoutStream(seeds, rate=shape.dropout, width=shape.hidden, device=device)
    drawn_per_epoch = N_DROPOUTS * sum(len(sweep) for sweep in passes)
    chunk_units = chunk_units or CHUNK_UNITS.get(device.type, CHUNK_UNITS["cuda"])
    chunks = split_passes(passes, layers, max(1, chunk_units // (len(values) * shape.hidden)))
    losses = values.new_zeros(len(values), epochs)
    adam = Adam(values, learning_rate=settings.learning_rate)
    for epoch, loss in enumerate(losses.unbind(dim=1)):
        gradient.zero_()
        for chunk in chunks:
            loss += add_gradient(layers, gradients, chunk, stream, drawn=epoch * drawn_per_epoch)
        adam.step(gradient)
    return losses


def _run_threaded(run: Callable[[Group], None], tasks: Sequence[Group]) -> Iterator[None]:
    """Run every task on a thread of its own core, and yield as they end."""
    n_threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for future in as_completed([pool.submit(run, task) for task in tasks]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(n_threads)  # the workers' call also reached the product library's global setting


def _check_settings(settings: TrainingSettings) -> None:
    plain = {"precision": "float32", "schedule": "constant", "records_per_epoch": None, "augment": "none"}
    for name, needed in {"optimizer": "adam", "batch_size": None, "weight_decay": 0.0, **plain}.items():
        value = getattr(settings, name)
        if value != needed:
            raise InputError(
                f"{name} must be {needed!r} for an ensemble; got {value!r}. "
                "Train these models one by one with ruler.training.loop.optimize."
            )


def _check_converged(flat: torch.Tensor, losses: torch.Tensor, settings: TrainingSettings) -> None:
    is_sound = flat.isfinite().all(dim=1) & (losses.abs() <= settings.loss_bound).all(dim=1)  # NaN is not <= bound
    if not bool(is_sound.all()):
        members = (~is_sound).nonzero()[:, 0].tolist()
        raise DivergedError(
            f"loss must stay finite and within {settings.loss_bound:g}; members {members} did not keep it. "
            "Lower learning_rate or epochs; run one by one, such a member keeps its last good state."
        )
