"""SCRUB: agree with the original model on the retained records and disagree on those to forget."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ruler.core.checks import check_number
from ruler.training.batches import Batch
from ruler.training.loop import Objective, compute_logits
from ruler.unlearning.method import Method, UnlearningSettings, check_share, compute_divergence, freeze_copy


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


def make_objective(original: nn.Module, settings: ScrubSettings) -> Objective:
    """alpha [CE(retain) + KL(retain)] - (1 - alpha) KL(forget); the teacher is the original in eval mode."""
    return make_distillation(freeze_copy(original), settings, forget_sign=-1)


def make_distillation(teacher: nn.Module, settings: ScrubSettings, *, forget_sign: int) -> Objective:
    """alpha [CE(retain) + KL(retain)] + sign (1 - alpha) KL(forget): for SCRUB and Bad Teacher."""
    share, temperature = settings.retain_weight, settings.temperature

    answers: dict[str, tuple[Any, torch.Tensor]] = {}  # full batch, a source yields the same object every epoch

    def diverge(student_logits: torch.Tensor, source: str, batch: Batch) -> torch.Tensor:
        if source not in answers or answers[source][0] is not batch[0]:
            with torch.no_grad():
                answers[source] = batch[0], compute_logits(teacher, batch[0])
        return compute_divergence(student_logits, answers[source][1], temperature)

    def objective(student: nn.Module, retain: Batch, forget: Batch) -> torch.Tensor:
        retain_logits = compute_logits(student, retain[0])
        kept = functional.cross_entropy(retain_logits, retain[1]) + diverge(retain_logits, "retain", retain)
        forgotten = diverge(compute_logits(student, forget[0]), "forget", forget)
        return share * kept + forget_sign * (1 - share) * forgotten

    return objective


SCRUB = Method(ScrubSettings, make_objective, reads=("retain", "forget"))
