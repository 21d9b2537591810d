"""Random labels (after Graves et al., 2021): train on forget records with wrong labels, and on retain records.

Each record counts once per epoch, as in the public code. If the forget records counted as much as all retain records
together, then of two classes no model could fit both: every answer would be right and wrong in equal parts.
"""

from dataclasses import dataclass

from ruler.unlearning.method import ClassifierSettings, Method, Module, Plan, Records


@dataclass(frozen=True)
class RandomLabelsSettings(ClassifierSettings):
    """Three epochs of Adam; every forget record keeps the wrong label that the seed draws for it."""

    epochs: int = 3
    learning_rate: float = 1e-4
    optimizer: str = "adam"
    momentum: float = 0.0


def make_plan(student: Module, records: Records, settings: ClassifierSettings) -> Plan:
    """CE(retain records, and forget records with wrong labels)."""
    import torch

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import draw_wrong_labels, gather_pair

    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    wrong = draw_wrong_labels(forget, student, settings.seed)
    return Plan(cross_entropy, {"both": (torch.cat([retain[0], wrong[0]]), torch.cat([retain[1], wrong[1]]))})


RANDOM_LABELS = Method(
    title="Random labels",
    short="RL",
    colour="#6699CC",
    settings=RandomLabelsSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain records, and forget records with wrong labels)",
    source="Graves et al. 2021; SUPREME",
    grid={"learning_rate": (1e-4, 5e-4, 1e-3)},
)
