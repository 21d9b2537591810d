"""SSD, selective synaptic dampening (Foster et al., 2024): shrink weights that matter to the forget records most."""

from collections.abc import Callable
from dataclasses import dataclass

from ruler.core.determinism import kept_modes
from ruler.core.errors import InputError
from ruler.unlearning.method import Method, Module, Pair, Records, Tensor, UnlearningSettings, positive

_GRADIENTS_AT_ONCE = {"cpu": 1 << 26, "cuda": 1 << 30}  # numbers: as many records per pass as these allow


@dataclass(frozen=True)
class SsdSettings(UnlearningSettings):
    """Dampening without training: epochs, rate, batch and seed are not used. For faces its authors take 50 and 0.1.

    Args:
        threshold: The paper's alpha: a weight is dampened if its importance to the forget records is so many times that
            to all records.
        strength: The paper's lambda: the larger, the less a weight is dampened.
    """

    threshold: float = positive(10.0)
    strength: float = positive(1.0)


def edit(student: Module, records: Records, settings: SsdSettings) -> None:
    """Where F_f > alpha F: weight times min(lambda F / F_f, 1). F is the mean squared gradient of a record's CE."""
    from torch.nn.functional import cross_entropy

    dampen(student, records, settings, cross_entropy, power=2)


def dampen(
    student: Module,
    records: Records,
    settings: SsdSettings,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    power: int,
) -> None:
    """Dampen by the mean over records of abs(gradient of ``loss``)^power; all records are forget and retain ones.

    Raises:
        InputError: So many forget records that none of the weights could reach the threshold.
    """
    import torch

    from ruler.unlearning.classifier.records import gather_pair

    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    n_forget, n_all = len(forget[1]), len(forget[1]) + len(retain[1])
    if settings.threshold * n_forget >= n_all:
        raise InputError(
            f"threshold must be below {n_all / n_forget:g}, the number of all records per forget record, or no weight "
            f"can be dampened; got {settings.threshold:g}."
        )
    of_forget, of_retain = (sum_gradients(student, pair, loss, power) for pair in (forget, retain))
    with torch.no_grad():
        for name, value in student.named_parameters():
            if name in of_forget:
                own = of_forget[name] / n_forget
                overall = (of_forget[name] + of_retain[name]) / n_all
                factor = (settings.strength * overall / own).clamp(max=1)
                value.mul_(torch.where(own > settings.threshold * overall, factor, torch.ones_like(factor)))


def sum_gradients(
    model: Module,
    pair: Pair,
    loss: Callable[[Tensor, Tensor], Tensor],
    power: int,
) -> dict[str, Tensor]:
    """Per parameter the sum over records of abs(gradient)^power, each record by itself, in eval mode."""
    import torch
    from torch.func import functional_call, grad, vmap
    from torch.nn.attention import SDPBackend, sdpa_kernel

    named = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}

    def measure(values: dict[str, Tensor], inputs: Tensor, label: Tensor) -> Tensor:
        output = functional_call(model, values, (inputs[None],))
        return loss(getattr(output, "logits", output), label[None])

    sums = {name: torch.zeros_like(value) for name, value in named.items()}
    most = _GRADIENTS_AT_ONCE.get(pair[0].device.type, _GRADIENTS_AT_ONCE["cpu"])
    n_at_once = max(1, most // max(1, sum(value.numel() for value in named.values())))
    by_record = vmap(grad(measure), in_dims=(None, 0, 0))
    with kept_modes(model), sdpa_kernel(SDPBackend.MATH):  # fused attention takes one record at a time only
        model.eval()
        for inputs, labels in zip(*(torch.split(part, n_at_once) for part in pair), strict=True):
            for name, value in by_record(named, inputs, labels).items():
                sums[name] += value.detach().abs().pow(power).sum(0)
    return sums


SSD = Method(
    title="SSD",
    colour="#4C72B0",
    settings=SsdSettings,
    reads=("retain", "forget"),
    edit=edit,
    kind="classifier",
    formula="where F_f > alpha F: weight times min(lambda F / F_f, 1), F mean squared gradients of CE",
    source="Foster et al. 2024; SUPREME",
    grid={"threshold": (3.5, 10.0, 50.0), "strength": (0.1, 1.0)},
)
