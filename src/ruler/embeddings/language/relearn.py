"""A language model that is trained again for a moment: does it pick up faster what it once knew?"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track

if TYPE_CHECKING:
    import torch

LEARNING_RATE = 2e-5
BATCH = 16


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
