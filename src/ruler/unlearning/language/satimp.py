"""SatImp (Yang et al., 2025): ascend most on tokens that are well known but not yet certain."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.core.checks import check_number
from ruler.unlearning.language.gradient_difference import GradientDifferenceSettings
from ruler.unlearning.method import Method

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ruler.training.batches import Batch
    from ruler.training.steps import Objective


@dataclass(frozen=True)
class SatImpSettings(GradientDifferenceSettings):
    """Ascent weighted by saturation and importance, with the retain loss beside it.

    Args:
        saturation: Power of a token's probability p in its weight.
        importance: Power of 1 - p in its weight.
        forget_weight: Of the forget term.
    """

    saturation: float = 5.0
    importance: float = 1.0
    forget_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.saturation, "saturation", minimum=0)
        check_number(self.importance, "importance", minimum=0)
        check_number(self.forget_weight, "forget_weight", minimum=0, is_strict=True)


def make_objective(original: "nn.Module", settings: SatImpSettings) -> "Objective":
    """Mean over forget tokens of -gamma p^b1 (1 - p)^b2 NLL, p without gradient, plus w NLL(retain)."""
    from ruler.training.steps import compute_logits, cross_entropy
    from ruler.unlearning.language.losses import compute_token_losses, mean_over_asked

    def objective(student: "nn.Module", forget: "Batch", retain: "Batch") -> "torch.Tensor":
        inputs, labels = forget
        losses = compute_token_losses(compute_logits(student, inputs), labels)
        known = (-losses.detach()).exp()
        weights = known**settings.saturation * (1 - known) ** settings.importance
        kept = settings.retain_weight * cross_entropy(student, retain)
        return kept - settings.forget_weight * mean_over_asked(weights * losses, labels)

    return objective


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
