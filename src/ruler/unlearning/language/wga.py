"""WGA, weighted gradient ascent (Wang et al., 2025): ascend on each token by how well it is still known."""

from collections.abc import Callable
from dataclasses import dataclass

from ruler.unlearning.language.gradient_difference import GradientDifferenceSettings
from ruler.unlearning.method import Batch, Method, Module, Objective, Tensor, not_negative


@dataclass(frozen=True)
class WgaSettings(GradientDifferenceSettings):
    """Ascent on tokens that are still likely, with the retain loss beside it.

    Args:
        beta: Power of a token's probability in its weight.
    """

    epochs: int = 5
    beta: float = not_negative(1.0)


def make_objective(original: Module, settings: WgaSettings) -> Objective:
    """Mean over forget tokens of -p^beta NLL, p without gradient, plus w NLL(retain)."""
    return ascend(settings, lambda losses: (-settings.beta * losses).exp())


def ascend(
    settings: GradientDifferenceSettings, weigh: Callable[[Tensor], Tensor], forget_weight: float = 1.0
) -> Objective:
    """Gradient difference whose forget tokens are weighed by their own losses, through which no gradient passes."""
    from ruler.training.steps import compute_logits, cross_entropy
    from ruler.unlearning.language.losses import compute_token_losses, mean_over_asked

    def objective(student: Module, forget: Batch, retain: Batch) -> Tensor:
        inputs, labels = forget
        losses = compute_token_losses(compute_logits(student, inputs), labels)
        forgotten = mean_over_asked(weigh(losses.detach()) * losses, labels)
        return settings.retain_weight * cross_entropy(student, retain) - forget_weight * forgotten

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
