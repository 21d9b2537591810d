"""Forward passes that leave the model as it was, and the vectors that are read on the way."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError
from ruler.core.precision import fixed_algorithms, full_precision
from ruler.embeddings import heads
from ruler.embeddings.batches import Batch
from ruler.embeddings.heads import ReadPoint, find_blocks, find_head_input, find_layer, main_tensor
from ruler.embeddings.inputs import ForwardSignature, read_signature

_TOLERATED_EPS = 16  # sums on an accelerator may change their order from run to run


@dataclass(frozen=True, eq=False)
class Pass:
    """What one forward pass gave: by layer, vectors (n, p) on the host and how they came about; and the output."""

    rows: Mapping[str, npt.NDArray[Any]]
    pooling: Mapping[str, str]
    output: Any


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
    """

    model: nn.Module
    module: nn.Module
    signature: ForwardSignature
    points: tuple[ReadPoint, ...]
    is_causal: bool
    input_dtype: torch.dtype | None
    pad_token: int | None
    takes_all: bool = False

    def settle(self, first: Batch) -> "LayerReader":
        """The same reader with its points found, in forward order."""
        points = self.points or (find_head_input(self.module, lambda: self.run(first), is_causal=self.is_causal),)
        if self.takes_all:
            points = tuple(find_blocks(self.model, points[0], lambda: self.run(first), first.n_rows))
        if len(points) == 1:
            return replace(self, points=points, takes_all=False)
        rows = replace(self, points=points).read(first).rows
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

        def keep(point: ReadPoint, value: Any) -> None:
            tensor = main_tensor(value)
            if tensor is None:
                raise InputError(
                    f"layer {point.label!r} must carry a tensor; got {type(value).__name__}. Name another layer."
                )
            # pooled and copied at once: what follows may overwrite the tensor in place
            pooled, words = _pool(tensor, point, is_padded)
            found.append((point, pooled.clone(), words))

        def add_hook(point: ReadPoint) -> Any:
            if point.reads_input:
                return point.module.register_forward_pre_hook(
                    lambda _, args, kwargs: keep(point, (*args, *kwargs.values())), with_kwargs=True
                )
            return point.module.register_forward_hook(lambda _, args, output: keep(point, output))

        handles = [add_hook(point) for point in self.points]
        try:
            output = self.run(batch)
        finally:
            for handle in handles:
                handle.remove()
        for point in self.points:
            n_times = sum(one is point for one, _, _ in found)
            if n_times != 1:
                raise LayerNotFoundError(
                    f"layer {point.label!r} must run once in a forward pass; it ran {n_times} times. "
                    "Name another layer."
                )
        rows = {}
        for point, tensor, _ in found:
            if tensor.ndim != 2 or len(tensor) != batch.n_rows:
                raise InputError(
                    f"layer {point.label!r} must give one vector per record; got shape {tuple(tensor.shape)} "
                    f"for {batch.n_rows} records. Name another layer."
                )
            dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            rows[point.label] = tensor.to("cpu", dtype).numpy()
        return Pass(rows, {point.label: words for point, _, words in found}, output)

    def run(self, batch: Batch) -> Any:
        """The module's answer to a batch."""
        frugal = {"use_cache": False} if "use_cache" in self.signature.optional else {}
        return self.module(*batch.positional, **batch.named, **frugal)

    def _padding_of(self, batch: Batch) -> Tensor | None:
        mask = batch.named.get("attention_mask")
        if mask is not None:
            return mask == 0
        tokens = batch.named.get("input_ids", next(iter(batch.positional), None))
        if self.pad_token is None or tokens is None or tokens.is_floating_point():
            return None
        return tokens == self.pad_token


def plan_reader(model: nn.Module, layer: str | Sequence[str] | None) -> LayerReader:
    """How to read a model; without names its points may stay open until a batch shows the task head."""
    is_hugging = heads.is_huggingface(model)
    is_causal = is_hugging and heads.is_causal(model)
    takes_all = layer == "all"
    named = () if layer is None or takes_all else (layer,) if isinstance(layer, str) else tuple(dict.fromkeys(layer))
    if not named and not (layer is None or takes_all):
        raise InputError("layer must name at least one module; got an empty list. Leave layer out for the default.")
    points = tuple(find_layer(model, name, is_causal=is_causal) for name in named)
    try:
        trunk = heads.find_trunk(model) if is_hugging else None
    except LayerNotFoundError:
        if not points:
            raise
        trunk = None
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
    )


def read_stably(reader: LayerReader, first: Batch) -> Pass:
    """The pass over the first batch, provided that a second one gives the same rows up to rounding.

    Raises:
        UnstableModelError: It does not, so no number computed from the rows would mean anything.
    """
    once, again = reader.read(first), reader.read(first)
    for label, rows in once.rows.items():
        with np.errstate(invalid="ignore"):
            difference = np.nan_to_num(np.abs(rows - again.rows[label]))
        allowed = _TOLERATED_EPS * np.finfo(rows.dtype).eps * np.nan_to_num(np.abs(rows)).max()
        if difference.max() > allowed:
            raise UnstableModelError(
                "model must give the same embeddings for the same input in eval mode; the first batch, embedded "
                f"twice, differs by up to {difference.max():.3g}. "
                "Turn off dropout or noise that runs in eval mode."
            )
    return once


def bare_module(model: Any) -> nn.Module:
    """The model without the wrappers, of compilation or many devices, that hooks cannot see through.

    Raises:
        InputError: Not a torch module.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return bare_module(model.module)
    return bare_module(model._orig_mod) if hasattr(model, "_orig_mod") else model


@contextmanager
def undisturbed(model: nn.Module, device: str | torch.device | None) -> Iterator[torch.device]:
    """Eval mode, no gradients, full precision, on a device; at the end modes, device and streams are as before."""
    devices = {str(tensor.device): tensor.device for tensor in (*model.parameters(), *model.buffers())}
    home = next(iter(devices.values()), torch.device("cpu"))
    target = home if device is None else _usable_device(device)
    if target != home and len(devices) > 1:
        listed = ", ".join(sorted(devices))
        raise InputError(f"device must be left out for a model that is spread over several; got {listed}.")
    modes = [(module, module.training) for module in model.modules()]
    try:
        with (
            torch.random.fork_rng(devices=[target] if target.type == "cuda" else []),
            torch.no_grad(),
            full_precision(torch),
            fixed_algorithms(torch),
        ):
            # the flags alone: train() and eval() may be overridden with side effects that cannot be undone
            for module, _ in modes:
                module.training = False
            if target != home:
                model.to(target)
            yield target
    finally:
        if target != home:
            model.to(home)
        for module, was_training in modes:
            module.training = was_training


def _usable_device(device: str | torch.device) -> torch.device:
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        line = str(error).splitlines()[0]
        raise InputError(f"device must be one that torch can use here; got {device!r} ({line}).") from error


def _pool(tensor: Tensor, point: ReadPoint, is_padded: Tensor | None) -> tuple[Tensor, str]:
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
