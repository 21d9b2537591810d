"""SCRUB (Kurmanji et al., 2023): agree with the original on the retain records and disagree on the forget records.

The paper's form: one loss with both terms, where the authors of SCRUB alternate between them.
"""

from dataclasses import dataclass
from typing import Literal

from ruler.unlearning.method import Method, Module, Objective, Terms, UnlearningSettings, fraction, positive


@dataclass(frozen=True)
class ScrubSettings(UnlearningSettings):
    """Distillation from the original model.

    Args:
        retain_weight: The paper's alpha: weight of the retain terms; the forget term has the rest.
        temperature: Softens both models' logits before they are compared.
    """

    retain_weight: float = fraction(0.6)
    temperature: float = positive(2.0)


def make_objective(original: Module, settings: ScrubSettings) -> Objective:
    """alpha [CE(retain) + KL(retain)] - (1 - alpha) KL(forget); the teacher is the original in eval mode."""
    from ruler.unlearning.distillation import freeze_copy, make_distillation

    return make_distillation(freeze_copy(original), settings, forget_sign=-1)


def list_terms(settings: ScrubSettings, teacher: Literal["original"] | int, *, forget_sign: int) -> Terms:
    """The loss of `make_distillation` as weights."""
    weight = settings.retain_weight
    return Terms((weight, weight), (0.0, forget_sign * (1.0 - weight)), teacher, settings.temperature)


SCRUB = Method(
    title="SCRUB",
    colour="#0072B2",
    settings=ScrubSettings,
    reads=("retain", "forget"),
    make_objective=make_objective,
    terms=lambda settings: list_terms(settings, "original", forget_sign=-1),
    formula="alpha [CE(retain) + KL(retain)] - (1 - alpha) KL(forget), teacher: the original",
    source="Kurmanji et al. 2023",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3), "retain_weight": (0.6, 0.9)},
)
