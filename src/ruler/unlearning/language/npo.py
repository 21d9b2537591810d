"""NPO, negative preference optimisation (Zhang et al., 2024): ascend, but less the more has been forgotten."""

from collections.abc import Callable
from dataclasses import dataclass

from ruler.unlearning.language.gradient_difference import GradientDifferenceSettings
from ruler.unlearning.method import Batch, Method, Module, Objective, Tensor, positive


@dataclass(frozen=True)
class NpoSettings(GradientDifferenceSettings):
    """A preference against the forget records, measured from the original model.

    Args:
        beta: How soon forgetting slows down; towards 0 the loss becomes plain ascent.
    """

    beta: float = positive(0.1)


def make_objective(original: Module, settings: NpoSettings) -> Objective:
    """Mean over records of -(2/beta) log sigmoid(beta (NLL - NLL_original)), plus w NLL(retain)."""
    from ruler.unlearning.language.losses import compute_record_losses

    return prefer(original, settings, compute_record_losses)


def prefer(original: Module, settings: NpoSettings, measure: Callable[[Module, Batch], Tensor]) -> Objective:
    """Mean over records of -(2/beta) log sigmoid(beta rise), plus w NLL(retain), for the rise of any loss per record.

    Args:
        original: The rise is from its loss.
        settings: With beta and w.
        measure: (model, forget batch) -> (n,) losses.
    """
    import torch
    from torch.nn.functional import logsigmoid

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.distillation import freeze_copy

    reference, beta = freeze_copy(original), settings.beta

    def objective(student: Module, forget: Batch, retain: Batch) -> Tensor:
        with torch.no_grad():
            before = measure(reference, forget)
        forgotten: Tensor = -2 / beta * logsigmoid(beta * (measure(student, forget) - before)).mean()
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
