"""Boundary shrink (Chen et al., 2023): give each forget record the class that the original sees just beside it.

A record whose neighbour is still of its own class keeps that class, so that little happens where the boundary is
further away than the bound.
"""

from dataclasses import dataclass

from ruler.unlearning.method import ClassifierSettings, Method, Module, Plan, Records, positive

_BLOCK = 2048  # records per backward pass


@dataclass(frozen=True)
class BoundaryShrinkSettings(ClassifierSettings):
    """Ten epochs on the forget records, relabelled once by the original. Rate and epochs are ours.

    Args:
        bound: How far each input may move, in every coordinate, to find the nearest class.
    """

    learning_rate: float = 1e-3
    bound: float = positive(0.1)


def make_plan(student: Module, records: Records, settings: BoundaryShrinkSettings) -> Plan:
    """CE(forget, c), c the likeliest class at x + bound sign(gradient of CE at x), seen by the original."""
    import torch
    from torch.nn.functional import cross_entropy as entropy

    from ruler.training.steps import compute_logits, cross_entropy
    from ruler.unlearning.classifier.records import gather_pair
    from ruler.unlearning.distillation import freeze_copy

    original = freeze_copy(student)
    inputs, labels = gather_pair(records["forget"], student)
    nearest = []
    for rows, answers in zip(torch.split(inputs, _BLOCK), torch.split(labels, _BLOCK), strict=True):
        start = rows.clone().requires_grad_()
        (slope,) = torch.autograd.grad(entropy(compute_logits(original, start), answers, reduction="sum"), start)
        with torch.no_grad():
            nearest.append(compute_logits(original, rows + settings.bound * slope.sign()).argmax(1))
    return Plan(cross_entropy, {**records, "forget": (inputs, torch.cat(nearest))})


BOUNDARY_SHRINK = Method(
    title="Boundary shrink",
    short="BS",
    colour="#64B5CD",
    settings=BoundaryShrinkSettings,
    reads=("forget",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(forget, the class of its FGSM neighbour)",
    source="Chen et al. 2023; Unlearn-Saliency",
    grid={"learning_rate": (1e-4, 1e-3, 1e-2)},
)
