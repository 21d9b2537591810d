"""SCRUB in its authors' form (Kurmanji et al., 2023): alternate between the sides, and rewind to a fitting epoch."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.unlearning.method import (
    Batch,
    ClassifierSettings,
    Method,
    Module,
    Plan,
    Records,
    Source,
    Tensor,
    count,
    not_negative,
    positive,
)


@dataclass(frozen=True)
class ScrubRewindSettings(ClassifierSettings):
    """Each epoch is a pass over the forget records that ascends, in the first epochs, and one over the retain records.

    Args:
        n_ascents: Epochs that ascend on the forget records first; ours.
        entropy_weight: The authors' gamma: weight of CE(retain).
        divergence_weight: The authors' alpha: weight of KL(retain).
        temperature: Softens both models' logits before they are compared.
        forget_error: Share of wrong answers that a model should give on the forget records, to be measured on records
            of the same kind that were never trained on. The student becomes that of the epoch whose error is nearest,
            of equally near ones the last. None takes the student's own error on ``validation``, after all epochs.
        validation: Records (X, y) that are like the forget records and are not among the retain records. Without them
            and without ``forget_error`` the student stays that of the last epoch.
    """

    optimizer: str = "adam"
    momentum: float = 0.0
    n_ascents: int = count(3)
    entropy_weight: float = not_negative(0.99)
    divergence_weight: float = not_negative(0.5)
    temperature: float = positive(2.0)
    forget_error: float | None = None
    validation: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.forget_error is not None:
            check_number(self.forget_error, "forget_error", minimum=0)
            if self.forget_error > 1:
                raise InputError(f"forget_error must be at most 1, a share; got {self.forget_error!r}.")

    @property
    def needs_validation(self) -> bool:
        """Whether nothing says yet which error to rewind to."""
        return self.forget_error is None and self.validation is None


def make_plan(student: Module, records: Records, settings: ScrubRewindSettings) -> Iterator[Plan]:
    """By turns -KL(forget), and gamma CE(retain) + alpha KL(retain); the teacher is the original in eval mode."""
    import torch

    from ruler.training.classifier import predict
    from ruler.training.steps import compute_label_loss, compute_logits
    from ruler.unlearning.distillation import compute_divergence, freeze_copy

    teacher = freeze_copy(student)

    def diverge(logits: Tensor, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            guide = compute_logits(teacher, inputs)
        return compute_divergence(logits, guide, settings.temperature)

    def ascend(student: Module, forget: Batch) -> Tensor:
        return -diverge(compute_logits(student, forget[0]), forget[0])

    def descend(student: Module, retain: Batch) -> Tensor:
        logits = compute_logits(student, retain[0])
        kept = settings.entropy_weight * compute_label_loss(logits, retain[1])
        return kept + settings.divergence_weight * diverge(logits, retain[0])

    def measure_error(source: Source) -> float:
        answers = predict(student, source)
        return float((answers.logits.argmax(1) != answers.labels).mean())

    checkpoints: list[tuple[float, dict[str, torch.Tensor]]] = []  # error on the forget records and weights, by epoch
    for epoch in range(settings.epochs):
        stage = replace(settings, epochs=1, seed=settings.seed + epoch)
        if epoch < settings.n_ascents:
            yield Plan(ascend, {"forget": records["forget"]}, settings=stage)
        yield Plan(descend, {"retain": records["retain"]}, settings=stage)
        if not settings.needs_validation:
            checkpoints.append((measure_error(records["forget"]), copy.deepcopy(student.state_dict())))
    if checkpoints:
        wanted = measure_error(settings.validation) if settings.forget_error is None else settings.forget_error
        student.load_state_dict(min(reversed(checkpoints), key=lambda one: abs(one[0] - wanted))[1])


SCRUB_REWIND = Method(
    title="SCRUB+R",
    colour="#2166AC",
    settings=ScrubRewindSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="by turns -KL(forget), and gamma CE(retain) + alpha KL(retain), teacher: the original; then rewind",
    source="Kurmanji et al. 2023; SCRUB",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3), "n_ascents": (3, 5)},
)
