"""SimNPO (Fan et al., 2024): NPO without a reference model, its loss per token."""

from dataclasses import dataclass

from ruler.unlearning.language.npo import NpoSettings
from ruler.unlearning.method import Batch, Method, Module, Objective, Tensor, not_negative, positive


@dataclass(frozen=True)
class SimNpoSettings(NpoSettings):
    """A preference against the forget records by their loss per token. Its authors use beta 2.5 and weight 0.1375.

    Args:
        delta: Loss per token from which on forgetting slows down.
        forget_weight: Of the forget term.
    """

    beta: float = 4.5
    delta: float = not_negative(0.0)
    forget_weight: float = positive(0.125)


def make_objective(original: Module, settings: SimNpoSettings) -> Objective:
    """Mean over records of -gamma (2/beta) log sigmoid(beta (NLL / length - delta)), plus w NLL(retain)."""
    from torch.nn.functional import logsigmoid

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.language.losses import compute_record_losses, count_asked

    beta = settings.beta

    def objective(student: Module, forget: Batch, retain: Batch) -> Tensor:
        per_token = compute_record_losses(student, forget) / count_asked(forget[1])
        forgotten = -2 / beta * logsigmoid(beta * (per_token - settings.delta)).mean()
        return settings.forget_weight * forgotten + settings.retain_weight * cross_entropy(student, retain)

    return objective


SIMNPO = Method(
    title="SimNPO",
    colour="#117733",
    settings=SimNpoSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="language",
    formula="-gamma (2/beta) log sigmoid(beta (NLL(forget) / length - delta)) + NLL(retain)",
    source="Fan et al. 2024; open-unlearning",
    grid={"learning_rate": (1e-5, 2e-5, 5e-5)},
)
