"""Rows and members -> all members trained together."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.types import IndexArray
from ruler.training.ensemble.descent import Group, descend_groups
from ruler.training.ensemble.gradient import Pass
from ruler.training.ensemble.stacked_mlp import MLPShape, StackedMLP, as_feature_tensor
from ruler.training.loop import TrainingSettings

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


def train_ensemble(
    features: Any,
    labels: Any,
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
        raise InputError("members must hold at least one member; got none. Give an EnsembleMember a model.")
    rows, targets = as_training_tensors(features, labels, n_classes=n_classes, device=device)
    shape = MLPShape(rows.shape[1], n_classes, hidden, dropout)
    _check_shape(shape)
    start = StackedMLP.from_seeds([member.seed for member in members], shape).to(rows.device)
    groups = []
    for places, forget in group_by_rows([member.forget for member in members]):
        kept = keep_other_rows(forget, len(rows))
        passes = [Pass(rows[kept], targets[:, kept])]
        groups.append(Group(places, [members[i].seed for i in places], partial(_same_for_all, passes)))
    return descend_groups(start, groups, settings or TrainingSettings(), progress=progress)


def _same_for_all(passes: list[Pass], members: Sequence[int]) -> list[Pass]:
    return passes


def as_training_tensors(
    features: Any, labels: Any, *, n_classes: int, device: torch.device | str | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked rows (n, n_features) and one-hot targets (n_classes, n), both float32 on the device."""
    home = features.device if isinstance(features, torch.Tensor) else torch.device("cpu")
    rows = as_feature_tensor(features, home if device is None else torch.device(device))
    classes = torch.as_tensor(labels).to(rows.device)
    if classes.shape != (len(rows),):
        raise InputError(
            f"labels must be one class a row, shape ({len(rows)},); got shape {tuple(classes.shape)}. "
            "Give as many labels as there are rows."
        )
    named = torch.arange(n_classes, device=rows.device)[:, None] == classes  # (n_classes, n)
    if not bool(named.any(dim=0).all()):
        raise InputError(
            f"labels must be whole numbers from 0 to {n_classes - 1}; got others. "
            "Number the classes from 0 and give n_classes."
        )
    return rows, named.float()


def group_by_rows(
    forget_sets: Sequence[IndexArray | None],
) -> list[tuple[list[int], IndexArray]]:
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


def _check_shape(shape: MLPShape) -> None:
    check_number(shape.hidden, "hidden", minimum=1, is_whole=True)
    check_number(shape.n_classes, "n_classes", minimum=2, is_whole=True)
    check_number(shape.dropout, "dropout", minimum=0)
    if shape.dropout >= 1:
        raise InputError(f"dropout must be below 1; got {shape.dropout!r}.")
