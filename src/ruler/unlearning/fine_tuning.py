"""Fine-Tuning: train on with the retained records and trust that the others fade."""

from dataclasses import dataclass

from torch import nn

from ruler.training.objectives import cross_entropy
from ruler.training.steps import Objective
from ruler.unlearning.method import Method, UnlearningSettings


@dataclass(frozen=True)
class FineTuningSettings(UnlearningSettings):
    """Ten epochs on the retain records alone."""


def make_objective(original: nn.Module, settings: FineTuningSettings) -> Objective:
    """CE(retain)."""
    return cross_entropy


FINE_TUNING = Method(FineTuningSettings, make_objective, reads=("retain",))
