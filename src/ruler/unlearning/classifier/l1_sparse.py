"""L1-sparse (Jia et al., 2023): fine-tune on the retain records under a penalty on the weights that fades out."""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, ClassifierSettings, Method, Module, Plan, Records, Tensor, not_negative


@dataclass(frozen=True)
class L1SparseSettings(ClassifierSettings):
    """Fine-Tuning that makes the weights sparse first.

    Args:
        penalty: Weight of sum(abs(weights)) in the first epoch; its authors tune it for each model.
    """

    learning_rate: float = 0.01
    penalty: float = not_negative(5e-4)


def make_plan(student: Module, records: Records, settings: L1SparseSettings) -> Plan:
    """CE(retain) + a (1 - t/T) sum(abs(weights)), t epochs done of T."""
    import torch

    from ruler.training.batches import device_of
    from ruler.training.steps import cross_entropy

    strength = torch.tensor(settings.penalty, device=device_of(student))

    def objective(student: Module, retain: Batch) -> Tensor:
        size = torch.stack([value.abs().sum() for value in student.parameters()]).sum()
        return cross_entropy(student, retain) + strength * size

    def fade(epoch: int, loss: float) -> None:
        strength.fill_(settings.penalty * (1 - epoch / settings.epochs))

    return Plan(objective, on_epoch=fade)


L1_SPARSE = Method(
    title="L1-sparse",
    colour="#DD8452",
    settings=L1SparseSettings,
    reads=("retain",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain) + a (1 - t/T) sum(abs(weights))",
    source="Jia et al. 2023; Unlearn-Sparse",
    grid={"learning_rate": (1e-3, 0.01), "penalty": (1e-4, 5e-4, 1e-3)},
)
