"""Many perceptrons of one shape trained at once with stacked parameters: rows and members -> all members trained."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ruler.core.checks import check_number
from ruler.core.errors import DivergedError, InputError
from ruler.core.progress import show_progress
from ruler.core.types import IndexArray
from ruler.training.ensemble.dropout import N_DROPOUTS, DropoutStream
from ruler.training.ensemble.gradient import Pass, add_gradient, split_passes
from ruler.training.ensemble.stacked_mlp import MLPShape, StackedMLP, as_feature_tensor
from ruler.training.settings import TrainingSettings
from ruler.training.steps import uncompiled

__all__ = ["EnsembleMember", "Group", "MLPShape", "Pass", "StackedMLP", "descend_groups", "train_ensemble"]

CHUNK_UNITS = {"cpu": 1 << 18, "cuda": 1 << 25}
"""Hidden units (members x rows x width) per chunk: six such tensors stay in a CPU's last cache, or fill a GPU."""

_LARGEST_SEED = 2**32 - 1  # what NumPy's global stream takes


@dataclass(frozen=True, eq=False)
class EnsembleMember:
    """One model of an ensemble: its seed, and the training rows that it never sees.

    Args:
        seed: Of its initial weights and its dropout.
        forget: (n_forget,) row numbers to leave out, for an oracle; None for an original.
    """

    seed: int
    forget: IndexArray | None = None

    def __post_init__(self) -> None:
        check_number(self.seed, "seed", minimum=0, is_whole=True)
        if self.seed > _LARGEST_SEED:
            raise InputError(f"seed must be below 2**32; got {self.seed}.")


@dataclass(frozen=True, eq=False)
class Group:
    """Members that read the same rows and so can share batched products.

    Args:
        members: Their places in the stack.
        seeds: Of their dropout, one per member.
        make_passes: Places -> the passes of an epoch, made when the group's turn comes.
    """

    members: Sequence[int]
    seeds: Sequence[int]
    make_passes: Callable[[Sequence[int]], list[Pass]]


