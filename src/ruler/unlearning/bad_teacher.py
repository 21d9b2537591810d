"""Bad Teacher: follow a random model, and hold on to the retained records by their labels."""

from dataclasses import dataclass

from torch import nn

from ruler.core.checks import check_number
from ruler.training.steps import Objective
from ruler.unlearning.method import Method, make_random_teacher
from ruler.unlearning.scrub import ScrubSettings, make_distillation


@dataclass(frozen=True)
class BadTeacherSettings(ScrubSettings):
    """Distillation from a random model of the same architecture.

    Args:
        teacher_seed: Of the teacher's weights; the student's dropout does not depend on it.
    """

    teacher_seed: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.teacher_seed, "teacher_seed", minimum=0, is_whole=True)


def make_objective(original: nn.Module, settings: BadTeacherSettings) -> Objective:
    """alpha [CE(retain) + KL(retain)] + (1 - alpha) KL(forget), a random teacher in eval mode."""
    return make_distillation(make_random_teacher(original, settings.teacher_seed), settings, forget_sign=1)


BAD_TEACHER = Method(BadTeacherSettings, make_objective, reads=("retain", "forget"))
