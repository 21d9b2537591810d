"""Gradient Ascent: raise the loss on the records to forget."""

from dataclasses import dataclass

import torch
from torch import nn

from ruler.training.batches import Batch
from ruler.training.objectives import cross_entropy
from ruler.training.steps import Objective
from ruler.unlearning.method import Method, UnlearningSettings


@dataclass(frozen=True)
class GradientAscentSettings(UnlearningSettings):
    """Five epochs on the forget records alone."""

    epochs: int = 5


def make_objective(original: nn.Module, settings: GradientAscentSettings) -> Objective:
    """- CE(forget)."""

    def objective(student: nn.Module, forget: Batch) -> torch.Tensor:
        return -cross_entropy(student, forget)

    return objective


GRADIENT_ASCENT = Method(GradientAscentSettings, make_objective, reads=("forget",))
