"""How what a layer carries becomes one vector per record."""

from typing import Literal

import torch
from torch import Tensor

from ruler.core.errors import InputError
from ruler.embeddings.heads import ReadPoint

Pooling = Literal["completion", "last", "span"]
"""What of a sequence becomes one vector: a mean over places that predict a counted token, the last token, or a mean
over places that predict a token of the marked span."""

WORDS: dict[Pooling, str] = {
    "completion": "mean over the positions that predict a completion token",
    "span": "mean over the positions that predict a token of the marked span",
}
"""What the report says of each."""


def average_places(tensor: Tensor, point: ReadPoint, chosen: Tensor) -> Tensor:
    """The mean over the chosen places of each record, in at least single precision."""
    if chosen.shape != tensor.shape[:2]:
        raise InputError(
            f"labels must cover the {tuple(tensor.shape[:2])} tokens that reach layer {point.label!r}; got shape "
            f"{tuple(chosen.shape)}. Name another layer."
        )
    weights = chosen.to(tensor.device, torch.promote_types(tensor.dtype, torch.float32))
    # not a product with the weights: what padding holds may be NaN
    kept = tensor.to(weights.dtype).masked_fill(weights[:, :, None] == 0, 0)
    return kept.sum(dim=1) / weights.sum(dim=1, keepdim=True)


def pool_tokens(tensor: Tensor, point: ReadPoint, is_padded: Tensor | None) -> tuple[Tensor, str]:
    """One vector per record, and how it came about."""
    if tensor.ndim > 3:
        return tensor.mean(dim=tuple(range(2, tensor.ndim))), "mean over all positions"
    if tensor.ndim < 3:
        return tensor, "one vector per record as it is"
    if not point.takes_last_token:
        return tensor[:, 0], "first token"
    if is_padded is None or tensor.shape[1] == 1:
        return tensor[:, -1], "last token"
    if is_padded.shape != tensor.shape[:2]:
        raise InputError(
            f"attention_mask must cover the {tuple(tensor.shape[:2])} tokens that reach layer {point.label!r}; "
            f"got shape {tuple(is_padded.shape)}. Name another layer."
        )
    positions = torch.arange(tensor.shape[1], device=tensor.device)
    last = (positions * ~is_padded.to(tensor.device)).argmax(dim=1)  # (n,)
    return tensor[torch.arange(len(tensor), device=tensor.device), last], "last token that is no padding"
