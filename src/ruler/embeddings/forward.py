"""Forward passes that leave the model as it was, and the vectors that are read on the way."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError, shorten
from ruler.embeddings import heads
from ruler.embeddings.batches import Batch
from ruler.embeddings.heads import (
    WORDS,
    Pooling,
    ReadPoint,
    average_places,
    find_blocks,
    find_head_input,
    find_layer,
    pool_tokens,
)
from ruler.embeddings.inputs import IGNORED_TOKEN, ForwardSignature, read_signature
from ruler.embeddings.running import hooked, main_tensor

_ROUNDED_EPS, _MOST_ROUNDED = 256, 0.05  # of rows read at another width; the second for half precision
_TOLERATED_EPS = 16  # sums on an accelerator may change their order from run to run
_DOES_NOT_FIT = re.compile(
    r"shapes cannot be multiplied|size of tensor a|expected input|size mismatch|Expected \dD|index out of range|"
    r"should be the same|same dtype|scalar type|argument #1 'indices'"
)


@dataclass(frozen=True, eq=False)
class Pass:
    """What one forward pass gave: by layer, vectors (n, p) where the model is, how they came about; and the output."""

    vectors: Mapping[str, Tensor]
    pooling: Mapping[str, str]
    output: Any

    def fetch(self) -> dict[str, npt.NDArray[Any]]:
        """The vectors on the host, which waits until the model has run."""
        return {label: one.cpu().numpy() for label, one in self.vectors.items()}


@dataclass(frozen=True, eq=False)
class HeadInput:
    """In place of a model's output: what its vocabulary head was about to turn into logits."""

    states: Tensor
    head: nn.Module


