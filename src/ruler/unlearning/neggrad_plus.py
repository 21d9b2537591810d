"""NegGrad+ (Kurmanji et al., 2023): descend on the retain records while ascending on the forget records."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.unlearning.method import Method, Terms, UnlearningSettings, check_share

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ruler.training.batches import Batch
    from ruler.training.steps import Objective


@dataclass(frozen=True)
class NegGradPlusSettings(UnlearningSettings):
    """Both forces in one loss.

    Args:
        retain_weight: The paper's alpha: weight of the retain loss; the forget loss has the rest.
    """

    retain_weight: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.retain_weight, "retain_weight")


def make_objective(original: "nn.Module", settings: NegGradPlusSettings) -> "Objective":
    """alpha CE(retain) - (1 - alpha) CE(forget)."""
    from ruler.training.steps import cross_entropy

    def objective(student: "nn.Module", retain: "Batch", forget: "Batch") -> "torch.Tensor":
        kept = cross_entropy(student, retain)
        return settings.retain_weight * kept - (1 - settings.retain_weight) * cross_entropy(student, forget)

    return objective


NEGGRAD_PLUS = Method(
    title="NegGrad+",
    short="NG+",
    colour="#56B4E9",
    settings=NegGradPlusSettings,
    reads=("retain", "forget"),
    make_objective=make_objective,
    terms=lambda settings: Terms(retain=(settings.retain_weight, 0.0), forget=(settings.retain_weight - 1.0, 0.0)),
    formula="alpha CE(retain) - (1 - alpha) CE(forget)",
    source="Kurmanji et al. 2023",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3), "retain_weight": (0.6, 0.9)},
)
