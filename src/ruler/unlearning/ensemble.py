"""Unlearning methods on stacked models: each is a weighted sum of the same four losses."""

from collections.abc import Sequence
from functools import partial

import numpy.typing as npt
import torch

from ruler.core.errors import InputError
from ruler.core.types import IndexArray
from ruler.training.ensemble import (
    Group,
    Pass,
    StackedMLP,
    as_training_tensors,
    descend_groups,
    group_by_rows,
    keep_other_rows,
)
from ruler.unlearning import METHODS, Terms, UnlearningSettings

Records = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""Side -> rows (n, n_features) and one-hot targets (n_classes, n), in the order of the forward passes."""


def unlearn_ensemble(
    method: str,
    originals: StackedMLP,
    *,
    features: npt.ArrayLike | torch.Tensor,
    labels: npt.ArrayLike | torch.Tensor,
    forget: Sequence[IndexArray],
    settings: UnlearningSettings | None = None,
    progress: bool = False,
) -> StackedMLP:
    """What do many originals become when a method makes each forget its own set of rows?

    As ``ruler.unlearn`` does one by one, full batch, except that dropout draws from another generator. As
    there, members whose passes have the same sizes share their dropout, which ``settings.seed`` decides.

    Args:
        method: As in ``ruler.unlearn``; it must have ``terms``.
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
    settings = chosen.check_settings(settings)
    if chosen.terms is None:
        raise InputError(f"method must have terms for an ensemble; got {method!r}. Run it with ruler.unlearn.")
    if len(forget) != len(originals):
        raise InputError(
            f"forget must hold one array of rows per member, {len(originals)}; got {len(forget)}. "
            "Repeat the array for members that forget the same rows."
        )
    device = originals.flat.device
    rows, targets = as_training_tensors(features, labels, n_classes=originals.shape.n_classes, device=device)
    originals.check_columns(rows)
    terms: Terms = chosen.terms(settings)
    teachers = originals if terms.teacher == "original" else None
    if isinstance(terms.teacher, int):
        teachers = StackedMLP.from_seeds([terms.teacher], originals.shape).to(device)
    groups = []
    for places, forget_rows in group_by_rows(forget):
        if len(forget_rows) == 0:
            raise InputError(f"forget[{places[0]}] must name at least one row; got none.")
        sides = {"forget": forget_rows, "retain": keep_other_rows(forget_rows, len(rows))}
        records: Records = {side: (rows[sides[side]], targets[:, sides[side]]) for side in chosen.reads}
        make_passes = partial(_make_passes, terms, teachers, records)
        groups.append(Group(places, [settings.seed] * len(places), make_passes))
    return descend_groups(originals, groups, settings, progress=progress)


def _make_passes(terms: Terms, teachers: StackedMLP | None, records: Records, members: Sequence[int]) -> list[Pass]:
    """The passes of an epoch; runs on worker threads, so it must not touch a global random stream."""
    passes = []
    for side, (rows, targets) in records.items():
        ce_weight, kl_weight = terms.retain if side == "retain" else terms.forget
        softened = None
        if teachers is not None:
            own = [0] if len(teachers) == 1 else members
            logits = torch.stack([teachers.run_member(rows, member)[1].T for member in own])
            softened = (logits / terms.temperature).softmax(dim=1)
        passes.append(Pass(rows, targets, ce_weight, kl_weight, terms.temperature, softened))
    return passes
