"""Losses of single tokens and records, and the blocks of a model: for the methods that unlearn language models.

Nothing here waits for the device, so that every step can be captured into a CUDA graph.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.training.batches import Batch
from ruler.training.sentences import ASKED, NOT_ASKED
from ruler.training.steps import compute_logits


def compute_token_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy (n, a) of each token asked for; 0 where the label is -100.

    Example:
        >>> compute_token_losses(torch.zeros(1, 2, 4), torch.tensor([[3, -100]])).exp().round().tolist()
        [[4.0, 1.0]]
    """
    flat = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=NOT_ASKED, reduction="none")
    return flat.reshape(labels.shape)


def count_asked(labels: torch.Tensor) -> torch.Tensor:
    """How many tokens (n,) are asked for in each record; at least 1, to divide by."""
    return (labels != NOT_ASKED).sum(1).clamp(min=1)


def mean_over_asked(values: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean of values (n, a) over all tokens asked for."""
    is_asked = labels != NOT_ASKED
    return (values * is_asked).sum() / is_asked.sum().clamp(min=1)


def compute_record_losses(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Negative log-likelihood (n,) of each record's tokens, summed."""
    inputs, labels = batch[0], batch[1]
    return compute_token_losses(compute_logits(model, inputs), labels).sum(1)


def shift_true_logits(logits: torch.Tensor, labels: torch.Tensor, change: float) -> torch.Tensor:
    """Logits (n, a, n_tokens) without gradient, with ``change``, perhaps minus infinity, added at each label."""
    places = labels.clamp(min=0)[:, :, None]
    logits = logits.detach()
    return logits.scatter(-1, places, logits.gather(-1, places) + change)


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """The longest list of blocks of a model, such as the layers of a transformer.

    Raises:
        InputError: It has none.

    Example:
        >>> len(find_blocks(nn.Sequential(nn.ModuleList([nn.Linear(2, 2) for _ in range(3)]))))
        3
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    if not lists:
        raise InputError(
            f"model must keep its blocks in an nn.ModuleList; got {type(model).__name__}, which has none. Use a "
            "transformer, or another method."
        )
    return max(lists, key=len)


def read_hidden(model: nn.Module, inputs: dict[str, torch.Tensor], layer: int, first: int = 0) -> torch.Tensor:
    """Outputs (n, a, p) of block ``layer``, in float32, at the tokens asked for; the head is not computed.

    Args:
        model: A transformer whose blocks `find_blocks` finds.
        inputs: Of the model, with the places that are asked for.
        layer: Number of the block, from 0.
        first: Gradients reach the blocks from this one on, and nothing before it.
    """
    outputs: list[torch.Tensor] = []

    def keep(module: nn.Module, given: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    def cut(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if given:
            return (given[0].detach(), *given[1:]), named
        return given, {**named, "hidden_states": named["hidden_states"].detach()}

    blocks = find_blocks(model)
    with (
        blocks[layer].register_forward_hook(keep),
        blocks[first].register_forward_pre_hook(cut, with_kwargs=True),
    ):
        getattr(model, "base_model", model)(**{name: value for name, value in inputs.items() if name != ASKED})
    hidden = outputs[0].float()
    return hidden.gather(1, inputs[ASKED][:, :, None].expand(-1, -1, hidden.shape[2]))
