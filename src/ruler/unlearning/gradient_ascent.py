"""Gradient Ascent (Golatkar et al., 2020): raise the loss on the records to forget."""

from dataclasses import dataclass

from ruler.unlearning.method import Method, Module, Objective, Terms, UnlearningSettings


@dataclass(frozen=True)
class GradientAscentSettings(UnlearningSettings):
    """Five epochs on the forget records alone."""

    epochs: int = 5


def make_objective(original: Module, settings: GradientAscentSettings) -> Objective:
    """- CE(forget)."""
    from ruler.training.steps import cross_entropy

    return lambda student, forget: -cross_entropy(student, forget)


GRADIENT_ASCENT = Method(
    title="Gradient Ascent",
    short="GA",
    colour="#E69F00",
    settings=GradientAscentSettings,
    reads=("forget",),
    make_objective=make_objective,
    terms=lambda settings: Terms(forget=(-1.0, 0.0)),
    formula="-CE(forget)",
    source="Golatkar et al. 2020",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3)},
)
