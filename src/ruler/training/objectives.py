"""What a model says about a batch, and how far that is from the labels."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ruler.training.batches import Batch
from ruler.training.sentences import ASKED, NOT_ASKED


def compute_logits(model: nn.Module, inputs: Any) -> torch.Tensor:
    """Class scores of a batch: a mapping of inputs is spread, and an output with ``.logits`` is opened.

    Where the inputs say which tokens are ``"asked"`` for, (n, a) places, the scores are (n, a, n_tokens) of these
    alone. Scores that a model gives in bfloat16 become float32: losses are never computed in low precision.
    """
    if isinstance(inputs, dict) and ASKED in inputs:
        logits = _score_asked(model, {name: value for name, value in inputs.items() if name != ASKED}, inputs[ASKED])
    else:
        logits = _open_output(model(**inputs) if isinstance(inputs, dict) else model(inputs))
    return logits.float() if logits.dtype is torch.bfloat16 else logits


def _open_output(output: Any) -> torch.Tensor:
    logits: torch.Tensor = getattr(output, "logits", output)
    return logits


def _score_asked(model: nn.Module, inputs: dict[str, Any], places: torch.Tensor) -> torch.Tensor:
    """The head of a transformers model, which is most of its work, sees the asked tokens only."""
    picked: list[bool] = []

    def keep_asked(module: nn.Module, given: Any, output: Any) -> Any:
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            return output
        picked.append(True)
        return type(output)(last_hidden_state=_pick_tokens(hidden, places))

    trunk = getattr(model, "base_model", model)
    handle = trunk.register_forward_hook(keep_asked)
    try:
        logits = _open_output(model(**inputs))
    finally:
        handle.remove()
    return logits if picked else _pick_tokens(logits, places)


def _pick_tokens(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(n, t, p) values of all tokens -> (n, a, p) of those at (n, a) places."""
    return values.gather(1, places[:, :, None].expand(-1, -1, values.shape[2]))


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
