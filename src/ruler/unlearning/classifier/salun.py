"""SalUn (Fan et al., 2024): random labels, but only the weights with the largest forget gradient may move."""

from dataclasses import dataclass, replace

from ruler.unlearning.classifier.random_labels import make_plan as plan_random_labels
from ruler.unlearning.method import ClassifierSettings, Method, Module, Plan, Records, fraction


@dataclass(frozen=True)
class SalunSettings(ClassifierSettings):
    """Random labels on the salient weights. All others are restored after every step, so momentum and decay move none.

    Args:
        share: Of all weights, those that may move.
    """

    learning_rate: float = 0.013
    weight_decay: float = 5e-4
    share: float = fraction(0.5)


def make_plan(student: Module, records: Records, settings: SalunSettings) -> Plan:
    """CE as of random labels, over the weights of the largest abs(gradient of CE(forget))."""
    import torch

    from ruler.unlearning.classifier.records import gather_pair, sum_loss_gradients

    slopes = sum_loss_gradients(student, gather_pair(records["forget"], student))
    sizes = torch.cat([slope.abs().flatten() for slope in slopes.values()])
    chosen = torch.zeros_like(sizes, dtype=torch.bool)
    chosen[sizes.topk(max(1, round(settings.share * len(sizes)))).indices] = True
    parts = torch.split(chosen, [slope.numel() for slope in slopes.values()])
    values = dict(student.named_parameters())
    kept = {
        name: (part.reshape(values[name].shape), values[name].detach().clone())
        for name, part in zip(slopes, parts, strict=True)
    }

    def restore(model: Module) -> None:
        for name, value in model.named_parameters():
            if name in kept:
                may_move, before = kept[name]
                value.copy_(torch.where(may_move, value, before))

    return replace(plan_random_labels(student, records, settings), after_step=restore)


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
