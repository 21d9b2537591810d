"""Language models after an attack that may bring back what they forgot: 4-bit weights, or a little more training."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track

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

LEARNING_RATE = 2e-5
BATCH = 16


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


def relearn_records(
    model: "torch.nn.Module",
    data: Sequence[Any],
    *,
    learning_rate: float = LEARNING_RATE,
    batch_size: int = BATCH,
    seed: int = 0,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> "torch.nn.Module":
    """What does a Hugging Face model become after one epoch on these records?

    The records of all data sets are drawn in one random order, which depends on the seed and their number alone: no
    record is treated differently because of the set that it comes from. AdamW without weight decay, the model's own
    loss, single precision, no dropout.

    This loop is not the one of ``training``, which serves studies: an audit stays free of that, and needs no more.

    Args:
        model: Left as it is.
        data: Data sets with labels, as `embed` takes them.
        learning_rate: Of AdamW.
        batch_size: Records per step.
        seed: Of the order.
        device: Where to train; by default where the model is.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        A copy in eval mode, where the model was.

    Raises:
        InputError: No Hugging Face model, weights that cannot be trained, or records without labels.
    """
    torch = load_optional("torch", "relearning")
    from ruler.core.determinism import fixed_algorithms, full_precision
    from ruler.embeddings import heads
    from ruler.embeddings.inputs import collate, collate_labels, read_signature
    from ruler.embeddings.running import bare_module

    check_number(batch_size, "batch_size", minimum=1, is_whole=True)
    trained: Any = bare_module(model)
    if not heads.is_huggingface(trained) or getattr(trained, "hf_quantizer", None) is not None:
        raise InputError(
            f"relearning must be tried on a Hugging Face model with whole weights; got {type(trained).__name__}. Leave "
            "this attack out."
        )
    home = next(trained.parameters()).device
    trained = copy.deepcopy(trained).float().eval().to(home if device is None else device)
    signature = read_signature(trained, only_named=True, padding=heads.padding_of(trained))
    records = [record for one in data for record in _list_records(one, signature)]
    order = torch.randperm(len(records), generator=torch.Generator().manual_seed(seed)).tolist()
    starts = range(0, len(order), batch_size)
    with torch.enable_grad(), full_precision(torch), fixed_algorithms(torch):
        trained.requires_grad_(True)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=learning_rate, weight_decay=0.0)
        for start in track(starts, "relearning", n_items=len(starts), is_shown=progress):
            chosen = [records[row] for row in order[start : start + batch_size]]
            inputs = collate([{key: one[key] for key in one if key != "labels"} for one in chosen], signature)
            labels: Any = collate_labels([one["labels"] for one in chosen])
            placed = {str(key): value.to(trained.device) for key, value in inputs.items()}
            loss = trained(**placed, labels=labels.to(trained.device)).loss
            if loss is None or not bool(torch.isfinite(loss)):
                raise InputError("relearning must have a finite loss of the model's own; got none. Leave it out.")
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    found: Any = trained.to(home)
    return found  # type: ignore[no-any-return]


def _list_records(data: Any, signature: Any) -> list[dict[str, Any]]:
    """The records of a data set as dicts of tensors without padding, in its order."""
    from ruler.embeddings.sources import open_source

    batches = list(open_source(data, signature, 1, by_length=True).read())
    if batches and batches[0].rows is not None:
        batches.sort(key=lambda batch: int(batch.rows[0]) if batch.rows is not None else 0)
    if any(batch.labels is None or not hasattr(batch.labels, "to") for batch in batches):
        raise InputError("relearning must have labels of all forget and held-out records; got none. Give them.")
    records = []
    for batch in batches:
        labels: Any = batch.labels
        records.append({**{str(key): value[0] for key, value in batch.columns.items()}, "labels": labels[0]})
    return records
