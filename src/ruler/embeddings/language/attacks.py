"""Models after an attack that may bring back what they forgot: weights of four bits."""

import copy
from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.core.optional import load_optional

if TYPE_CHECKING:
    import torch
    from torch import nn


BLOCK = 64
"""Weights that share a scale, as in the public implementations."""

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The 16 values of 4-bit NormalFloat (Dettmers et al., 2023), as published."""


def quantize_model(model: "nn.Module") -> "nn.Module":
    """What does a model become when its weights are stored as 4-bit NormalFloat (NF4)?

    The weights of all linear layers but the vocabulary head are rounded, in blocks that follow each other in memory:
    w -> s q(w / s) with s = max abs(w) of the block and q the nearest of 16 values. They stay in their own type.

    Args:
        model: Left as it is. Linear layers of torch, and those of GPT-2 in transformers, which are transposed.

    Returns:
        A copy.

    Raises:
        InputError: A model without linear layers.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False))
        >>> _ = model[0].weight.data.copy_(torch.tensor([[2.0, 0.1, -0.2, 1.0], [0.0, -2.0, 0.3, 0.9]]))
        >>> [round(weight, 3) for weight in quantize_model(model)[0].weight[0].tolist()]
        [2.0, 0.159, -0.182, 0.881]
    """
    torch = load_optional("torch", "quantising a model")
    rounded: Any = copy.deepcopy(model)
    head = rounded.get_output_embeddings() if hasattr(rounded, "get_output_embeddings") else None
    layers = [
        layer
        for layer in rounded.modules()
        if (isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D") and layer is not head
    ]
    if not layers:
        raise InputError(f"model must have linear layers; got {type(model).__name__}, which has none.")
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(round_to_nf4(layer.weight))
    quantized: nn.Module = rounded
    return quantized


def round_to_nf4(weights: "torch.Tensor", block: int = BLOCK) -> "torch.Tensor":
    """Weights of any shape as NF4 stores and gives them back, in their own type."""
    import torch

    flat = weights.detach().float().flatten()
    padded = torch.nn.functional.pad(flat, (0, -len(flat) % block)).view(-1, block)
    scale = padded.abs().amax(dim=1, keepdim=True)
    values = torch.tensor(NF4, device=weights.device)
    middles = (values[1:] + values[:-1]) / 2
    nearest = torch.bucketize(padded / scale.clamp(min=torch.finfo(torch.float32).tiny), middles)
    return (values[nearest] * scale).flatten()[: len(flat)].view(weights.shape).to(weights.dtype)
