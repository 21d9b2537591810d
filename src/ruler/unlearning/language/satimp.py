"""SatImp (Yang et al., 2025): ascend most on tokens that are well known but not yet certain."""

from dataclasses import dataclass

from ruler.unlearning.language.gradient_difference import GradientDifferenceSettings
from ruler.unlearning.language.wga import ascend
from ruler.unlearning.method import Method, Module, Objective, Tensor, not_negative, positive


@dataclass(frozen=True)
class SatImpSettings(GradientDifferenceSettings):
    """Ascent weighted by saturation and importance, with the retain loss beside it.

    Args:
        saturation: Power of a token's probability p in its weight.
        importance: Power of 1 - p in its weight.
        forget_weight: Of the forget term.
    """

    saturation: float = not_negative(5.0)
    importance: float = not_negative(1.0)
    forget_weight: float = positive(0.1)


def make_objective(original: Module, settings: SatImpSettings) -> Objective:
    """Mean over forget tokens of -gamma p^b1 (1 - p)^b2 NLL, p without gradient, plus w NLL(retain)."""

    def weigh(losses: Tensor) -> Tensor:
        known = (-losses).exp()
        return known**settings.saturation * (1 - known) ** settings.importance

    return ascend(settings, weigh, settings.forget_weight)


SATIMP = Method(
    title="SatImp",
    colour="#661100",
    settings=SatImpSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="language",
    formula="-gamma p^b1 (1 - p)^b2 NLL(forget), p fixed + NLL(retain)",
    source="Yang et al. 2025; open-unlearning",
    grid={"learning_rate": (1e-5, 2e-5, 5e-5)},
)
