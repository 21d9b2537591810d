"""Fine-Tuning (Golatkar et al., 2020): continue to train on the retain records alone."""

from dataclasses import dataclass

from ruler.unlearning.method import Method, Module, Objective, Terms, UnlearningSettings


@dataclass(frozen=True)
class FineTuningSettings(UnlearningSettings):
    """Ten epochs on the retain records alone."""


def make_objective(original: Module, settings: FineTuningSettings) -> Objective:
    """CE(retain)."""
    from ruler.training.steps import cross_entropy

    return cross_entropy


FINE_TUNING = Method(
    title="Fine-Tuning",
    short="FT",
    colour="#009E73",
    settings=FineTuningSettings,
    reads=("retain",),
    make_objective=make_objective,
    terms=lambda settings: Terms(retain=(1.0, 0.0)),
    formula="CE(retain)",
    source="Golatkar et al. 2020",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3)},
)
