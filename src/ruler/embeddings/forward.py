"""Forward passes that leave the model as it was, and the vectors that are read on the way."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError
from ruler.core.precision import fixed_algorithms, full_precision
from ruler.embeddings import huggingface
from ruler.embeddings.batches import Batch
from ruler.embeddings.heads import Tap, find_head_input, find_layer, tensors_in
from ruler.embeddings.inputs import Inlet, read_inlet

_TOLERATED_EPS = 16  # sums on an accelerator may change their order from run to run


@dataclass(frozen=True, eq=False)
class Reading:
    """How vectors are read from a model.

    Args:
        module: What is run: the model, or the trunk of a language model.
        inlet: What its forward takes.
        tap: Where vectors are read; None until the first batch has shown the task head.
        is_causal: Whether the last token stands for a sequence.
        input_dtype: The precision of the parameters; None where they differ.
        pad_token: The padding among ``input_ids``, if known.
    """

    module: nn.Module
    inlet: Inlet
    tap: Tap | None
    is_causal: bool
    input_dtype: torch.dtype | None
    pad_token: int | None

    @property
    def label(self) -> str | None:
        """The layer, as ``embed`` takes it again."""
        return None if self.tap is None else self.tap.label

    def settle(self, first: Batch) -> "Reading":
        """The same reading with its tap found."""
        if self.tap is not None:
            return self
        return replace(self, tap=find_head_input(self.module, lambda: self._run(first), is_causal=self.is_causal))

    def read_rows(self, batch: Batch) -> npt.NDArray[Any]:
        """One vector a record, (n, p) on the host.

        Raises:
            LayerNotFoundError: The layer did not run exactly once.
            InputError: It gave something else than a row a record.
        """
        heard = self._listen(batch)
        if len(heard) != 1:
            raise LayerNotFoundError(
                f"layer {self.label!r} must run once in a forward pass; it ran {len(heard)} times. Name another layer."
            )
        rows = heard[0]
        if rows.ndim != 2 or len(rows) != batch.n_rows:
            raise InputError(
                f"layer {self.label!r} must give one vector a record; got shape {tuple(rows.shape)} "
                f"for {batch.n_rows} records. Name another layer."
            )
        dtype = torch.float64 if rows.dtype == torch.float64 else torch.float32
        return rows.to("cpu", dtype).numpy()

    def _listen(self, batch: Batch) -> list[Tensor]:
        assert self.tap is not None
        tap, heard = self.tap, []
        is_padded = self._padding_of(batch) if tap.takes_last_token else None

        def keep(value: Any) -> None:
            # pooled and copied at once: what follows may overwrite the tensor in place
            heard.append(_pool(_main_tensor(value, tap), tap, is_padded).clone())

        def keep_input(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            keep((*args, *kwargs.values()))

        def keep_output(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            keep(output)

        if tap.reads_input:
            handle = tap.module.register_forward_pre_hook(keep_input, with_kwargs=True)
        else:
            handle = tap.module.register_forward_hook(keep_output)
        try:
            self._run(batch)
        finally:
            handle.remove()
        return heard

    def _run(self, batch: Batch) -> Any:
        frugal = {"use_cache": False} if "use_cache" in self.inlet.optional else {}
        return self.module(*batch.positional, **batch.named, **frugal)

    def _padding_of(self, batch: Batch) -> Tensor | None:
        mask = batch.named.get("attention_mask")
        if mask is not None:
            return mask == 0
        tokens = batch.named.get("input_ids", next(iter(batch.positional), None))
        if self.pad_token is None or tokens is None or tokens.is_floating_point():
            return None
        return tokens == self.pad_token


def plan_reading(model: nn.Module, layer: str | None) -> Reading:
    """How to read a model; without ``layer`` its tap may stay open until a batch shows the task head."""
    is_hugging = huggingface.is_huggingface(model)
    is_causal = is_hugging and huggingface.is_causal(model)
    module, tap = model, None
    if layer is not None:
        tap = find_layer(model, layer, is_causal=is_causal)
    elif is_hugging and (trunk := huggingface.find_trunk(model)):
        name, module = trunk
        tap = Tap(module, name, reads_input=False, takes_last_token=is_causal)
    padding = huggingface.padding_of(model) if is_hugging else {}
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return Reading(
        module,
        read_inlet(module, only_named=is_hugging, padding=padding),
        tap,
        is_causal,
        dtypes.pop() if len(dtypes) == 1 else None,
        padding.get("input_ids"),
    )


def check_stable(reading: Reading, first: Batch) -> None:
    """The first batch, embedded twice, gives the same rows up to rounding.

    Raises:
        UnstableModelError: It does not, so no number computed from the rows would mean anything.
    """
    rows, again = reading.read_rows(first), reading.read_rows(first)
    with np.errstate(invalid="ignore"):
        difference = np.nan_to_num(np.abs(rows - again))
    allowed = _TOLERATED_EPS * np.finfo(rows.dtype).eps * np.nan_to_num(np.abs(rows)).max()
    if difference.max() > allowed:
        raise UnstableModelError(
            "model must give the same embeddings for the same input in eval mode; the first batch, embedded "
            f"twice, differs by up to {difference.max():.3g}. "
            "Turn off dropout or noise that runs in eval mode."
        )


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
    home = _device_of(model)
    target = home if device is None else _usable_device(device)
    if target != home:
        _check_on_one_device(model)
    modes = [(module, module.training) for module in model.modules()]
    accelerators = [target] if target.type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(devices=accelerators),
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


def _device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in _state_of(model)), torch.device("cpu"))


def _state_of(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _check_on_one_device(model: nn.Module) -> None:
    devices = sorted({str(tensor.device) for tensor in _state_of(model)})
    if len(devices) > 1:
        raise InputError(f"device must be left out for a model that is spread over several; got {', '.join(devices)}.")


def _usable_device(device: str | torch.device) -> torch.device:
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        line = str(error).splitlines()[0]
        raise InputError(f"device must be one that torch can use here; got {device!r} ({line}).") from error


def _main_tensor(value: Any, tap: Tap) -> Tensor:
    if isinstance(value, Mapping) and "last_hidden_state" in value:
        value = value["last_hidden_state"]
    for tensor in tensors_in(value):
        return tensor
    raise InputError(f"layer {tap.label!r} must carry a tensor; got {type(value).__name__}. Name another layer.")


def _pool(tensor: Tensor, tap: Tap, is_padded: Tensor | None) -> Tensor:
    if tensor.ndim > 3:
        return tensor.mean(dim=tuple(range(2, tensor.ndim)))
    if tensor.ndim < 3:
        return tensor
    if not tap.takes_last_token:
        return tensor[:, 0]
    if is_padded is None or tensor.shape[1] == 1:
        return tensor[:, -1]
    if is_padded.shape != tensor.shape[:2]:
        raise InputError(
            f"attention_mask must cover the {tuple(tensor.shape[:2])} tokens that reach layer {tap.label!r}; "
            f"got shape {tuple(is_padded.shape)}. Name another layer."
        )
    positions = torch.arange(tensor.shape[1], device=tensor.device)
    last = (positions * ~is_padded.to(tensor.device)).argmax(dim=1)  # (n,)
    return tensor[torch.arange(len(tensor), device=tensor.device), last]
