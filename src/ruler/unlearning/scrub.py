"""SCRUB (Kurmanji et al., 2023): agree with the original on the retain records and disagree on the forget records.

The paper's form: one loss with both terms, where the authors of SCRUB alternate between them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.core.checks import check_number
from ruler.unlearning.method import Method, Terms, UnlearningSettings, check_share

if TYPE_CHECKING:
    from torch import nn

    from ruler.training.steps import Objective


@dataclass(frozen=True)
class ScrubSettings(UnlearningSettings):
    """Distillation from the original model.

    Args:
        retain_weight: The paper's alpha: weight of the retain terms; the forget term has the rest.
        temperature: Softens both models' logits before they are compared.
    """

    retain_weight: float = 0.6
    temperature: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.retain_weight, "retain_weight")
        check_number(self.temperature, "temperature", minimum=0, is_strict=True)


def make_objective(original: "nn.Module", settings: ScrubSettings) -> "Objective":
    """alpha [CE(retain) + KL(retain)] - (1 - alpha) KL(forget); the teacher is the original in eval mode."""
    from ruler.unlearning.distillation import freeze_copy, make_distillation

    return make_distillation(freeze_copy(original), settings, forget_sign=-1)


def _list_terms(settings: ScrubSettings) -> Terms:
    share = settings.retain_weight
    return Terms((share, share), (0.0, share - 1.0), teacher="original", temperature=settings.temperature)


SCRUB = Method(
    title="SCRUB",
    colour="#0072B2",
    settings=ScrubSettings,
    reads=("retain", "forget"),
    make_objective=make_objective,
    terms=_list_terms,
    formula="alpha [CE(retain) + KL(retain)] - (1 - alpha) KL(forget), teacher: the original",
    source="Kurmanji et al. 2023",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3), "retain_weight": (0.6, 0.9)},
)
