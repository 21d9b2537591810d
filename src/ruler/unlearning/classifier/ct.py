"""CT, convolution transpose (after DeepUnlearn's code): transpose every kernel, fine-tune on retain records."""

from dataclasses import dataclass

from ruler.unlearning.method import ClassifierSettings, Method, Module, Plan, Records


@dataclass(frozen=True)
class CtSettings(ClassifierSettings):
    """Three epochs on the retain records."""

    epochs: int = 3
    learning_rate: float = 1e-3


def make_plan(student: Module, records: Records, settings: CtSettings) -> Plan:
    """CE(retain), from kernels with rows and columns exchanged.

    A model without convolutions has no kernels; ours: the largest square that each of its matrices begins with.
    """
    import torch

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import list_kernels

    values = dict(student.named_parameters())
    with torch.no_grad():
        for name in list_kernels(student):
            side = min(values[name].shape[-2:])
            square = values[name][..., :side, :side]
            square.copy_(square.transpose(-1, -2).clone())
    return Plan(cross_entropy)


CT = Method(
    title="CT",
    colour="#1B7837",
    settings=CtSettings,
    reads=("retain",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), from transposed kernels",
    source="Cadet et al. 2024; DeepUnlearn",
    grid={"learning_rate": (1e-3, 0.01), "epochs": (3, 5)},
)
