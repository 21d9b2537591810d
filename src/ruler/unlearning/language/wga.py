"""WGA, weighted gradient ascent (Wang et al., 2025): ascend on each token by how well it is still known."""

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
class WgaSettings(GradientDifferenceSettings):
    """Ascent on tokens that are still likely, with the retain loss beside it.

    Args:
        beta: Power of a token's probability in its weight.
    """

    epochs: int = 5
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.beta, "beta", minimum=0)


def make_objective(original: "nn.Module", settings: WgaSettings) -> "Objective":
    """Mean over forget tokens of -p^beta NLL, p without gradient, plus w NLL(retain)."""
    from ruler.training.steps import compute_logits, cross_entropy
    from ruler.unlearning.language.losses import compute_token_losses, mean_over_asked

    def objective(student: "nn.Module", forget: "Batch", retain: "Batch") -> "torch.Tensor":
        inputs, labels = forget
        losses = compute_token_losses(compute_logits(student, inputs), labels)
        weights = (-settings.beta * losses.detach()).exp()
        return settings.retain_weight * cross_entropy(student, retain) - mean_over_asked(weights * losses, labels)

    return objective


WGA = Method(
    title="WGA",
    colour="#44AA99",
    settings=WgaSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="language",
    formula="-p^beta NLL(forget), p fixed + NLL(retain)",
    source="Wang et al. 2025; open-unlearning",
    grid={"learning_rate": (1e-5, 2e-5, 5e-5)},
)
