"""What a model says about a batch, how far that is from the labels, and one step of the optimiser."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from inspect import signature, unwrap
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ruler.training.batches import Batch, device_of
from ruler.training.sentences import ASKED, NOT_ASKED
from ruler.training.settings import OPTIMIZERS, TrainingSettings

Objective = Callable[..., torch.Tensor]
"""(model, one batch of each source) -> the loss to minimise."""


def compute_logits(model: nn.Module, inputs: Any) -> torch.Tensor:
    """Class scores of a batch: a mapping of inputs is spread, and an output with ``.logits`` is opened.

    Where the inputs say which tokens are ``"asked"`` for, (n, a) places, the scores are (n, a, n_tokens) of these
    alone. Scores that a model gives in bfloat16 become float32: losses are never computed in low precision.
    """
    if not isinstance(inputs, dict):
        output = model(inputs)
    elif ASKED not in inputs:
        output = model(**inputs)
    else:
        output = _score_asked(model, **inputs)
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits.float() if logits.dtype is torch.bfloat16 else logits


def _score_asked(model: nn.Module, asked: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Let the head of a transformers model, which is most of its work, see the asked tokens only."""

    def pick(values: torch.Tensor) -> torch.Tensor:
        return values.gather(1, asked[:, :, None].expand(-1, -1, values.shape[2]))

    is_picked = False

    def keep_asked(module: nn.Module, given: Any, output: Any) -> Any:
        nonlocal is_picked
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            return output
        is_picked = True
        return type(output)(last_hidden_state=pick(hidden))

    config = getattr(model, "config", None)
    if getattr(config, "use_cache", False) and "use_cache" in signature(model.forward).parameters:
        inputs["use_cache"] = False  # past keys serve generation alone
    with getattr(model, "base_model", model).register_forward_hook(keep_asked):
        output = model(**inputs)
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits if is_picked else pick(logits)


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of one (inputs, labels) batch: the objective of plain training."""
    inputs, labels = batch
    return compute_label_loss(compute_logits(model, inputs), labels)


def compute_label_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over records (n, n_classes), or over the tokens asked for of (n, t, n_tokens).

    Args:
        labels: (n,) classes; or (n, t) tokens, -100 where nothing is asked. A batch that asks nothing has loss 0.

    Example:
        >>> asked = torch.tensor([[-100, 1]])
        >>> round(compute_label_loss(torch.zeros(1, 2, 4), asked).item(), 4)  # log 4
        1.3863
    """
    if not is_by_token(logits, labels):
        return functional.cross_entropy(logits, labels)
    total = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOT_ASKED, reduction="sum")
    return total / (labels != NOT_ASKED).sum().clamp(min=1)


def is_by_token(logits: torch.Tensor, labels: torch.Tensor) -> bool:
    """Whether there is a label for each token rather than for each record."""
    return logits.ndim == 3 and labels.shape == logits.shape[:2]


def use_precision(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """A context in which a model's products are computed in this precision.

    Casts of weights are not kept between uses: a captured step must not read one that was made outside it.
    """
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision), cache_enabled=False)


def make_optimizer(
    parameters: list[nn.Parameter], settings: TrainingSettings, *, is_capturable: bool = False
) -> torch.optim.Optimizer:
    """The optimiser that the settings name.

    Args:
        is_capturable: For parameters on CUDA: the rate and all state lie there too, so that a step can be captured
            into a graph and the rate still be changed.
    """
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if is_capturable:
        options |= {"lr": torch.tensor(settings.learning_rate, device=parameters[0].device), "fused": True}
    if settings.optimizer == "sgd":
        options["momentum"] = settings.momentum
    else:
        options["capturable"] = is_capturable
    optimizer = uncompiled(getattr(torch.optim, OPTIMIZERS[settings.optimizer]))(parameters, **options)
    if is_capturable:
        # Warming up before a capture is what torch would warn of: a capturable optimiser that runs without one.
        optimizer._warned_capturable_if_run_uncaptured = True
    return optimizer


@cache
def uncompiled(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimiser, to the bit, without the hooks for ``torch.compile``, whose first call loads for a second."""
    methods = {name: unwrap(getattr(kind, name)) for name in ("add_param_group", "step", "zero_grad")}
    return type(kind.__name__, (kind,), methods | {"step": torch.no_grad()(methods["step"])})


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter this learning rate; in place where it is a tensor, which a captured step reads."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Step:
    """One step, operation by operation: batches -> the loss before it, detached.

    Args:
        model: In train mode.
        objective: Of the model and one batch per source.
        optimizer: Of the model's parameters.
        precision: Of the model's products.
        after: Called with the model after every move of the optimiser, such as to restore weights that must not move.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        precision: str = "float32",
        after: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.device = device_of(model)
        self._objective, self._precision, self._after = objective, precision, after

    def compute_loss(self, batches: tuple[Batch, ...]) -> torch.Tensor:
        """The loss, with old gradients gone."""
        self.optimizer.zero_grad()
        with use_precision(self._precision, self.device):
            return self._objective(self.model, *batches)

    def descend(self, loss: torch.Tensor) -> None:
        """Its gradient, and the optimiser's move along it."""
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self._after is not None:
            with torch.no_grad():
                self._after(self.model)

    def __call__(self, batches: tuple[Batch, ...]) -> torch.Tensor:
        """Both together; the host need not wait for either."""
        loss = self.compute_loss(batches)
        self.descend(loss)
        return loss.detach()
