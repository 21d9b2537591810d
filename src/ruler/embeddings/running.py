"""A model as it is run here: without wrappers, in eval mode, watched by hooks, and afterwards as it was."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ruler.core.determinism import fixed_algorithms, full_precision, kept_modes
from ruler.core.errors import InputError, shorten


def bare_module(model: Any) -> nn.Module:
    """The model without the wrappers, of compilation or many devices, that hooks cannot see through."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return bare_module(model.module)
    return bare_module(model._orig_mod) if hasattr(model, "_orig_mod") else model


@contextmanager
def undisturbed(model: nn.Module, device: str | torch.device | None) -> Iterator[torch.device]:
    """Eval mode, no gradients, full precision, on a device; at the end modes, device and streams are as before."""
    devices = {str(tensor.device): tensor.device for tensor in (*model.parameters(), *model.buffers())}
    # weights that accelerate fetches when they are needed are nowhere ("meta") meanwhile
    home = next((device for device in devices.values() if device.type != "meta"), torch.device("cpu"))
    target = home if device is None else _usable_device(device)
    if device is not None and len(devices) > 1 and target != next(iter(devices.values())):
        listed = ", ".join(sorted(devices))
        raise InputError(f"device must be left out for a model that is spread over several; got {listed}.")
    with (
        kept_modes(model),
        torch.random.fork_rng(devices=[target] if target.type == "cuda" else []),
        torch.no_grad(),
        full_precision(torch),
        fixed_algorithms(torch),
    ):
        # the flags alone: train() and eval() may be overridden with side effects that cannot be undone
        for module in model.modules():
            module.training = False
        try:
            if target != home:
                model.to(target)
            yield target
        finally:
            if target != home:
                model.to(home)


def _usable_device(device: str | torch.device) -> torch.device:
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        reason = shorten(error, takes_all=False)
        raise InputError(f"device must be one that torch can use here; got {device!r}: {reason}") from error


@contextmanager
def hooked(handles: Iterable[Any]) -> Iterator[None]:
    """Remove hooks, by the handles that adding them gave, at the end."""
    with ExitStack() as stack:
        for handle in handles:
            stack.enter_context(handle)
        yield


@contextmanager
def replacing(forwards: Iterable[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Let modules run other functions in place of their own forward."""
    with ExitStack() as stack:
        for module, forward in forwards:
            if "forward" in vars(module):  # a library that moves weights about had put one there
                stack.callback(setattr, module, "forward", vars(module)["forward"])
            else:
                stack.callback(delattr, module, "forward")
            module.forward = forward
        yield


def answering(modules: Iterable[nn.Module], answer: Any) -> AbstractContextManager[None]:
    """Let modules give an answer instead of running."""
    return replacing((module, lambda *_, **__: answer) for module in modules)


def run_head(model: Any, trunk: nn.Module, states: Tensor, output: Any) -> Tensor:
    """Logits (m, n_words) of states (m, p): the whole model runs, and its trunk answers with these, as it did before.

    Args:
        model: The whole.
        trunk: The part of it below the head.
        states: What the head reads.
        output: An earlier answer of the trunk.
    """
    tokens = torch.zeros((1, len(states)), dtype=torch.int64, device=states.device)
    is_tuple = type(output) is tuple
    with answering([trunk], (states[None],) if is_tuple else type(output)(last_hidden_state=states[None])):
        answered = model(input_ids=tokens)
    logits: Tensor = answered[0] if is_tuple else answered.logits
    return logits[0]


def main_tensor(value: Any) -> Tensor | None:
    """The tensor that matters in what a module takes or gives: the last hidden state, or the first one there is."""
    if isinstance(value, Mapping) and "last_hidden_state" in value:
        value = value["last_hidden_state"]
    return next(tensors_in(value), None)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in what a module takes or gives, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
