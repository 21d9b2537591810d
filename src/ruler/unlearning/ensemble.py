"""The five unlearning methods on stacked models: each is a weighing of the same four losses."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.core.types import IndexArray
from ruler.training.ensemble.descent import Group, descend_groups
from ruler.training.ensemble.gradient import Pass
from ruler.training.ensemble.stacked_mlp import StackedMLP
from ruler.training.ensemble.train import as_training_tensors, group_by_rows, keep_other_rows
from ruler.unlearning import METHODS
from ruler.unlearning.bad_teacher import BadTeacherSettings
from ruler.unlearning.method import UnlearningSettings
from ruler.unlearning.scrub import ScrubSettings

Weights = dict[str, tuple[float, float]]
"""Record set -> weights of its cross-entropy and of its divergence from the teacher, in forward order."""

Records = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Record set -> rows (n, n_features) and one-hot targets (n_classes, n)."""

_WEIGH: Registry[Callable[[Any], Weights]] = Registry(
    "method",
    {
        "gradient_ascent": lambda settings: {"forget": (-1.0, 0.0)},
        "neggrad_plus": lambda settings: {
            "retain": (settings.retain_weight, 0.0),
            "forget": (settings.retain_weight - 1.0, 0.0),
        },
        "fine_tuning": lambda settings: {"retain": (1.0, 0.0)},
        "scrub": lambda settings: {
            "retain": (settings.retain_weight, settings.retain_weight),
            "forget": (0.0, settings.retain_weight - 1.0),
        },
        "bad_teacher": lambda settings: {
            "retain": (settings.retain_weight, settings.retain_weight),
            "forget": (0.0, 1.0 - settings.retain_weight),
        },
    },
)


def unlearn_ensemble(
    method: str,
    originals: StackedMLP,
    *,
    features: Any,
    labels: Any,
    forget: Sequence[IndexArray],
    settings: UnlearningSettings | None = None,
    progress: bool = False,
) -> StackedMLP:
    """What do many originals become when a method makes each forget its own set of rows?

    As ``ruler.unlearn`` does one by one, full batch, except that dropout draws from another generator. As
    there, members whose passes have the same sizes share their dropout, which ``settings.seed`` decides.

    Args:
        method: ``gradient_ascent``, ``neggrad_plus``, ``fine_tuning``, ``scrub`` or ``bad_teacher``.
        originals: Trained members, on the device to work on. ``originals.select([0, 0, 1, 1])`` repeats some.
        features: (n, n_features) training rows.
        labels: (n,) classes.
        forget: For each member the (n_forget,) rows that it is to forget; the others are its retain rows.
        settings: The method's own settings; None takes the paper's.
        progress: Show a bar, if stderr is a terminal.

    Returns:
        The unlearned members, in the order of ``originals``.

    Raises:
        UnknownNameError: No such method.
        InputError: An argument breaks a rule.
        DivergedError: A member's loss left its bound.

    Example:
        >>> import numpy as np
        >>> from ruler.training.ensemble import EnsembleMember, train_ensemble
        >>> rows = np.random.RandomState(0).randn(60, 4).astype(np.float32)
        >>> originals = train_ensemble(rows, rows[:, 0] > 0, [EnsembleMember(seed) for seed in range(2)])
        >>> forget = [np.arange(6), np.arange(6, 12)]
        >>> len(unlearn_ensemble("scrub", originals, features=rows, labels=rows[:, 0] > 0, forget=forget))
        2
    """
    chosen = METHODS[method]
    settings = chosen.settings() if settings is None else settings
    if type(settings) is not chosen.settings:
        raise InputError(
            f"settings must be {chosen.settings.__name__} for {method}; got {type(settings).__name__}. "
            f"Make them with ruler.unlearning.{chosen.settings.__name__}(...)."
        )
    if len(forget) != len(originals):
        raise InputError(
            f"forget must hold one array of rows a member, {len(originals)}; got {len(forget)}. "
            "Repeat the array for members that forget the same rows."
        )
    shape = originals.shape
    rows, targets = as_training_tensors(features, labels, n_classes=shape.n_classes, device=originals.flat.device)
    originals.check_columns(rows)
    weights, teachers = _WEIGH[method](settings), _choose_teachers(settings, originals)
    temperature = settings.temperature if isinstance(settings, ScrubSettings) else 1.0
    groups = []
    for places, forget_rows in group_by_rows(forget):
        if len(forget_rows) == 0:
            raise InputError(f"forget[{places[0]}] must name at least one row; got none.")
        chosen_rows = {"forget": forget_rows, "retain": keep_other_rows(forget_rows, len(rows))}
        records = {name: (rows[part], targets[:, part]) for name, part in chosen_rows.items()}
        make_passes = partial(_make_passes, weights, temperature, teachers, records)
        groups.append(Group(places, [settings.seed] * len(places), make_passes))
    return descend_groups(originals, groups, settings, progress=progress)


def _choose_teachers(settings: UnlearningSettings, originals: StackedMLP) -> StackedMLP | None:
    """A random teacher for all, each original as its own teacher, or None for methods without."""
    if isinstance(settings, BadTeacherSettings):
        return StackedMLP.from_seeds([settings.teacher_seed], originals.shape).to(originals.flat.device)
    return originals if isinstance(settings, ScrubSettings) else None


def _make_passes(
    weights: Weights,
    temperature: float,
    teachers: StackedMLP | None,
    records: Records,
    members: Sequence[int],
) -> list[Pass]:
    """The passes of an epoch; runs on worker threads, so it must not touch a global random stream."""
    passes = []
    for name, (ce_weight, kl_weight) in weights.items():
        rows, targets = records[name]
        softened = None
        if teachers is not None:
            own = [0] if len(teachers) == 1 else members
            logits = torch.stack([teachers.run_member(rows, member)[1].T for member in own])
            softened = (logits / temperature).softmax(dim=1)
        passes.append(Pass(rows, targets, ce_weight, kl_weight, temperature, softened))
    return passes
