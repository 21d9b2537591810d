"""MSG, masked small gradients (after DeepUnlearn's code): draw the kernels' weights of least gradient anew."""

from dataclasses import dataclass

from ruler.unlearning.method import (
    Batch,
    ClassifierSettings,
    Method,
    Module,
    Plan,
    Records,
    Tensor,
    fraction,
    not_negative,
)


@dataclass(frozen=True)
class MsgSettings(ClassifierSettings):
    """Five epochs on the retain records.

    Args:
        share: Of each kernel's weights, those that are drawn anew.
        slowness: Factor of the gradients of all other weights.
    """

    epochs: int = 5
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    share: float = fraction(0.3)
    slowness: float = not_negative(0.1)


def make_plan(student: Module, records: Records, settings: MsgSettings) -> Plan:
    """CE(retain), the weights of least abs(gradient of CE(retain) - CE(forget)) drawn anew, the others slowed down."""
    import torch
    from torch.func import functional_call

    from ruler.training.steps import compute_label_loss
    from ruler.unlearning.classifier.records import gather_pair, list_kernels, sum_loss_gradients
    from ruler.unlearning.distillation import make_random_teacher

    pairs = [gather_pair(records[side], student) for side in ("retain", "forget")]
    of_retain, of_forget = (sum_loss_gradients(student, pair) for pair in pairs)
    fresh = make_random_teacher(student, settings.seed).state_dict()
    paces = {name: torch.full_like(value, settings.slowness) for name, value in student.named_parameters()}
    kernels = set(list_kernels(student))
    for name, value in student.named_parameters():
        if name in kernels and name in of_retain:
            size = (of_retain[name] / len(pairs[0][1]) - of_forget[name] / len(pairs[1][1])).abs().flatten()
            least = size.topk(max(1, round(settings.share * len(size))), largest=False).indices
            is_least = torch.zeros_like(size, dtype=torch.bool).scatter(0, least, True).reshape(value.shape)
            paces[name].masked_fill_(is_least, 1.0)
            with torch.no_grad():
                value.copy_(torch.where(is_least, fresh[name], value))

    def objective(student: Module, retain: Batch) -> Tensor:
        slowed = {  # the same numbers, with gradients times the pace
            name: value.detach() + paces[name] * (value - value.detach()) for name, value in student.named_parameters()
        }
        output = functional_call(student, slowed, (retain[0],))
        return compute_label_loss(getattr(output, "logits", output), retain[1])

    return Plan(objective, {"retain": records["retain"]})


MSG = Method(
    title="MSG",
    colour="#5E3C99",
    settings=MsgSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), the share of kernel weights with the smallest gradient of CE(retain) - CE(forget) drawn anew",
    source="Cadet et al. 2024; DeepUnlearn",
    grid={"learning_rate": (1e-3, 0.01), "share": (0.1, 0.3, 0.5)},
)
