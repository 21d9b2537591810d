"""Newton removal (Guo et al., 2020): one Newton step of the last layer, the only one whose loss is convex."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.unlearning.method import Method, UnlearningSettings

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ruler.training.batches import Source

    Pair = tuple[torch.Tensor, torch.Tensor]

_BLOCK = 1024  # records per forward pass


@dataclass(frozen=True)
class NewtonSettings(UnlearningSettings):
    """One step without training: epochs, rate, batch and seed are not used. The layers before keep their weights.

    Args:
        strength: The step's factor; ours, 1 is a whole step.
        damping: Added to the diagonal of the mean Hessian, as the penalty on weights does that its authors train with.
        n_steps: Of conjugate gradients, at most.
    """

    strength: float = 1.0
    damping: float = 1e-3
    n_steps: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.strength, "strength", minimum=0, is_strict=True)
        check_number(self.damping, "damping", minimum=0, is_strict=True)
        check_number(self.n_steps, "n_steps", minimum=1, is_whole=True)


def edit(student: "nn.Module", records: "Mapping[str, Source]", settings: NewtonSettings) -> None:
    """Head + a (H + damping)^-1 (n_f / n_r) g_f: H mean Hessian on retain, g_f mean gradient on forget, of CE."""
    import torch
    from torch.nn.functional import one_hot

    from ruler.unlearning.classifier.curvature import solve
    from ruler.unlearning.classifier.records import gather_pair

    head = _find_head(student)
    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    with torch.no_grad():
        features, chances = _read(student, head, forget[0])
        errors = chances - one_hot(forget[1], chances.shape[1])
        pull = (errors.T @ features) / len(retain[1])  # (n_classes, p + 1)
        features, chances = _read(student, head, retain[0])

        def multiply(x: "torch.Tensor") -> "torch.Tensor":
            moved = features @ x.reshape(pull.shape).T
            moved = chances * (moved - (chances * moved).sum(1, keepdim=True))
            return ((moved.T @ features) / len(features)).flatten() + settings.damping * x

        step = settings.strength * solve(multiply, pull.flatten(), settings.n_steps).reshape(pull.shape)
        head.weight.add_(step[:, : head.in_features].to(head.weight))
        if head.bias is not None:
            head.bias.add_(step[:, -1].to(head.bias))


def _find_head(model: "nn.Module") -> "nn.Linear":
    from torch import nn

    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise InputError("model must end with a linear layer; got one without linear layers. Use woodfisher.")
    return layers[-1]


def _read(model: "nn.Module", head: "nn.Linear", inputs: "torch.Tensor") -> "Pair":
    """What enters the head, with a column of ones for its bias, and the classes' probabilities, in float64."""
    import torch

    from ruler.training.steps import compute_logits

    caught: list[torch.Tensor] = []
    was_training = [(module, module.training) for module in model.modules()]
    model.eval()
    handle = head.register_forward_pre_hook(lambda module, given: caught.append(given[0]))
    logits = torch.cat([compute_logits(model, rows) for rows in torch.split(inputs, _BLOCK)])
    handle.remove()
    for module, is_training in was_training:
        module.training = is_training
    features = torch.cat(caught)
    if not torch.allclose(head(features), logits, rtol=1e-3, atol=1e-3):
        raise InputError("model must end with its last linear layer; got other logits than that gives. Use woodfisher.")
    ones = [] if head.bias is None else [torch.ones_like(features[:, :1])]
    return torch.cat([features, *ones], dim=1).double(), logits.double().softmax(1)


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
