"""Random labels (after Graves et al., 2021): train on forget records with wrong labels, and on retain records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.unlearning.method import ClassifierSettings, Method, Plan

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ruler.training.batches import Batch, Source


@dataclass(frozen=True)
class RandomLabelsSettings(ClassifierSettings):
    """Three epochs of Adam; every forget record keeps the wrong label that the seed draws for it."""

    epochs: int = 3
    learning_rate: float = 1e-4
    optimizer: str = "adam"
    momentum: float = 0.0


def make_plan(student: "nn.Module", records: "Mapping[str, Source]", settings: ClassifierSettings) -> Plan:
    """CE(retain) + CE(forget with wrong labels)."""
    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import draw_wrong_labels, gather_pair

    def objective(student: "nn.Module", retain: "Batch", forget: "Batch") -> "torch.Tensor":
        return cross_entropy(student, retain) + cross_entropy(student, forget)

    forget = gather_pair(records["forget"], student)
    return Plan(objective, {**records, "forget": draw_wrong_labels(forget, student, settings.seed)})


RANDOM_LABELS = Method(
    title="Random labels",
    short="RL",
    colour="#6699CC",
    settings=RandomLabelsSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain) + CE(forget, wrong labels)",
    source="Graves et al. 2021; SUPREME",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3)},
)
