"""NPO, negative preference optimisation (Zhang et al., 2024): ascend, but less the more has been forgotten."""

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
class NpoSettings(GradientDifferenceSettings):
    """A preference against the forget records, measured from the original model.

    Args:
        beta: How soon forgetting slows down; towards 0 the loss becomes plain ascent.
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.beta, "beta", minimum=0, is_strict=True)


def make_objective(original: "nn.Module", settings: NpoSettings) -> "Objective":
    """Mean over records of -(2/beta) log sigmoid(beta (NLL - NLL_original)), plus w NLL(retain)."""
    import torch
    from torch.nn.functional import logsigmoid

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.distillation import freeze_copy
    from ruler.unlearning.language.losses import compute_record_losses

    reference, beta = freeze_copy(original), settings.beta

    def objective(student: "nn.Module", forget: "Batch", retain: "Batch") -> "torch.Tensor":
        with torch.no_grad():
            before = compute_record_losses(reference, forget)
        risen = compute_record_losses(student, forget) - before
        forgotten: torch.Tensor = -2 / beta * logsigmoid(beta * risen).mean()
        return forgotten + settings.retain_weight * cross_entropy(student, retain)

    return objective


NPO = Method(
    title="NPO",
    colour="#332288",
    settings=NpoSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="language",
    formula="-(2/beta) log sigmoid(beta (NLL(forget) - NLL_original(forget))) + NLL(retain)",
    source="Zhang et al. 2024; open-unlearning",
    grid={"learning_rate": (1e-5, 2e-5, 5e-5)},
)
