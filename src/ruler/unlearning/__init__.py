"""Trained model and its records -> unlearned model: one method per file, behind one door."""

import copy
from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.core.seeding import seeded
from ruler.unlearning.bad_teacher import BAD_TEACHER, BadTeacherSettings
from ruler.unlearning.ce_u import CE_U, CeUSettings
from ruler.unlearning.fine_tuning import FINE_TUNING, FineTuningSettings
from ruler.unlearning.gradient_ascent import GRADIENT_ASCENT, GradientAscentSettings
from ruler.unlearning.gradient_difference import GRADIENT_DIFFERENCE, GradientDifferenceSettings
from ruler.unlearning.idk_dpo import IDK_DPO, IdkDpoSettings, draw_refusals
from ruler.unlearning.method import LanguageSettings, Method, Terms, UnlearningSettings
from ruler.unlearning.neggrad_plus import NEGGRAD_PLUS, NegGradPlusSettings
from ruler.unlearning.npo import NPO, NpoSettings
from ruler.unlearning.rmu import RMU, RmuSettings
from ruler.unlearning.satimp import SATIMP, SatImpSettings
from ruler.unlearning.scrub import SCRUB, ScrubSettings
from ruler.unlearning.simnpo import SIMNPO, SimNpoSettings
from ruler.unlearning.undial import UNDIAL, UndialSettings
from ruler.unlearning.wga import WGA, WgaSettings

if TYPE_CHECKING:
    from torch import nn

    from ruler.training.batches import Source

__all__ = [
    "METHODS",
    "BadTeacherSettings",
    "CeUSettings",
    "FineTuningSettings",
    "GradientAscentSettings",
    "GradientDifferenceSettings",
    "IdkDpoSettings",
    "LanguageSettings",
    "Method",
    "NegGradPlusSettings",
    "NpoSettings",
    "RmuSettings",
    "SatImpSettings",
    "ScrubSettings",
    "SimNpoSettings",
    "Terms",
    "UndialSettings",
    "UnlearningSettings",
    "WgaSettings",
    "draw_refusals",
    "unlearn",
]

METHODS: Registry[Method[Any]] = Registry(
    "method",
    {
        "gradient_ascent": GRADIENT_ASCENT,
        "neggrad_plus": NEGGRAD_PLUS,
        "fine_tuning": FINE_TUNING,
        "scrub": SCRUB,
        "bad_teacher": BAD_TEACHER,
        "gradient_difference": GRADIENT_DIFFERENCE,
        "npo": NPO,
        "simnpo": SIMNPO,
        "rmu": RMU,
        "undial": UNDIAL,
        "idk_dpo": IDK_DPO,
        "wga": WGA,
        "satimp": SATIMP,
        "ce_u": CE_U,
    },
    group="ruler.methods",
    type=Method,
)


def unlearn(
    method: str,
    model: "nn.Module",
    *,
    forget: "Source | None",
    retain: "Source | None",
    settings: UnlearningSettings | None = None,
    progress: bool = False,
) -> "nn.Module":
    """What does this model become when a method makes it forget some of its training records?

    Works on a copy, where the model lies; the given model, its mode and the caller's random streams stay as
    they are. With mini batches an epoch is one pass over the records that the method reads first: the retain records,
    except for Gradient Ascent and the methods for language models, which start from the forget records. Where a method
    reads both, each batch meets the next one of the other side, which starts over, freshly shuffled, as often as
    needed.

    Args:
        method: ``gradient_ascent``, ``neggrad_plus``, ``fine_tuning``, ``scrub``, ``bad_teacher``, or one that your own
            package or a call of ``ruler.unlearning.METHODS.register`` added.
        model: A torch classifier, masked or causal language model: inputs -> logits, or -> an output with ``.logits``.
        forget: Records to forget: a pair (X, y), ``MaskedSentences``, ``Completions``, a Dataset or a DataLoader.
            Fine-Tuning does not read it.
        retain: Records to keep, likewise. Gradient Ascent does not read it.
        settings: The method's own settings; None takes the paper's.
        progress: Show a bar, if stderr is a terminal.

    Returns:
        The unlearned model, a new one.

    Raises:
        UnknownNameError: No such method.
        InputError: Settings of another method, no records where the method reads some, or records of another kind.
        DivergedError: The loss left its bounds; the error carries the last good state.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2)
        >>> rows, labels = torch.eye(2), torch.tensor([0, 1])
        >>> unlearned = unlearn("gradient_ascent", model, forget=(rows, labels), retain=None)
        >>> bool((unlearned.weight == model.weight).all())
        False
    """
    from ruler.training.loop import optimize  # needs torch, which naming a method does not

    chosen = METHODS[method]
    settings = chosen.check_settings(settings)
    records: dict[str, Source] = {}
    for side in chosen.reads:
        source = forget if side == "forget" else retain
        if source is None:
            raise InputError(
                f"{side} must hold records for {method}; got None. Give (X, y), a Dataset or a DataLoader."
            )
        _check_kind(method, side, source)
        records[side] = source
    with seeded(settings.seed):
        student = copy.deepcopy(model)
        if chosen.edit is not None:
            chosen.edit(student, records, settings)
        elif chosen.make_objective is not None:
            objective = chosen.make_objective(model, settings)
            optimize(student, objective, records, settings, seed=settings.seed, progress=progress)
    return student


_TAKEN = {
    "any": ("classifier", "language"),
    "classifier": ("classifier",),
    "language": ("language",),
    "preferences": ("preferences",),
}
"""Kind of a method -> kinds of records to forget that it takes."""


def _check_kind(method: str, side: str, source: "Source") -> None:
    """Refuse records of another kind than the method's; a loader may yield anything."""
    from torch.utils.data import TensorDataset

    from ruler.training.sentences import Completions, MaskedSentences, Preferences

    if isinstance(source, Preferences):
        found = "preferences"
    elif isinstance(source, MaskedSentences | Completions):
        found = "language"
    elif isinstance(source, tuple | list | TensorDataset):
        found = "classifier"
    else:
        return
    kind = METHODS[method].kind
    if kind == "preferences" and side == "retain":
        kind = "language"
    if found not in _TAKEN[kind]:
        words = {
            "classifier": "labelled records, such as (X, y)",
            "language": "Completions or MaskedSentences",
            "preferences": "Preferences, completions to forget and what to say instead",
        }
        fitting = ", ".join(name for name, entry in METHODS.items() if found in _TAKEN[entry.kind])
        raise InputError(
            f"{side} must be {' or '.join(words[name] for name in _TAKEN[kind])} for {method}; "
            f"got {type(source).__name__}. Methods that take these: {fitting}."
        )
