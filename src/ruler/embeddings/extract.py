"""Embedding: a model and data in, one vector per record out, with labels and losses where known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy.typing as npt

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import show_progress
from ruler.core.types import Embeddings, FloatArray, IndexArray, ModelInput

if TYPE_CHECKING:
    import torch

    from ruler.embeddings.batches import Batch
    from ruler.embeddings.forward import LayerReader, Pass
    from ruler.embeddings.heads import Pooling
    from ruler.embeddings.sources import Source

DEFAULT_BATCH, LARGEST_BATCH = 256, 4096


@dataclass(frozen=True, eq=False)
class ModelReading:
    """All that one model says about the records of one data set.

    Args:
        layers: By layer in forward order; the last is the main one. Embeddings hold no losses yet.
        losses: By kind of loss, (n,) each; several where the labels leave open which is meant, the likeliest first.
        hits: (n,) whether the likeliest class is the true one, 0 or 1; of language models the part of the counted
            tokens whose likeliest token is. None where the model gives neither, or without labels.
        why_no_losses: The reason in one sentence; None if there are losses.
        pooling: By layer, how what was read became one vector per record.
        rows: (n,) which records of the data these are, ascending.
        n_tokens: (n,) tokens that the loss counts; None where it counts no tokens.
    """

    layers: Mapping[str, Embeddings]
    losses: Mapping[str, FloatArray]
    hits: FloatArray | None
    why_no_losses: str | None
    pooling: Mapping[str, str]
    rows: IndexArray
    n_tokens: IndexArray | None = None


@overload
def embed(
    model: "torch.nn.Module",
    data: ModelInput,
    *,
    layer: None = None,
    pooling: "Pooling | None" = None,
    batch_size: int | None = DEFAULT_BATCH,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> Embeddings: ...
@overload
def embed(
    model: "torch.nn.Module",
    data: ModelInput,
    *,
    layer: Sequence[str] | None,
    pooling: "Pooling | None" = None,
    batch_size: int | None = DEFAULT_BATCH,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> Any: ...
def embed(
    model: "torch.nn.Module",
    data: ModelInput,
    *,
    layer: str | Sequence[str] | None = None,
    pooling: "Pooling | None" = None,
    batch_size: int | None = DEFAULT_BATCH,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> Embeddings | dict[str, Embeddings]:
    """What does the model hold about each record, just before its task head?

    The answer is the paper's penultimate activation h(x), where f = g(h(x)) and g is the task head (section
    3.2). Without ``layer`` it is found by running the first batch:

    - Hugging Face models with a vocabulary head (masked or causal language models), or without any head: the
      last hidden state, at the first token ([CLS]) for encoders and at the last token that is no padding for
      causal models. Where labels mark the tokens of a completion, the mean over the positions that predict them;
      so too in the decoder of an encoder-decoder model.
    - Else the head is the child named ``fc``, ``classifier``, ``head``, ``score``, ``classification_head``,
      ``qa_outputs``, ``lm_head`` or ``cls`` (of several, the one that runs last). The vector is the input of
      the last Linear in that head: so BERT (pooler, classifier), RoBERTa (dense, out_proj) and DistilBERT
      (pre_classifier, classifier) are all read after their dense layer and its activation. A token-wise
      ``cls`` or ``lm_head`` is read at its own input.
    - Else the input of the last Linear that runs, provided that it makes the model's output.

    What is read becomes one vector per record: (n, p) as it is; of a sequence (n, tokens, p) the first token,
    or the last that is no padding for causal models, ``lm_head``, ``score`` and recurrent layers; feature
    maps (n, c, h, w) are averaged over all positions.

    Where the data carries labels, the same pass gives the loss of each record, in float64: cross-entropy for
    classifiers (binary for one logit), mean binary cross-entropy for multi-label heads (targets between 0 and 1, of the
    logits' shape), squared error for other float targets, and for language models the mean negative log-likelihood of
    the labelled tokens (labels are token ids of the input's shape, -100 does not count). Float targets of one output
    that are all 0 or 1 are classes, except for Hugging Face models. Where losses cannot be computed they are None, and
    `read_model` says why.

    The model runs in eval mode without gradients, and on a GPU in full precision: torch's default would round the
    inputs of convolutions to ten bits. A caller's ``torch.autocast`` stays in force. Every submodule's own mode,
    the device, the hooks, torch's settings and the random streams are afterwards as they were, also when an error
    stops the run.

    Args:
        model: Any ``torch.nn.Module``, Hugging Face models included.
        data: A tensor or array (n, ...); a dict of them, keyed by the parameters of ``forward``; a tuple of
            them; a Dataset or list whose items are tensors, tuples or dicts; a Hugging Face encoding; or a
            DataLoader that goes through its data in order. A tuple may end with one label: it is not fed, nor
            are the dict keys ``labels`` and ``label``, nor keys that ``forward`` does not know. Token lists
            of unequal length are padded. Record ids come from a dict key ``id``, else the attribute ``ids``
            of the Dataset, else they are row numbers (for a ``Subset`` those of the whole Dataset); groups and strata
            come from keys or attributes of these names.
        layer: Dotted name of the module whose output is read, e.g. ``"net.4"``; with ``":input"`` behind it,
            its input. The ``layer`` of a returned ``Embeddings`` can be given here again. A list of names reads all of
            them in one pass; ``"all"`` reads every block on the way to what None reads.
        pooling: Of language models that write: "completion", the mean over the positions that predict a token which
            the labels count (the default where there are such labels, as `encode_prompts` makes them); "last", the last
            token that is no padding; "span", as "completion" but only tokens with a 1 under the key ``span_mask``.
        batch_size: Records per forward pass; a DataLoader keeps its own. Records with token labels, and texts for an
            encoder of transformers that does not see padding, such as BERT, are read in batches of similar length, at
            most 32,768 tokens each. None takes as many as fit into half of a GPU's free memory, at most 4096: that may
            change the last bits from machine to machine.
        device: Where to run, e.g. ``"cuda"``; by default where the model is.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        Embeddings with float32 values (n, p), or float64 for a float64 model, and with labels, losses and, where
        records are plain rows of at most 1000 numbers, those as features. For a list of layers or "all", a dict of them
        by layer, in forward order.

    Raises:
        InputError: Data that cannot be fed or whose rows would not line up; NaN or inf in the answer.
        LayerNotFoundError: No such layer, no task head found, or one that runs several times per pass.
        UnstableModelError: The first batch, embedded twice, gave two answers.
        MissingPackageError: torch is not installed.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
        >>> rows = embed(model, (torch.ones(5, 4), torch.zeros(5, dtype=torch.int64)))
        >>> rows.shape, rows.layer, rows.losses.shape
        ((5, 3), '2:input', (5,))
        >>> list(embed(model, torch.ones(5, 4), layer="all"))
        ['0', '2:input']
    """
    asked: Any = {"layer": layer, "pooling": pooling, "batch_size": batch_size, "device": device}
    found = read_model(model, data, **asked, progress=progress)
    losses = next(iter(found.losses.values()), None)
    layers = {name: replace(rows, losses=losses) for name, rows in found.layers.items()}
    return next(iter(layers.values())) if layer is None or (isinstance(layer, str) and layer != "all") else layers


def read_model(
    model: "torch.nn.Module",
    data: ModelInput,
    *,
    layer: str | Sequence[str] | None = None,
    pooling: "Pooling | None" = None,
    batch_size: int | None = DEFAULT_BATCH,
    device: "str | torch.device | None" = None,
    progress: bool = False,
    n_most: int | None = None,
) -> ModelReading:
    """`embed`, with what else the same pass shows: hits, kinds of loss, or why there are no losses.

    Arguments as `embed`; with ``n_most``, only the first so many records are read, or as many whole batches of similar
    length as hold them.

    Example:
        >>> import torch
        >>> read_model(torch.nn.Linear(2, 3), torch.eye(2)).why_no_losses
        'The data carries no labels.'
    """
    load_optional("torch", "embedding a model")
    from ruler.embeddings import forward
    from ruler.embeddings.batches import GatheredRows
    from ruler.embeddings.heads import reads_texts_alike
    from ruler.embeddings.losses import LossMeter
    from ruler.embeddings.running import bare_module, undisturbed
    from ruler.embeddings.small_maps import small_maps_as_products

    n_asked = DEFAULT_BATCH if batch_size is None else batch_size
    check_number(n_asked, "batch_size", minimum=1, is_whole=True)
    module = bare_module(model)
    with undisturbed(module, device) as run_device, small_maps_as_products(module, run_device):
        reader = forward.plan_reader(module, layer, pooling)
        n_at_once = n_asked if n_most is None or reader.is_writer else min(n_asked, n_most)
        are_texts = not reader.is_writer and reads_texts_alike(module)
        source, stream, first, start = _open_repeatable(data, reader, n_at_once, are_texts, run_device)
        reader = reader.settle(start)
        passed, begun = forward.read_stably(reader, start), start
        probe = [one.placed(run_device, reader.input_dtype) for one in source.probe or ()]
        if probe and not forward.ignores_padding(reader, *probe):
            are_texts = False
            source, stream, first, start = _open_repeatable(data, reader, n_at_once, are_texts, run_device)
        if batch_size is None and run_device.type == "cuda" and n_most is None and source.is_rereadable:
            n_at_once = count_fitting(reader, start)
            source, stream, first, start = _open_repeatable(data, reader, n_at_once, are_texts, run_device)
        passed = passed if start.columns is begun.columns else reader.read(start)
        words, meter = passed.pooling, LossMeter(reader)
        gathered = GatheredRows(passed.vectors, source.n_records, n_most)
        held: list[tuple[Batch, Mapping[str, npt.NDArray[Any]]]] = []
        with show_progress("embedding", n := source.n_batches or 0, is_shown=progress and n > 0) as advance:
            for batch, placed, one in _pass_over(reader, stream, (first, start, passed), run_device):
                for before in held:  # kept while a GPU still computes
                    gathered.add(*before)
                held = [(batch, one.fetch())]
                meter.add(placed, one.output)
                advance(1)
                if n_most is not None and gathered.n_rows + batch.n_rows >= n_most:
                    break
            gathered.add(*held[0])
        losses = meter.finish()
    layers, rows, order = gathered.finish(source.beside)
    return ModelReading(
        layers,
        {kind: one[order] for kind, one in losses.by_kind.items()},
        None if losses.hits is None else losses.hits[order],
        losses.reason,
        words,
        rows,
        None if losses.n_tokens is None else losses.n_tokens[order],
    )


def _pass_over(
    reader: "LayerReader", stream: "Iterator[Batch]", begun: "tuple[Batch, Batch, Pass]", device: "torch.device"
) -> "Iterator[tuple[Batch, Batch, Pass]]":
    """Batches as given and as placed, with their passes: the one that has begun, and the rest of the stream.

    While a GPU computes, the next batch is placed beside it.
    """
    while True:
        upcoming = next(stream, None)
        following = None if upcoming is None else upcoming.placed(device, reader.input_dtype)
        yield begun
        if upcoming is None or following is None:
            return
        begun = upcoming, following, reader.read(following)


def _open_repeatable(
    data: ModelInput, reader: "LayerReader", n_at_once: int, are_texts: bool, device: "torch.device"
) -> "tuple[Source, Iterator[Batch], Batch, Batch]":
    """Data as a source, its batches after the first, and the first, as read and on the device; it can be read again."""
    from ruler.embeddings.sources import check_repeatable, open_source

    source = open_source(data, reader.signature, n_at_once, by_length=reader.is_writer, are_texts=are_texts)
    stream = source.read()
    first = next(stream, None)
    if first is None:
        raise InputError("data must hold at least one record; got 0. Give the records to embed.")
    check_repeatable(source, first)
    return source, stream, first, first.placed(device, reader.input_dtype)


def count_fitting(reader: "LayerReader", batch: "Batch") -> int:
    """How many records fit into half of the free memory of the GPU that a batch lies on, by what this batch takes."""
    torch = load_optional("torch", "embedding a model")
    device = next(iter(batch.columns.values())).device
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    reader.read(batch)
    taken = max(1, torch.cuda.max_memory_allocated(device) - before)
    n_free = torch.cuda.mem_get_info(device)[0] // 2 * batch.n_rows // taken
    return int(min(LARGEST_BATCH, max(1, n_free)))
