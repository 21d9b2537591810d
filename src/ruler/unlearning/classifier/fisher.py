"""Fisher forgetting (Golatkar et al., 2020): noise on the weights, the more the less they matter to retain records."""

from dataclasses import dataclass

from ruler.unlearning.method import Method, Module, Records, UnlearningSettings, positive


@dataclass(frozen=True)
class FisherSettings(UnlearningSettings):
    """Noise without training: epochs, rate and batch size are not used; the seed decides the noise.

    Args:
        strength: The numerator a of the noise's variance.
        largest: Its standard deviation at most; ours, since weights that never matter would get any noise.
    """

    strength: float = positive(1e-9)
    largest: float = positive(0.01)


def edit(student: Module, records: Records, settings: FisherSettings) -> None:
    """Weight + N(0, a / F), F the mean squared gradient of a retain record's CE, the deviation bounded."""
    import torch
    from torch.nn.functional import cross_entropy

    from ruler.unlearning.classifier.records import gather_pair
    from ruler.unlearning.classifier.ssd import sum_gradients

    retain = gather_pair(records["retain"], student)
    sums = sum_gradients(student, retain, cross_entropy, 2)
    with torch.no_grad():
        for name, value in student.named_parameters():
            if name in sums:
                deviation = (settings.strength * len(retain[1]) / sums[name]).sqrt().clamp(max=settings.largest)
                value.add_(deviation * torch.randn(value.shape).to(value))


FISHER = Method(
    title="Fisher",
    colour="#8C8C8C",
    settings=FisherSettings,
    reads=("retain",),
    edit=edit,
    kind="classifier",
    formula="weight + N(0, a / F), F mean squared gradients of CE on retain",
    source="Golatkar et al. 2020; Unlearn-Sparse",
    grid={"strength": (1e-10, 1e-9, 1e-8, 1e-7)},
)
