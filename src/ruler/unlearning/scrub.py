"""SCRUB: agree with the original model on the retained records and disagree on those to forget."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ruler.core.checks import check_number
from ruler.training.batches import Batch
from ruler.training.objectives import compute_label_loss, compute_logits
from ruler.training.steps import Objective
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

    ask = _keep_answers(teacher) if settings.batch_size is None else _ask_anew(teacher)

    def diverge(student_logits: torch.Tensor, source: str, batch: Batch) -> torch.Tensor:
        return compute_divergence(student_logits, ask(source, batch[0]), temperature, labels=batch[1])

    def objective(student: nn.Module, retain: Batch, forget: Batch) -> torch.Tensor:
        retain_logits = compute_logits(student, retain[0])
        kept = compute_label_loss(retain_logits, retain[1]) + diverge(retain_logits, "retain", retain)
        forgotten = diverge(compute_logits(student, forget[0]), "forget", forget)
        return share * kept + forget_sign * (1 - share) * forgotten

    return objective


def _ask_anew(teacher: nn.Module) -> Callable[[str, Any], torch.Tensor]:
    """The teacher's logits for every mini batch; a captured step refills the same tensors, so none are kept."""

    def ask(source: str, inputs: Any) -> torch.Tensor:
        with torch.no_grad():
            return compute_logits(teacher, inputs)

    return ask


def _keep_answers(teacher: nn.Module) -> Callable[[str, Any], torch.Tensor]:
    """The teacher's logits, computed once as long as a source yields the same object, as a full batch does."""
    ask = _ask_anew(teacher)
    answers: dict[str, tuple[Any, torch.Tensor]] = {}

    def recall(source: str, inputs: Any) -> torch.Tensor:
        if source not in answers or answers[source][0] is not inputs:
            answers[source] = inputs, ask(source, inputs)
        return answers[source][1]

    return recall


SCRUB = Method(ScrubSettings, make_objective, reads=("retain", "forget"))
