"""Teachers, and the loss of a student that agrees with one on the retain records: for SCRUB and Bad Teacher."""

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from ruler.core.determinism import seeded
from ruler.training.batches import Batch
from ruler.training.sentences import NOT_ASKED
from ruler.training.steps import Objective, compute_label_loss, compute_logits, is_by_token

if TYPE_CHECKING:
    from ruler.unlearning.scrub import ScrubSettings


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
        done: set[nn.Module] = set()
        for module in teacher.modules():
            is_pretrained = any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)
            if is_pretrained and module not in done:
                rule: Any = module._init_weights
                done.update(module.apply(rule).modules())
    return teacher


def compute_divergence(
    student: torch.Tensor, teacher: torch.Tensor, temperature: float, labels: torch.Tensor | None = None
) -> torch.Tensor:
    """KL(teacher || student) of softened logits, without the usual factor T^2: mean over records or asked tokens.

    Args:
        student: (n, n_classes), or (n, t, n_tokens).
        teacher: Likewise.
        temperature: Divides both models' logits.
        labels: Which tokens are asked for: those whose label (n, t) is not -100. Not needed for records.

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


def make_distillation(teacher: nn.Module, settings: "ScrubSettings", *, forget_sign: int) -> Objective:
    """alpha [CE(retain) + KL(retain)] + sign (1 - alpha) KL(forget)."""
    share, temperature = settings.retain_weight, settings.temperature
    answers: dict[str, tuple[Any, torch.Tensor]] = {}

    def ask(source: str, inputs: Any) -> torch.Tensor:
        """The teacher's logits. A full batch is the same object in every epoch, so its logits are computed once.

        A captured step refills the tensors of a mini batch, so those are always computed anew.
        """
        if settings.batch_size is None and source in answers and answers[source][0] is inputs:
            return answers[source][1]
        with torch.no_grad():
            logits = compute_logits(teacher, inputs)
        if settings.batch_size is None:
            answers[source] = inputs, logits
        return logits

    def diverge(student_logits: torch.Tensor, source: str, batch: Batch) -> torch.Tensor:
        return compute_divergence(student_logits, ask(source, batch[0]), temperature, labels=batch[1])

    def objective(student: nn.Module, retain: Batch, forget: Batch) -> torch.Tensor:
        retain_logits = compute_logits(student, retain[0])
        kept = compute_label_loss(retain_logits, retain[1]) + diverge(retain_logits, "retain", retain)
        forgotten = diverge(compute_logits(student, forget[0]), "forget", forget)
        return share * kept + forget_sign * (1 - share) * forgotten

    return objective
