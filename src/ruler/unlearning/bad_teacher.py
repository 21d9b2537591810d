"""Bad Teacher (after Chundawat et al., 2023): follow a random model, and keep the retain records by their labels.

The paper's form, with a single teacher for both sides (appendix A.11).
"""

from dataclasses import dataclass

from ruler.unlearning.method import Method, Module, Objective, count
from ruler.unlearning.scrub import ScrubSettings, list_terms


@dataclass(frozen=True)
class BadTeacherSettings(ScrubSettings):
    """Distillation from a random model of the same architecture.

    Args:
        teacher_seed: Of the teacher's weights; the student's dropout does not depend on it.
    """

    teacher_seed: int = count(100, least=0)


def make_objective(original: Module, settings: BadTeacherSettings) -> Objective:
    """alpha [CE(retain) + KL(retain)] + (1 - alpha) KL(forget), a random teacher in eval mode."""
    from ruler.unlearning.distillation import make_distillation, make_random_teacher

    return make_distillation(make_random_teacher(original, settings.teacher_seed), settings, forget_sign=1)


BAD_TEACHER = Method(
    title="Bad Teacher",
    short="BT",
    colour="#D55E00",
    settings=BadTeacherSettings,
    reads=("retain", "forget"),
    make_objective=make_objective,
    terms=lambda settings: list_terms(settings, settings.teacher_seed, forget_sign=1),
    formula="alpha [CE(retain) + KL(retain)] + (1 - alpha) KL(forget), teacher: a random model",
    source="Chundawat et al. 2023",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3), "retain_weight": (0.6, 0.9)},
)
