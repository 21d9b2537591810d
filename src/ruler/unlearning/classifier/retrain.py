"""Retraining: fresh weights, trained on the retain records alone; what all other methods are measured by."""

from dataclasses import dataclass
from typing import ClassVar

from ruler.unlearning.method import Method, Module, Plan, Records, UnlearningSettings


@dataclass(frozen=True)
class RetrainSettings(UnlearningSettings):
    """The paper's training by default; give the settings that the original was trained with."""

    epochs: int = 50
    learning_rate: float = 1e-3
    may_augment: ClassVar[bool] = True


def make_plan(student: Module, records: Records, settings: RetrainSettings) -> Plan:
    """CE(retain) from weights that the seed draws."""
    from ruler.training.steps import cross_entropy
    from ruler.unlearning.distillation import make_random_teacher

    student.load_state_dict(make_random_teacher(student, settings.seed).state_dict())
    return Plan(cross_entropy)


RETRAIN = Method(
    title="Retraining",
    short="RT",
    colour="#222222",
    settings=RetrainSettings,
    reads=("retain",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), all weights drawn anew",
    source="the exact baseline",
    trains_anew=True,
)
