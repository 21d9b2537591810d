"""Noisy SGD (Chien et al., 2024): fine-tune on the retain records, with Gaussian noise on the weights after each step.

For a convex loss with gradients of bounded length this comes with a certificate. For other models it has none.
"""

from dataclasses import dataclass

from ruler.unlearning.method import ClassifierSettings, Method, Module, Plan, Records, positive


@dataclass(frozen=True)
class NoisySgdSettings(ClassifierSettings):
    """Plain SGD with the weight decay of the public code; rate, epochs and noise are ours.

    Args:
        noise: Standard deviation of what is added to every weight after a step, as a share of the rate.
    """

    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 1e-6
    noise: float = positive(0.1)


def make_plan(student: Module, records: Records, settings: NoisySgdSettings) -> Plan:
    """CE(retain); after each step weight + N(0, (rate noise)^2)."""
    import torch

    from ruler.training.steps import cross_entropy

    deviation = settings.learning_rate * settings.noise

    def shake(model: Module) -> None:
        for value in model.parameters():
            if value.requires_grad:
                value.add_(deviation * torch.randn_like(value))

    return Plan(cross_entropy, after_step=shake)


NOISY_SGD = Method(
    title="Noisy SGD",
    colour="#DA8BC3",
    settings=NoisySgdSettings,
    reads=("retain",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), weights + Gaussian noise after each step",
    source="Chien et al. 2024; SGD_unlearning",
    grid={"learning_rate": (1e-3, 0.01), "noise": (0.1, 1.0)},
)
