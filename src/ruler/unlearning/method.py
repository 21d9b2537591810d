"""What the five unlearning methods share: the shape of a method, teachers, and distillation."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.seeding import seeded
from ruler.training.objectives import is_by_token
from ruler.training.sentences import NOT_ASKED
from ruler.training.settings import TrainingSettings
from ruler.training.steps import Objective


@dataclass(frozen=True)
class UnlearningSettings(TrainingSettings):
    """How an unlearning method is run: the paper's rate, epochs and seed.

    Args:
        seed: Of dropout and of the mini-batch order.
    """

    epochs: int = 10
    learning_rate: float = 5e-4
    seed: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.seed, "seed", minimum=0, is_whole=True)
        if self.augment != "none":
            raise InputError(
                f"augment must be 'none' in unlearning; got {self.augment!r}. Methods see records as they are."
            )


@dataclass(frozen=True)
class Method:
    """One entry of the table of methods.

    Args:
        settings: The method's settings class; made without arguments it gives the paper's.
        make_objective: (original model, settings) -> the objective over one batch of each source it reads.
        reads: ``"retain"``, ``"forget"`` in the order of the forward passes; the first one makes the epoch.
    """

    settings: type[UnlearningSettings]
    make_objective: Callable[[nn.Module, Any], Objective]
    reads: tuple[str, ...]


def check_share(value: float, name: str) -> None:
    """A share lies strictly between 0 and 1."""
    check_number(value, name, minimum=0, is_strict=True)
    if value >= 1:
        raise InputError(f"{name} must be below 1; got {value!r}.")


def freeze_copy(model: nn.Module) -> nn.Module:
    """A teacher: a copy in eval mode that no gradient reaches."""
    return copy.deepcopy(model).eval().requires_grad_(False)


def make_random_teacher(model: nn.Module, seed: int) -> nn.Module:
    """The same architecture with fresh random weights, frozen, for any torch model.

    Every layer with ``reset_parameters`` draws anew, in the order of construction: for such models the
    teacher equals one built right after ``torch.manual_seed(seed)``. A parameter that no layer can reset (a
    bare ``nn.Parameter``) has its entries shuffled, which keeps its scale and loses what it learned. A
    transformers model then draws by its own rule, whose scale its layers need.

    Example:
        >>> teacher = make_random_teacher(nn.Linear(3, 2), seed=100)
        >>> _ = torch.manual_seed(100)
        >>> bool((teacher.weight == nn.Linear(3, 2).weight).all())
        True
    """
    teacher = freeze_copy(model)
    is_fresh: set[nn.Parameter] = set()
    with seeded(seed), torch.no_grad():
        for module in teacher.modules():
            reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            if callable(reset):
                reset()
                is_fresh.update(module.parameters(recurse=False))
        for parameter in teacher.parameters():
            if parameter not in is_fresh:
                order = torch.randperm(parameter.numel()).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))
        _draw_by_own_rule(teacher)
    return teacher


def _draw_by_own_rule(model: nn.Module) -> None:
    done: set[nn.Module] = set()
    for module in model.modules():
        is_pretrained = any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)
        if is_pretrained and module not in done:
            rule: Any = module._init_weights
            done.update(module.apply(rule).modules())


def compute_divergence(
    student: torch.Tensor, teacher: torch.Tensor, temperature: float, labels: torch.Tensor | None = None
) -> torch.Tensor:
    """KL(teacher || student) of softened logits, without the usual factor T^2: mean over records or asked tokens.

    Args:
        student: (n, n_classes), or (n, t, n_tokens).
        teacher: Likewise.
        temperature: Divides both models' logits.
        labels: Tells which tokens are asked for: those whose label (n, t) is not -100. Not needed for records.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> compute_divergence(logits, logits, 2.0).item()
        0.0
    """
    log_q = functional.log_softmax(student / temperature, dim=-1)
    p = functional.softmax(teacher / temperature, dim=-1)
    if labels is None or not is_by_token(student, labels):
        return functional.kl_div(log_q, p, reduction="batchmean")
    is_asked = labels != NOT_ASKED
    by_token = functional.kl_div(log_q, p, reduction="none").sum(dim=-1)
    return (by_token * is_asked).sum() / is_asked.sum().clamp(min=1)
