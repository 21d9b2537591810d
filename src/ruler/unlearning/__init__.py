"""Trained model and its records -> unlearned model: one method per file, behind one door."""

import copy
from typing import TYPE_CHECKING, Any

from ruler.core.determinism import seeded
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.unlearning.bad_teacher import BAD_TEACHER, BadTeacherSettings
from ruler.unlearning.classifier.boundary_shrink import BOUNDARY_SHRINK, BoundaryShrinkSettings
from ruler.unlearning.classifier.cf_k import CF_K, CfKSettings
from ruler.unlearning.classifier.ct import CT, CtSettings
from ruler.unlearning.classifier.delete import DELETE, DeleteSettings
from ruler.unlearning.classifier.eu_k import EU_K, EuKSettings
from ruler.unlearning.classifier.fisher import FISHER, FisherSettings
from ruler.unlearning.classifier.jit import JIT, JitSettings
from ruler.unlearning.classifier.l1_sparse import L1_SPARSE, L1SparseSettings
from ruler.unlearning.classifier.lfssd import LFSSD, LfssdSettings
from ruler.unlearning.classifier.msg import MSG, MsgSettings
from ruler.unlearning.classifier.newton import NEWTON, NewtonSettings
from ruler.unlearning.classifier.noisy_sgd import NOISY_SGD, NoisySgdSettings
from ruler.unlearning.classifier.r2d import R2D, R2dSettings
from ruler.unlearning.classifier.random_labels import RANDOM_LABELS, RandomLabelsSettings
from ruler.unlearning.classifier.retrain import RETRAIN, RetrainSettings
from ruler.unlearning.classifier.salun import SALUN, SalunSettings
from ruler.unlearning.classifier.scrub_rewind import SCRUB_REWIND, ScrubRewindSettings
from ruler.unlearning.classifier.short_retraining import SHORT_RETRAINING, ShortRetrainingSettings
from ruler.unlearning.classifier.sisa import SISA, SisaSettings
from ruler.unlearning.classifier.ssd import SSD, SsdSettings
from ruler.unlearning.classifier.unsir import UNSIR, UnsirSettings
from ruler.unlearning.classifier.woodfisher import WOODFISHER, WoodFisherSettings
from ruler.unlearning.fine_tuning import FINE_TUNING, FineTuningSettings
from ruler.unlearning.gradient_ascent import GRADIENT_ASCENT, GradientAscentSettings
from ruler.unlearning.language.ce_u import CE_U, CeUSettings
from ruler.unlearning.language.gradient_difference import GRADIENT_DIFFERENCE, GradientDifferenceSettings
from ruler.unlearning.language.idk_dpo import IDK_DPO, IdkDpoSettings, draw_refusals
from ruler.unlearning.language.npo import NPO, NpoSettings
from ruler.unlearning.language.rmu import RMU, RmuSettings
from ruler.unlearning.language.satimp import SATIMP, SatImpSettings
from ruler.unlearning.language.simnpo import SIMNPO, SimNpoSettings
from ruler.unlearning.language.undial import UNDIAL, UndialSettings
from ruler.unlearning.language.wga import WGA, WgaSettings
from ruler.unlearning.method import (
    ClassifierSettings,
    LanguageSettings,
    Method,
    Plan,
    Terms,
    UnlearningSettings,
    follow,
)
from ruler.unlearning.neggrad_plus import NEGGRAD_PLUS, NegGradPlusSettings
from ruler.unlearning.scrub import SCRUB, ScrubSettings

if TYPE_CHECKING:
    from torch import nn

    from ruler.training.batches import Source

__all__ = [
    "METHODS",
    "BadTeacherSettings",
    "BoundaryShrinkSettings",
    "CeUSettings",
    "CfKSettings",
    "ClassifierSettings",
    "CtSettings",
    "DeleteSettings",
    "EuKSettings",
    "FineTuningSettings",
    "FisherSettings",
    "GradientAscentSettings",
    "GradientDifferenceSettings",
    "IdkDpoSettings",
    "JitSettings",
    "L1SparseSettings",
    "LanguageSettings",
    "LfssdSettings",
    "Method",
    "MsgSettings",
    "NegGradPlusSettings",
    "NewtonSettings",
    "NoisySgdSettings",
    "NpoSettings",
    "Plan",
    "R2dSettings",
    "RandomLabelsSettings",
    "RetrainSettings",
    "RmuSettings",
    "SalunSettings",
    "SatImpSettings",
    "ScrubRewindSettings",
    "ScrubSettings",
    "ShortRetrainingSettings",
    "SimNpoSettings",
    "SisaSettings",
    "SsdSettings",
    "Terms",
    "UndialSettings",
    "UnlearningSettings",
    "UnsirSettings",
    "WgaSettings",
    "WoodFisherSettings",
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
        "random_labels": RANDOM_LABELS,
        "salun": SALUN,
        "l1_sparse": L1_SPARSE,
        "ssd": SSD,
        "lfssd": LFSSD,
        "delete": DELETE,
        "cf_k": CF_K,
        "eu_k": EU_K,
        "jit": JIT,
        "boundary_shrink": BOUNDARY_SHRINK,
        "fisher": FISHER,
        "noisy_sgd": NOISY_SGD,
        "msg": MSG,
        "ct": CT,
        "unsir": UNSIR,
        "woodfisher": WOODFISHER,
        "newton": NEWTON,
        "scrub_rewind": SCRUB_REWIND,
        "r2d": R2D,
        "sisa": SISA,
        "retrain": RETRAIN,
        "short_retraining": SHORT_RETRAINING,
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
        method: A key of ``ruler.unlearning.METHODS`` (``docs/methods.md``), such as ``scrub``, ``salun`` or ``npo``;
            your own package, or a call of ``METHODS.register``, may have added it.
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
        for plan in chosen.list_plans(model, student, records, settings):
            follow(student, plan, records, settings, progress=progress)
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

    kinds: dict[str, tuple[type, ...]] = {
        "preferences": (Preferences,),
        "language": (MaskedSentences, Completions),
        "classifier": (tuple, list, TensorDataset),
    }
    found = next((kind for kind, types in kinds.items() if isinstance(source, types)), None)
    kind = METHODS[method].kind
    if kind == "preferences" and side == "retain":
        kind = "language"
    if found is not None and found not in _TAKEN[kind]:
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