def train_ensemble(
    features: npt.ArrayLike | torch.Tensor,
    labels: npt.ArrayLike | torch.Tensor,
    members: Sequence[EnsembleMember],
    settings: TrainingSettings | None = None,
    *,
    n_classes: int = 2,
    hidden: int = 128,
    dropout: float = 0.2,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> StackedMLP:
    """What does each member become when all are trained at once?

    Each member starts from the weights that ``TabularMLP`` has after ``torch.manual_seed(seed)`` and is
    trained with full-batch Adam on the cross-entropy of its own rows, as in the one-by-one loop. Only dropout
    draws from another generator, so a member equals the one-by-one model in distribution, and to rounding
    where ``dropout`` is 0. A member's result does not depend on the other members.

    Args:
        features: (n, n_features) training rows, float32.
        labels: (n,) classes 0 .. n_classes - 1.
        members: Whom to train; their order is that of the result.
        settings: Epochs, rate and loss bound; None takes the paper's. Full-batch Adam without decay only.
        device: Where to train; None means where ``features`` lies.
        progress: Show a bar, if stderr is a terminal.

    Returns:
        The trained members, on the device.

    Raises:
        InputError: An argument breaks a rule.
        DivergedError: A member's loss left its bound.

    Example:
        >>> rows = np.random.RandomState(0).randn(60, 4).astype(np.float32)
        >>> members = [EnsembleMember(seed=0), EnsembleMember(seed=0, forget=np.arange(10))]
        >>> models = train_ensemble(rows, rows[:, 0] > 0, members)
        >>> original, oracle = (models.logits(rows, i).argmax(axis=1) for i in range(2))
        >>> bool((original == (rows[:, 0] > 0)).mean() > 0.9)
        True
    """
    if not members:
        raise InputError("members must hold at least one member; got none. Give one EnsembleMember per model.")
    check_number(hidden, "hidden", minimum=1, is_whole=True)
    check_number(n_classes, "n_classes", minimum=2, is_whole=True)
    check_number(dropout, "dropout", minimum=0)
    if dropout >= 1:
        raise InputError(f"dropout must be below 1; got {dropout!r}.")
    rows, targets = as_training_tensors(features, labels, n_classes=n_classes, device=device)
    shape = MLPShape(rows.shape[1], n_classes, hidden, dropout)
    start = StackedMLP.from_seeds([member.seed for member in members], shape).to(rows.device)
    groups = []
    for places, forget in group_by_rows([member.forget for member in members]):
        kept = keep_other_rows(forget, len(rows))
        passes = [Pass(rows[kept], targets[:, kept])]
        groups.append(Group(places, [members[i].seed for i in places], lambda _, passes=passes: passes))  # type: ignore[misc]
    return descend_groups(start, groups, settings or TrainingSettings(), progress=progress)


def as_training_tensors(
    features: npt.ArrayLike | torch.Tensor,
    labels: npt.ArrayLike | torch.Tensor,
    *,
    n_classes: int,
    device: torch.device | str | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked rows (n, n_features) and one-hot targets (n_classes, n), both float32 on the device."""
    home = features.device if isinstance(features, torch.Tensor) else torch.device("cpu")
    rows = as_feature_tensor(features, home if device is None else torch.device(device))
    classes = torch.as_tensor(labels).to(rows.device)
    if classes.shape != (len(rows),):
        raise InputError(
            f"labels must be one class per row, shape ({len(rows)},); got shape {tuple(classes.shape)}. "
            "Give as many labels as there are rows."
        )
    named = torch.arange(n_classes, device=rows.device)[:, None] == classes  # (n_classes, n)
    if not bool(named.any(dim=0).all()):
        raise InputError(
            f"labels must be whole numbers from 0 to {n_classes - 1}; got others. "
            "Number the classes from 0 and give n_classes."
        )
    return rows, named.float()


def group_by_rows(forget_sets: Sequence[IndexArray | None]) -> list[tuple[list[int], IndexArray]]:
    """Places that share a forget set, with that set sorted; None is the empty set."""
    groups: dict[bytes, tuple[list[int], IndexArray]] = {}
    for place, forget in enumerate(forget_sets):
        rows = np.unique(np.asarray([] if forget is None else forget, dtype=np.int64))
        groups.setdefault(rows.tobytes(), ([], rows))[0].append(place)
    return list(groups.values())


def keep_other_rows(forget: IndexArray, n_rows: int) -> slice | IndexArray:
    """The rows that are not in ``forget``; all of them as a slice, so that nothing is copied."""
    if len(forget) == 0:
        return slice(None)
    if forget[0] < 0 or forget[-1] >= n_rows or len(forget) == n_rows:
        raise InputError(
            f"forget must name rows from 0 to {n_rows - 1} and leave some; "
            f"got {len(forget)} rows from {forget[0]} to {forget[-1]}. Give row numbers of the training set."
        )
    return np.setdiff1d(np.arange(n_rows), forget, assume_unique=True)


def descend_groups(
    start: StackedMLP, groups: Sequence[Group], settings: TrainingSettings, *, progress: bool = False
) -> StackedMLP:
    """Optimise every group's members from ``start``, where it lies; returns new members in the same places.

    On a CPU each member is optimised alone on one thread, so that its numbers cannot depend on the others; on other
    devices a group's members share batched products.

    Raises:
        InputError: Settings that only the one-by-one loop can run.
        DivergedError: A member's loss left its bound; the message names the members.
    """
    plain = {"precision": "float32", "schedule": "constant", "records_per_epoch": None, "augment": "none"}
    for name, needed in {"optimizer": "adam", "batch_size": None, "weight_decay": 0.0, **plain}.items():
        if getattr(settings, name) != needed:
            raise InputError(
                f"{name} must be {needed!r} for an ensemble; got {getattr(settings, name)!r}. "
                "Train these models one by one with ruler.training.loop.optimize."
            )
    flat = start.flat.clone()
    is_cpu = flat.device.type == "cpu"
    if is_cpu:
        groups = [
            Group([member], [seed], group.make_passes)
            for group in groups
            for member, seed in zip(group.members, group.seeds, strict=True)
        ]
    losses = flat.new_zeros(len(flat), settings.epochs)

    def optimize(group: Group) -> None:
        values = flat[group.members]
        passes = group.make_passes(group.members)
        losses[group.members] = descend(values, start.shape, passes, group.seeds, settings)
        flat[group.members] = values

    bar = show_progress("training an ensemble", len(groups)) if progress else nullcontext(lambda amount: None)
    with bar as advance:
        for _ in _run_threaded(optimize, groups) if is_cpu else map(optimize, groups):
            advance(1)
    is_sound = flat.isfinite().all(dim=1) & (losses.abs() <= settings.loss_bound).all(dim=1)  # NaN is not <= bound
    if not bool(is_sound.all()):
        members = (~is_sound).nonzero()[:, 0].tolist()
        raise DivergedError(
            f"loss must stay finite and within {settings.loss_bound:g}; members {members} did not keep it. "
            "Lower learning_rate or epochs; run one by one, such a member keeps its last good state."
        )
    return StackedMLP(flat, start.shape)


def _run_threaded(optimize: Callable[[Group], None], groups: Sequence[Group]) -> Iterator[None]:
    """Optimise every group on a thread of its own core, and yield as they end."""
    n_threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for future in as_completed([pool.submit(optimize, group) for group in groups]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(n_threads)  # the workers' call also reached the product library's global setting


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
        chunk_units: Hidden units per chunk; moves sums within rounding, nothing else.
    """
    device = values.device
    gradient = torch.zeros_like(values)
    layers, gradients = shape.view_layers(values), shape.view_layers(gradient)
    stream = DropoutStream(seeds, rate=shape.dropout, width=shape.hidden, device=device)
    drawn_per_epoch = N_DROPOUTS * sum(len(sweep) for sweep in passes)
    chunk_units = chunk_units or CHUNK_UNITS.get(device.type, CHUNK_UNITS["cuda"])
    chunks = split_passes(passes, layers, max(1, chunk_units // (len(values) * shape.hidden)))
    losses = values.new_zeros(len(values), settings.epochs)
    adam = uncompiled(torch.optim.Adam)([values], lr=settings.learning_rate, foreach=False)
    values.grad = gradient
    for epoch, loss in enumerate(losses.unbind(dim=1)):
        gradient.zero_()
        for chunk in chunks:
            loss += add_gradient(layers, gradients, chunk, stream, drawn=epoch * drawn_per_epoch)
        adam.step()
    return losses
