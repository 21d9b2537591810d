"""The door to embedding: a model and data in, one vector a record out."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.types import Embeddings

if TYPE_CHECKING:
    import torch

    from ruler.embeddings.batches import Batch
    from ruler.embeddings.forward import Reading


def embed(
    model: "torch.nn.Module",
    data: Any,
    *,
    layer: str | None = None,
    batch_size: int = 256,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> Embeddings:
    """What does the model hold about each record, just before its task head?

    The answer is the paper's penultimate activation h(x), where f = g(h(x)) and g is the task head (section
    3.2). Without ``layer`` it is found by running the first batch:

    - Hugging Face models with a vocabulary head (masked or causal language models), or without any head: the
      last hidden state, at the first token ([CLS]) for encoders and at the last token that is no padding for
      causal models.
    - Else the head is the child named ``fc``, ``classifier``, ``head``, ``score``, ``classification_head``,
      ``qa_outputs``, ``lm_head`` or ``cls`` (of several, the one that runs last). The vector is the input of
      the last Linear in that head: so BERT (pooler, classifier), RoBERTa (dense, out_proj) and DistilBERT
      (pre_classifier, classifier) are all read after their dense layer and its activation. A token-wise
      ``cls`` or ``lm_head`` is read at its own input.
    - Else the input of the last Linear that runs, provided that it makes the model's output.

    What is read becomes one vector a record: (n, p) as it is; of a sequence (n, tokens, p) the first token,
    or the last that is no padding for causal models, ``lm_head``, ``score`` and recurrent layers; feature
    maps (n, c, h, w) are averaged over all positions.

    The model runs in eval mode without gradients, and on a GPU in full precision: torch's default would round the
    inputs of convolutions to ten bits. A caller's ``torch.autocast`` stays in force. Every submodule's own mode,
    the device, the hooks, torch's settings and the random streams are afterwards as they were, also when an error
    stops the run.

    Args:
        model: Any ``torch.nn.Module``, Hugging Face models included.
        data: A tensor or array (n, ...); a dict of them, keyed by the parameters of ``forward``; a tuple of
            them; a Dataset or list whose items are tensors, tuples or dicts; a Hugging Face encoding; or a
            DataLoader that goes through its data in order. A tuple may end with a label: it is not fed, nor
            are the dict keys ``labels`` and ``label``, nor keys that ``forward`` does not know. Token lists
            of unequal length are padded. Record ids come from a dict key ``id``, else the attribute ``ids``
            of the Dataset, else they are row numbers (for a ``Subset`` those of the whole Dataset).
        layer: Dotted name of the module whose output is read, e.g. ``"net.4"``; with ``":input"`` behind it,
            its input. The ``layer`` of a returned ``Embeddings`` can be given here again.
        batch_size: Records a forward pass; a DataLoader keeps its own.
        device: Where to run, e.g. ``"cuda"``; by default where the model is.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        Embeddings with float32 values (n, p), or float64 for a float64 model.

    Raises:
        InputError: Data that cannot be fed or whose rows would not line up; NaN or inf in the answer.
        LayerNotFoundError: No such layer, no task head found, or one that runs several times a pass.
        UnstableModelError: The first batch, embedded twice, gave two answers.
        MissingPackageError: torch is not installed.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        >>> rows = embed(model, torch.ones(5, 4))
        >>> rows.shape, rows.layer
        ((5, 3), '2:input')
    """
    load_optional("torch", "embedding a model")
    from ruler.embeddings import forward
    from ruler.embeddings.batches import check_repeatable, open_source

    check_number(batch_size, "batch_size", minimum=1, is_whole=True)
    module = forward.bare_module(model)
    with forward.undisturbed(module, device) as run_device:
        reading = forward.plan_reading(module, layer)
        source = open_source(data, reading.inlet, batch_size)
        stream = source.read()
        first = next(stream, None)
        if first is None:
            raise InputError("data must hold at least one record; got 0. Give the records to embed.")
        check_repeatable(source, first)
        reading = reading.settle(first.placed(run_device, reading.input_dtype))
        forward.check_stable(reading, first.placed(run_device, reading.input_dtype))
        ids: list[npt.NDArray[Any] | None] = []
        is_shown = progress and source.n_batches is not None
        batches = track(chain([first], stream), "embedding", n_items=source.n_batches or 0, is_shown=is_shown)
        values = _stack(_read_blocks(reading, batches, run_device, ids), source.n_records)
    _check_finite(values)
    return Embeddings(values, ids=_join_ids(ids, source.ids, len(values)), layer=reading.label)


def _read_blocks(
    reading: "Reading", stream: "Iterable[Batch]", device: "torch.device", ids: list[npt.NDArray[Any] | None]
) -> Iterator[npt.NDArray[Any]]:
    for batch in stream:
        ids.append(batch.ids)
        yield reading.read_rows(batch.placed(device, reading.input_dtype))


def _stack(blocks: Iterator[npt.NDArray[Any]], n_records: int | None) -> npt.NDArray[Any]:
    if n_records is None:
        return np.concatenate(list(blocks))
    first = next(blocks)
    values = np.empty((n_records, first.shape[1]), first.dtype)  # filled in place: one copy in memory
    filled = 0
    for block in chain([first], blocks):
        if filled + len(block) <= n_records:
            values[filled : filled + len(block)] = block
        filled += len(block)
    if filled != n_records:
        raise InputError(
            f"data must give every record once; its length is {n_records}, it gave {filled}. "
            "Mend the Dataset or pass a plain DataLoader over it."
        )
    return values


def _join_ids(
    of_batches: list[npt.NDArray[Any] | None], of_source: npt.NDArray[Any] | None, n_records: int
) -> npt.NDArray[Any]:
    known = [ids for ids in of_batches if ids is not None]
    if len(known) == len(of_batches):
        return np.concatenate(known)
    return np.arange(n_records) if of_source is None else of_source


def _check_finite(values: npt.NDArray[Any]) -> None:
    n_bad = sum(int((~np.isfinite(block).all(axis=1)).sum()) for block in np.array_split(values, 64))
    if n_bad:
        raise InputError(
            f"embeddings must be finite; got NaN or inf in {n_bad} of {len(values)} rows. "
            "Check these records' inputs or mend the model."
        )
