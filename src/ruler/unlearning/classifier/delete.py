"""DELETE (Zhou et al., 2025): follow the original without the true class, on the forget records alone."""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, ClassifierSettings, Method, Module, Objective, Tensor


@dataclass(frozen=True)
class DeleteSettings(ClassifierSettings):
    """Twenty epochs on the forget records."""

    epochs: int = 20
    learning_rate: float = 1e-4


def make_objective(original: Module, settings: DeleteSettings) -> Objective:
    """KL(softmax of the original's logits, true class at minus infinity || student) on the forget records."""
    import torch
    from torch.nn.functional import kl_div

    from ruler.training.steps import compute_logits
    from ruler.unlearning.distillation import freeze_copy

    teacher = freeze_copy(original)

    def objective(student: Module, forget: Batch) -> Tensor:
        inputs, labels = forget
        with torch.no_grad():
            target = compute_logits(teacher, inputs).scatter(1, labels[:, None], -float("inf")).softmax(1)
        return kl_div(compute_logits(student, inputs).log_softmax(1), target, reduction="batchmean")

    return objective


DELETE = Method(
    title="DELETE",
    colour="#C44E52",
    settings=DeleteSettings,
    reads=("forget",),
    make_objective=make_objective,
    kind="classifier",
    formula="KL(original without the true class, student) on forget",
    source="Zhou et al. 2025; DELETE",
    grid={"learning_rate": (1e-4, 1e-3, 1e-2)},
)
