"""Trained model and its records -> unlearned model: five methods behind one door."""

import copy
from typing import Any

from torch import nn

from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.core.seeding import seeded
from ruler.training.loop import optimize
from ruler.unlearning.bad_teacher import BAD_TEACHER, BadTeacherSettings
from ruler.unlearning.fine_tuning import FINE_TUNING, FineTuningSettings
from ruler.unlearning.gradient_ascent import GRADIENT_ASCENT, GradientAscentSettings
from ruler.unlearning.method import Method, UnlearningSettings
from ruler.unlearning.neggrad_plus import NEGGRAD_PLUS, NegGradPlusSettings
from ruler.unlearning.scrub import SCRUB, ScrubSettings

__all__ = [
    "METHODS",
    "BadTeacherSettings",
    "FineTuningSettings",
    "GradientAscentSettings",
    "NegGradPlusSettings",
    "ScrubSettings",
    "UnlearningSettings",
    "unlearn",
]

METHODS: Registry[Method] = Registry(
    "method",
    {
        "gradient_ascent": GRADIENT_ASCENT,
        "neggrad_plus": NEGGRAD_PLUS,
        "fine_tuning": FINE_TUNING,
        "scrub": SCRUB,
        "bad_teacher": BAD_TEACHER,
    },
)


def unlearn(
    method: str,
    model: nn.Module,
    *,
    forget: Any,
    retain: Any,
    settings: UnlearningSettings | None = None,
    progress: bool = False,
) -> nn.Module:
    """What does this model become when a method makes it forget some of its training records?

    Works on a copy, where the model lies; the given model, its mode and the caller's random streams stay as
    they are. With mini batches an epoch is one pass over the retain records (Gradient Ascent: over the forget
    records); where a method reads both, each retain batch meets the next forget batch, and the forget batches
    start over, freshly shuffled, as often as needed.

    Args:
        method: ``gradient_ascent``, ``neggrad_plus``, ``fine_tuning``, ``scrub`` or ``bad_teacher``.
        model: A torch classifier or masked language model: inputs -> logits, or -> an output with ``.logits``.
        forget: Records to forget: a pair (X, y), ``MaskedSentences``, a Dataset or a DataLoader. Fine-Tuning does
            not read it.
        retain: Records to keep, likewise. Gradient Ascent does not read it.
        settings: The method's own settings; None takes the paper's.
        progress: Show a bar, if stderr is a terminal.

    Returns:
        The unlearned model, a new one.

    Raises:
        UnknownNameError: No such method.
        DivergedError: The loss left its bounds; the error carries the last good state.

    Example:
        >>> import torch
        >>> model = nn.Linear(2, 2)
        >>> rows, labels = torch.eye(2), torch.tensor([0, 1])
        >>> unlearned = unlearn("gradient_ascent", model, forget=(rows, labels), retain=None)
        >>> bool((unlearned.weight == model.weight).all())
        False
    """
    chosen = METHODS[method]
    settings = chosen.settings() if settings is None else settings
    if type(settings) is not chosen.settings:
        raise InputError(
            f"settings must be {chosen.settings.__name__} for {method}; got {type(settings).__name__}. "
            f"Make them with ruler.unlearning.{chosen.settings.__name__}(...)."
        )
    records = {"forget": forget, "retain": retain}
    for name in chosen.reads:
        if records[name] is None:
            raise InputError(
                f"{name} must hold records for {method}; got None. Give (X, y), a Dataset or a DataLoader."
            )
    with seeded(settings.seed):
        student = copy.deepcopy(model)
        objective = chosen.make_objective(model, settings)
        sources = {name: records[name] for name in chosen.reads}
        optimize(student, objective, sources, settings, seed=settings.seed, progress=progress)
    return student