@dataclass(frozen=True, eq=False)
class LayerReader:
    """How vectors are read from a model.

    Args:
        model: The whole model.
        module: What is run: the model, or the trunk of a language model.
        signature: What its forward takes.
        points: Where vectors are read; none until the first batch has shown the task head.
        is_causal: Whether the last token stands for a sequence.
        input_dtype: The precision of the parameters; None where they differ.
        pad_token: The padding among ``input_ids``, if known.
        takes_all: Read every block, not the given points alone.
        pooling: How a sequence becomes a vector at points that take the last token; None until the first batch shows
            whether it has token labels.
        is_writer: Whether this is a language model that continues a prompt.
        is_apart: Whether an encoder reads the prompt and a decoder the completion.
    """

    model: nn.Module
    module: nn.Module
    signature: ForwardSignature
    points: tuple[ReadPoint, ...]
    is_causal: bool
    input_dtype: torch.dtype | None
    pad_token: int | None
    takes_all: bool = False
    pooling: Pooling | None = None
    is_writer: bool = False
    is_apart: bool = False

    def settle(self, first: Batch) -> "LayerReader":
        """The same reader with its points found, in forward order, and its pooling chosen."""
        if self.is_writer and self.pooling in (None, "completion", "span"):
            tokens, marked = first.tokens, first.labels
            fits = isinstance(marked, Tensor) and tokens is not None and marked.shape == tokens.shape
            has_labels = first.has_token_labels and (self.is_apart or fits)
            if not has_labels and self.pooling is not None:
                raise InputError(
                    f"pooling {self.pooling!r} must be used with labels that are token ids, -100 outside completions; "
                    "got none. Encode prompts and completions with ruler.embeddings.prompts.encode_prompts."
                )
            if self.pooling is None:
                return replace(self, pooling="completion" if has_labels else "last").settle(first)
        if self.is_apart and not self.points:
            if not (first.has_token_labels or "decoder_input_ids" in first.named):
                raise LayerNotFoundError(
                    f"layer must be named for {type(self.model).__name__}, which has an encoder and a decoder, unless "
                    "labels say what the decoder writes. Name one, give labels, or embed model.get_encoder()."
                )
            return replace(self, points=(heads.find_decoder(self.model),)).settle(first)
        points = self.points or (find_head_input(self.module, lambda: self.run(first), is_causal=self.is_causal),)
        if self.takes_all:
            points = tuple(find_blocks(self.model, points[0], lambda: self.run(first), first.n_rows))
        if len(points) == 1:
            return replace(self, points=points, takes_all=False)
        rows = replace(self, points=points).read(first).fetch()
        labels: list[str] = []
        for label, block in rows.items():
            # dropout in eval mode, for one, only repeats what comes before it
            if not (self.takes_all and labels and np.array_equal(rows[labels[-1]], block, equal_nan=True)):
                labels.append(label)
            elif label == points[-1].label:
                labels[-1] = label
        by_label = {point.label: point for point in points}
        return replace(self, points=tuple(by_label[label] for label in labels), takes_all=False)

    def read(self, batch: Batch) -> Pass:
        """One forward pass, and one vector per record at every point.

        Raises:
            LayerNotFoundError: A layer did not run exactly once.
            InputError: It gave something else than one row per record.
        """
        found: list[tuple[ReadPoint, Tensor, str]] = []
        is_padded = self._padding_of(batch) if any(point.takes_last_token for point in self.points) else None
        is_decoder_padded = is_padded
        if self.is_apart:  # the decoder reads tokens of its own
            is_decoder_padded = cast(Tensor, batch.labels) == IGNORED_TOKEN if batch.has_token_labels else None
        chosen, model = self._choose_places(batch), cast(Any, self.model)
        of_encoder = set(model.get_encoder().modules()) if self.is_apart else set()

        def keep(point: ReadPoint, value: Any) -> None:
            tensor = main_tensor(value)
            if tensor is None:
                raise InputError(
                    f"layer {point.label!r} must carry a tensor; got {type(value).__name__}. Name another layer."
                )
            # pooled and copied at once: what follows may overwrite the tensor in place
            is_decoded = point.takes_last_token and point.module not in of_encoder
            if chosen is not None and tensor.ndim == 3 and is_decoded:
                pooled, words = average_places(tensor, point, chosen), WORDS[self.pooling or "completion"]
            else:
                pooled, words = pool_tokens(tensor, point, is_decoder_padded if is_decoded else is_padded)
            found.append((point, pooled.clone(), words))

        def add_hook(point: ReadPoint) -> Any:
            if point.reads_input:
                return point.module.register_forward_pre_hook(
                    lambda _, args, kwargs: keep(point, (*args, *kwargs.values())), with_kwargs=True
                )
            return point.module.register_forward_hook(lambda _, args, output: keep(point, output))

        with hooked(add_hook(point) for point in self.points):
            output = self.run(batch)
        for point in self.points:
            n_times = sum(one is point for one, _, _ in found)
            if n_times != 1:
                raise LayerNotFoundError(
                    f"layer {point.label!r} must run once in a forward pass; it ran {n_times} times. "
                    "Name another layer."
                )
        vectors = {}
        for point, tensor, _ in found:
            if tensor.ndim != 2 or len(tensor) != batch.n_rows:
                raise InputError(
                    f"layer {point.label!r} must give one vector per record; got shape {tuple(tensor.shape)} "
                    f"for {batch.n_rows} records. Name another layer."
                )
            dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            vectors[point.label] = tensor.to("cpu" if tensor.device.type == "mps" else tensor.device, dtype)
        return Pass(vectors, {point.label: words for point, _, words in found}, output)

    def run(self, batch: Batch) -> Any:
        """The module's answer to a batch."""
        try:
            return self._run(batch)
        except (RuntimeError, IndexError) as error:
            if not _DOES_NOT_FIT.search(str(error)):
                raise
            given = ", ".join(
                f"{tuple(part.shape)} {str(part.dtype).removeprefix('torch.')}" for part in batch.columns.values()
            )
            raise InputError(
                f"data must have the shape and type that the model takes; got a batch of {given}: {shorten(error)} "
                "Give records as they were given in training."
            ) from error

    def _run(self, batch: Batch) -> Any:
        frugal = {"use_cache": False} if "use_cache" in self.signature.optional else {}
        if not self.is_apart:
            return self.module(*batch.positional, **batch.named, **frugal)
        inputs = {**self.complete(batch), **frugal}
        head = heads.find_vocabulary_head(self.model)
        if head is None or any(point.module is head for point in self.points):
            return self.module(**inputs)
        kept: list[Tensor] = []

        def keep_one_place(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            kept.append(args[0])
            return (args[0][:, :1], *args[1:])

        # logits over the vocabulary are by far the largest tensor: only those that are asked for are made, later
        with hooked([head.register_forward_pre_hook(keep_one_place)]):
            output = self.module(**inputs)
        return HeadInput(kept[0], head) if len(kept) == 1 else output

    def complete(self, batch: Batch) -> dict[str, Tensor]:
        """Inputs of encoder and decoder; without ``decoder_input_ids``, the decoder gets the labels, shifted."""
        inputs = batch.named
        if "decoder_input_ids" not in inputs and batch.has_token_labels:
            assert isinstance(batch.labels, Tensor)
            model: Any = self.model
            labels = batch.labels.to(next(iter(inputs.values())).device)
            inputs["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(labels)
        return inputs

    def _choose_places(self, batch: Batch) -> Tensor | None:
        """(n, t) which places are averaged; None where one token stands for a sequence."""
        if not self.is_writer or self.pooling not in ("completion", "span"):
            return None
        if not batch.has_token_labels:
            raise InputError("labels must be token ids in every batch; got others. Give all records such labels.")
        chosen = batch.find_predicting(
            is_shifted=not self.is_apart, is_apart=self.is_apart, of_marks=self.pooling == "span"
        )
        n_without = int((~chosen.any(dim=1)).sum())
        if n_without:
            what = "labelled token" if self.pooling == "completion" else "token of the marked span"
            raise InputError(
                f"records must have a {what} to predict; got none in {n_without} of {len(chosen)} records. "
                'Leave them out, or choose pooling="last".'
            )
        return chosen

    def _padding_of(self, batch: Batch) -> Tensor | None:
        mask = batch.named.get("attention_mask")
        if mask is not None:
            return mask == 0
        tokens = batch.tokens
        if self.pad_token is None or tokens is None or tokens.is_floating_point():
            return None
        return tokens == self.pad_token


def plan_reader(model: nn.Module, layer: str | Sequence[str] | None, pooling: Pooling | None = None) -> LayerReader:
    """How to read a model; without names its points may stay open until a batch shows the task head."""
    is_hugging = heads.is_huggingface(model)
    is_causal = is_hugging and heads.is_causal(model)
    takes_all = layer == "all"
    named = () if layer is None or takes_all else (layer,) if isinstance(layer, str) else layer
    if not isinstance(named, Sequence) or not all(isinstance(name, str) for name in named):
        raise InputError(f"layer must be a name, a list of names or 'all'; got {layer!r}. See model.named_modules().")
    if not named and not (layer is None or takes_all):
        raise InputError("layer must name at least one module; got an empty list. Leave layer out for the default.")
    points = tuple(find_layer(model, name, is_causal=is_causal) for name in dict.fromkeys(named))
    is_apart = is_hugging and heads.is_encoder_decoder(model)
    is_writer = is_apart or heads.predicts_next_token(model)
    if pooling is not None and (pooling not in get_args(Pooling) or not is_writer):
        known = ", ".join(get_args(Pooling))
        found = repr(pooling) if is_writer else f"{pooling!r} for {type(model).__name__}"
        raise InputError(f"pooling must be one of {known}, with a language model that writes; got {found}.")
    trunk = heads.find_trunk(model) if is_hugging and not is_apart else None
    module = model
    # the trunk alone saves the logits over the vocabulary, by far the largest tensor of a language model
    if trunk is not None and {point.module for point in points} <= set(trunk[1].modules()):
        name, module = trunk
        points = points or (ReadPoint(module, name, reads_input=False, takes_last_token=is_causal),)
    padding = heads.padding_of(model) if is_hugging else {}
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return LayerReader(
        model,
        module,
        read_signature(module, only_named=is_hugging, padding=padding),
        points,
        is_causal,
        dtypes.pop() if len(dtypes) == 1 else None,
        padding.get("input_ids"),
        takes_all,
        pooling,
        is_writer,
        is_apart,
    )


def read_stably(reader: LayerReader, first: Batch) -> Pass:
    """The pass over the first batch, provided that a second one gives the same rows up to rounding.

    Raises:
        UnstableModelError: It does not, so no number computed from the rows would mean anything.
    """
    once, again = reader.read(first), reader.read(first).fetch()
    for label, rows in once.fetch().items():
        with np.errstate(invalid="ignore"):
            difference = np.nan_to_num(np.abs(rows - again[label]))
        allowed = _TOLERATED_EPS * np.finfo(rows.dtype).eps * np.nan_to_num(np.abs(rows)).max()
        if difference.max() > allowed:
            raise UnstableModelError(
                "model must give the same embeddings for the same input in eval mode; the first batch, embedded "
                f"twice, differs by up to {difference.max():.3g}. "
                "Turn off dropout or noise that runs in eval mode."
            )
    return once


def ignores_padding(reader: LayerReader, cut: Batch, whole: Batch) -> bool:
    """Whether records are read alike, up to rounding, with and without padding: a convolution over tokens sees it."""
    narrow, wide = reader.read(cut).fetch(), reader.read(whole).fetch()
    allowed = min(_ROUNDED_EPS * torch.finfo(reader.input_dtype or torch.float32).eps, _MOST_ROUNDED)
    return all(
        rows.shape == wide[label].shape and np.abs(rows - wide[label]).max() <= allowed * (1 + np.abs(rows).max())
        for label, rows in narrow.items()
    )
