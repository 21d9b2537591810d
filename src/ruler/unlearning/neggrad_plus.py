"""NegGrad+ (Kurmanji et al., 2023): descend on the retain records while ascending on the forget records."""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, Method, Module, Objective, Tensor, Terms, UnlearningSettings, fraction


@dataclass(frozen=True)
class NegGradPlusSettings(UnlearningSettings):
    """Both forces in one loss.

    Args:
        retain_weight: The paper's alpha: weight of the retain loss; the forget loss has the rest.
    """

    retain_weight: float = fraction(0.6)


def make_objective(original: Module, settings: NegGradPlusSettings) -> Objective:
    """alpha CE(retain) - (1 - alpha) CE(forget)."""
    from ruler.training.steps import cross_entropy

    def objective(student: Module, retain: Batch, forget: Batch) -> Tensor:
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
