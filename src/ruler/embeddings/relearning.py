"""One epoch of training on some records: what a model knew of others like them comes back."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.types import IndexArray, ModelInput

if TYPE_CHECKING:
    import torch

    from ruler.embeddings.batches import Batch
    from ruler.embeddings.inputs import ForwardSignature

PRETRAINED_RATE, PLAIN_RATE = 2e-5, 1e-3
"""Learning rates of AdamW: of Hugging Face models, and of all others."""

LARGEST_BATCH, LEAST_STEPS = 16, 32


def relearn_records(
    model: "torch.nn.Module",
    data: Sequence[tuple[ModelInput, Sequence[int] | IndexArray]],
    *,
    kind: str,
    learning_rate: float | None = None,
    seed: int = 0,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> "torch.nn.Module":
    """What does a model become after one epoch on these records?

    The records of all data sets are drawn in one random order, which depends on the seed and their number only. AdamW
    without weight decay, single precision, no dropout, statistics of normalisation as they are. Batches hold 16
    records, or fewer if that would give less than 32 steps.

    Args:
        model: Left as it is.
        data: Data sets with labels, as `embed` takes them, and which of their records to train on, in this order.
        kind: Of the loss, one of `ruler.embeddings.losses`.
        learning_rate: None takes 2e-5 for Hugging Face models and 1e-3 for others.
        seed: Of the order.
        device: Where to train; by default where the model is.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        A copy in eval mode, where the model was.

    Raises:
        InputError: Weights that cannot be trained, or records without labels.

    Example:
        >>> import torch
        >>> model, rows = torch.nn.Linear(2, 2), torch.eye(2)
        >>> found = relearn_records(model, [((rows, torch.arange(2)), [0, 1])], kind="cross-entropy")
        >>> measure = torch.nn.functional.cross_entropy
        >>> bool(measure(found(rows), torch.arange(2)) < measure(model(rows), torch.arange(2)))
        True
    """
    torch = load_optional("torch", "relearning")
    from ruler.core.determinism import fixed_algorithms, full_precision
    from ruler.embeddings import heads
    from ruler.embeddings.batches import Batch
    from ruler.embeddings.inputs import collate, collate_labels, read_signature
    from ruler.embeddings.running import bare_module

    trained: Any = bare_module(model)
    is_hugging = heads.is_huggingface(trained)
    if getattr(trained, "hf_quantizer", None) is not None or not any(True for _ in trained.parameters()):
        raise InputError(
            f"relearning must be tried on a model with whole weights; got {type(trained).__name__}. Leave it out."
        )
    home = next(trained.parameters()).device
    place = home if device is None else torch.device(device)
    trained = copy.deepcopy(trained).float().to(place)
    for module in trained.modules():
        module.training = False
    signature = read_signature(trained, only_named=is_hugging, padding=heads.padding_of(trained) if is_hugging else {})
    records = [record for one, rows in data for record in _list_records(one, rows, signature)]
    order = torch.randperm(len(records), generator=torch.Generator().manual_seed(seed)).tolist()
    size = choose_batch(len(order))
    starts = range(0, len(order), size)
    with torch.enable_grad(), full_precision(torch), fixed_algorithms(torch):
        trained.requires_grad_(True)
        rate = learning_rate or choose_rate(trained)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=rate, weight_decay=0.0)
        for start in track(starts, "relearning", n_items=len(starts), is_shown=progress):
            chosen = [records[row] for row in order[start : start + size]]
            labels = collate_labels([label for _, label in chosen])
            if not isinstance(labels, torch.Tensor):
                raise InputError("relearning must have labels of one shape; got several. Give all records alike.")
            batch = Batch(collate([columns for columns, _ in chosen], signature), labels)
            loss = _measure(trained, batch.placed(place, torch.float32), kind)
            if not bool(torch.isfinite(loss)):
                raise InputError(
                    "relearning must have a finite loss at every step; got NaN or infinity. Look at the model, or "
                    "leave relearning out."
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    found: Any = trained.to(home)
    return found  # type: ignore[no-any-return]


def choose_rate(model: "torch.nn.Module") -> float:
    """Learning rate of AdamW: 2e-5 for Hugging Face models, 1e-3 for others.

    Example:
        >>> import torch
        >>> choose_rate(torch.nn.Linear(2, 2))
        0.001
    """
    from ruler.embeddings import heads
    from ruler.embeddings.running import bare_module

    return PRETRAINED_RATE if heads.is_huggingface(bare_module(model)) else PLAIN_RATE


def choose_batch(n_records: int) -> int:
    """Records per step: 16, or fewer if that would give less than 32 steps.

    Example:
        >>> choose_batch(1000), choose_batch(100), choose_batch(5)
        (16, 3, 1)
    """
    return min(LARGEST_BATCH, max(1, n_records // LEAST_STEPS))


def _measure(model: Any, batch: "Batch", kind: str) -> "torch.Tensor":
    """The mean loss of a batch, as a language model of transformers measures it itself, else of the kind asked for."""
    import torch
    from torch.nn import functional

    from ruler.embeddings import heads, losses

    labels: Any = batch.labels
    labels = labels.to(next(iter(batch.columns.values())).device)
    if kind == losses.TOKENS and heads.is_huggingface(model):
        own: torch.Tensor | None = model(**batch.named, labels=labels).loss
        if own is None:
            raise InputError(
                f"relearning must have a loss of the model's own; {type(model).__name__} gives none. Leave it out."
            )
        return own
    output = model(*batch.positional, **batch.named)
    logits: Any = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    last = losses.find_last_layer(model)
    if isinstance(last, torch.nn.Softmax):
        logits = logits.clamp_min(torch.finfo(logits.dtype).tiny).log()
    elif isinstance(last, torch.nn.Sigmoid) and kind != losses.SQUARED_ERROR:
        logits = torch.logit(logits, eps=torch.finfo(logits.dtype).eps)
    if kind == losses.CROSS_ENTROPY:
        return functional.cross_entropy(logits, labels.flatten().long())
    if kind == losses.TOKENS:
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    measure = functional.mse_loss if kind == losses.SQUARED_ERROR else functional.binary_cross_entropy_with_logits
    return measure(logits.reshape(labels.shape), labels.to(logits.dtype))


def _list_records(
    data: ModelInput, rows: Sequence[int] | IndexArray, signature: "ForwardSignature"
) -> "list[tuple[dict[int | str, torch.Tensor], torch.Tensor]]":
    """Columns and label of some records of a data set, without padding, in the order asked for."""
    wanted = set(map(int, rows))
    found = dict(_read_each(data, signature, wanted))
    return [found[int(row)] for row in rows]


def _read_each(data: ModelInput, signature: "ForwardSignature", wanted: set[int]) -> "Iterator[tuple[int, Any]]":
    from ruler.embeddings.sources import open_source

    n_read = 0
    for batch in open_source(data, signature, 1, by_length=True).read():
        places = range(n_read, n_read + batch.n_rows) if batch.rows is None else batch.rows.tolist()
        n_read += batch.n_rows
        for place, row in enumerate(places):
            if row not in wanted:
                continue
            if batch.labels is None or not hasattr(batch.labels, "to"):
                raise InputError(
                    "relearning must have labels of all forget and held-out records, as numbers; got none. Give them."
                )
            yield row, ({key: value[place] for key, value in batch.columns.items()}, batch.labels[place])
