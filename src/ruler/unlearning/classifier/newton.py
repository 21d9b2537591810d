"""Newton removal (Guo et al., 2020): one Newton step of the last layer, the only one whose loss is convex."""

from dataclasses import dataclass
from typing import Any

from ruler.core.errors import InputError
from ruler.unlearning.method import Method, Module, Records, Tensor, UnlearningSettings, count, positive


@dataclass(frozen=True)
class NewtonSettings(UnlearningSettings):
    """One step without training: epochs, rate, batch and seed are not used. The layers before keep their weights.

    Args:
        strength: The step's factor; ours, 1 is a whole step.
        damping: Added to the diagonal of the mean Hessian, as the penalty on weights does that its authors train with.
        n_steps: Of conjugate gradients, at most.
    """

    strength: float = positive(1.0)
    damping: float = positive(1e-3)
    n_steps: int = count(200)


def edit(student: Module, records: Records, settings: NewtonSettings) -> None:
    """Head + a (H + damping)^-1 (n_f / n_r) g_f: H mean Hessian on retain, g_f mean gradient on forget, of CE."""
    import torch
    from torch.nn.functional import one_hot

    from ruler.unlearning.classifier.curvature import solve
    from ruler.unlearning.classifier.records import gather_pair

    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    with torch.no_grad():
        head, features, chances = _read(student, forget[0])
        errors = chances - one_hot(forget[1], chances.shape[1])
        pull = (errors.T @ features) / len(retain[1])  # (n_classes, p + 1)
        _, features, chances = _read(student, retain[0])

        def multiply(x: Tensor) -> Tensor:
            moved = features @ x.reshape(pull.shape).T
            moved = chances * (moved - (chances * moved).sum(1, keepdim=True))
            return ((moved.T @ features) / len(features)).flatten() + settings.damping * x

        step = settings.strength * solve(multiply, pull.flatten(), settings.n_steps).reshape(pull.shape)
        head.weight.add_(step[:, : head.in_features].to(head.weight))
        if head.bias is not None:
            head.bias.add_(step[:, -1].to(head.bias))


def _read(model: Module, inputs: Tensor) -> tuple[Any, Tensor, Tensor]:
    """The head, what enters it, with a column of ones for its bias, and the classes' probabilities, in float64."""
    import torch

    from ruler.unlearning.classifier.records import read_head

    head, features, logits = read_head(model, inputs)
    if head is None or features is None:
        raise InputError("model must end with a linear layer; got one without linear layers. Use woodfisher.")
    if not torch.allclose(head(features), logits, rtol=1e-3, atol=1e-3):
        raise InputError("model must end with its last linear layer; got other logits than that gives. Use woodfisher.")
    ones = [] if head.bias is None else [torch.ones_like(features[:, :1])]
    return head, torch.cat([features, *ones], dim=1).double(), logits.double().softmax(1)


NEWTON = Method(
    title="Newton",
    colour="#01665E",
    settings=NewtonSettings,
    reads=("retain", "forget"),
    edit=edit,
    kind="classifier",
    formula="head + a (H + damping)^-1 (n_f / n_r) g_f, H mean Hessian on retain, g_f mean gradient on forget, of CE",
    source="Guo et al. 2020",
    grid={"damping": (1e-4, 1e-3, 1e-2), "strength": (0.5, 1.0)},
)
