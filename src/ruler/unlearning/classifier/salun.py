"""SalUn (Fan et al., 2024): random labels, but only the weights with the largest forget gradient may move."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ruler.unlearning.classifier.random_labels import make_plan as plan_random_labels
from ruler.unlearning.method import ClassifierSettings, Method, Plan, check_share

if TYPE_CHECKING:
    from torch import nn

    from ruler.training.batches import Source


_BLOCK = 2048  # records per backward pass


@dataclass(frozen=True)
class SalunSettings(ClassifierSettings):
    """Random labels on the salient weights. All others are restored after every step, so momentum and decay move none.

    Args:
        share: Of all weights, those that may move.
    """

    epochs: int = 10
    learning_rate: float = 0.013
    weight_decay: float = 5e-4
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.share, "share")


def make_plan(student: "nn.Module", records: "Mapping[str, Source]", settings: SalunSettings) -> Plan:
    """CE as of random labels, over the weights of the largest abs(gradient of CE(forget))."""
    import torch

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import gather_pair

    plan = plan_random_labels(student, records, settings)
    named = {name: value for name, value in student.named_parameters() if value.requires_grad}
    is_training = [(module, module.training) for module in student.modules()]
    student.eval()
    forget = gather_pair(records["forget"], student)
    sums = [torch.zeros_like(value) for value in named.values()]
    for block in zip(*(torch.split(part, _BLOCK) for part in forget), strict=True):
        loss = cross_entropy(student, block) * (len(block[1]) / len(forget[1]))
        found = torch.autograd.grad(loss, list(named.values()), materialize_grads=True, allow_unused=True)
        sums = [total + part for total, part in zip(sums, found, strict=True)]
    for module, was_training in is_training:
        module.training = was_training
    sizes = [total.abs() for total in sums]
    flat = torch.cat([size.flatten() for size in sizes])
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[flat.topk(max(1, round(settings.share * len(flat)))).indices] = True
    parts = torch.split(chosen, [size.numel() for size in sizes])
    kept = {
        name: (part.reshape(value.shape), value.detach().clone())
        for (name, value), part in zip(named.items(), parts, strict=True)
    }

    def restore(model: "nn.Module") -> None:
        for name, value in model.named_parameters():
            if name in kept:
                may_move, before = kept[name]
                value.copy_(torch.where(may_move, value, before))

    return replace(plan, after_step=restore)


SALUN = Method(
    title="SalUn",
    colour="#999999",
    settings=SalunSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE as of random labels, over the share of weights with the largest forget gradient",
    source="Fan et al. 2024; Unlearn-Saliency",
    grid={"learning_rate": (1e-3, 0.013), "share": (0.3, 0.5, 0.7)},
)
