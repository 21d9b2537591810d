"""NegGrad+: descend on the retained records while ascending on those to forget."""

from dataclasses import dataclass

import torch
from torch import nn

from ruler.training.batches import Batch
from ruler.training.objectives import cross_entropy
from ruler.training.steps import Objective
from ruler.unlearning.method import Method, UnlearningSettings, check_share


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


def make_objective(original: nn.Module, settings: NegGradPlusSettings) -> Objective:
    """alpha CE(retain) - (1 - alpha) CE(forget)."""

    def objective(student: nn.Module, retain: Batch, forget: Batch) -> torch.Tensor:
        kept = cross_entropy(student, retain)
        return settings.retain_weight * kept - (1 - settings.retain_weight) * cross_entropy(student, forget)

    return objective


NEGGRAD_PLUS = Method(NegGradPlusSettings, make_objective, reads=("retain", "forget"))
