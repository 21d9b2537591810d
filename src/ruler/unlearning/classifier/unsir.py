"""UNSIR (Tarun et al., 2023): impair the model by noise that it errs on most, then repair it on the retain records."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ruler.unlearning.method import (
    ClassifierSettings,
    Method,
    Module,
    Pair,
    Plan,
    Records,
    Tensor,
    count,
    not_negative,
    positive,
)


@dataclass(frozen=True)
class UnsirSettings(ClassifierSettings):
    """Made for whole classes: ``epochs`` of impairing, then as many of repairing, by Adam.

    Args:
        noise_rate: Of Adam, when the noise is trained.
        noise_steps: For the noise.
        noise_penalty: Weight of the noise's mean squared length.
    """

    epochs: int = 1
    learning_rate: float = 1e-4
    optimizer: str = "adam"
    momentum: float = 0.0
    noise_rate: float = positive(0.1)
    noise_steps: int = count(25)
    noise_penalty: float = not_negative(0.1)


def make_plan(student: Module, records: Records, settings: UnsirSettings) -> Iterator[Plan]:
    """CE(retain and noise with the forget records' labels); then CE(retain)."""
    import torch

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import gather_pair

    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    noise = train_noise(student, forget, settings)
    both = torch.cat([retain[0], noise]), torch.cat([retain[1], forget[1]])
    yield Plan(cross_entropy, {"impair": both})
    yield Plan(cross_entropy, {"repair": retain}, settings=replace(settings, seed=settings.seed + 1))


def train_noise(model: Module, forget: Pair, settings: UnsirSettings) -> Tensor:
    """One input per forget record: minimises penalty mean(norm^2) - CE(noise, its label), from Gaussian noise."""
    import torch
    from torch.nn.functional import cross_entropy

    from ruler.training.steps import compute_logits, uncompiled
    from ruler.unlearning.distillation import freeze_copy

    judge = freeze_copy(model)
    noise = torch.randn(forget[0].shape).to(forget[0]).requires_grad_()
    adam = uncompiled(torch.optim.Adam)([noise], lr=settings.noise_rate)
    for _ in range(settings.noise_steps):
        adam.zero_grad()
        length = noise.square().flatten(1).sum(1).mean()
        loss = settings.noise_penalty * length - cross_entropy(compute_logits(judge, noise), forget[1])
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
    return noise.detach()


UNSIR = Method(
    title="UNSIR",
    colour="#C51B7D",
    settings=UnsirSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain and noise of largest CE under the forget labels); then CE(retain)",
    source="Tarun et al. 2023; SUPREME",
    grid={"learning_rate": (1e-4, 1e-3, 0.01)},
)
