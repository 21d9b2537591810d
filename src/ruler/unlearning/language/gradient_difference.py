"""Gradient difference (Liu et al., 2022): ascend on the records to forget while descending on retained ones.

NegGrad+ has the same two terms with weights that add up to 1, and an epoch that is a pass over the retain records. Here
both weights are 1 and an epoch is a pass over the forget records, each batch beside one of retain records, as in the
public code for language models.
"""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, LanguageSettings, Method, Module, Objective, Tensor, not_negative


@dataclass(frozen=True)
class GradientDifferenceSettings(LanguageSettings):
    """Both forces in one loss.

    Args:
        retain_weight: Of the retain loss; the forget loss has weight 1.
    """

    retain_weight: float = not_negative(1.0)


def make_objective(original: Module, settings: GradientDifferenceSettings) -> Objective:
    """- NLL(forget) + w NLL(retain), each the mean over tokens."""
    from ruler.training.steps import cross_entropy

    def objective(student: Module, forget: Batch, retain: Batch) -> Tensor:
        return settings.retain_weight * cross_entropy(student, retain) - cross_entropy(student, forget)

    return objective


GRADIENT_DIFFERENCE = Method(
    title="Gradient difference",
    short="GD",
    colour="#882255",
    settings=GradientDifferenceSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="language",
    formula="-NLL(forget) + NLL(retain)",
    source="Liu et al. 2022; open-unlearning",
    grid={"learning_rate": (5e-6, 1e-5, 2e-5)},
)
