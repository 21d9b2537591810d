"""Language models in fewer and faster kernels: norms in one each, and attention without a mask where places say all.

Most of a step of a small model is elementwise work, and attention is fastest without a mask.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_OF_A_PLAIN_BATCH = {"config", "inputs_embeds", "input_embeds", "position_ids", "cache_position"}


@contextmanager
def fused_norms(model: nn.Module) -> Iterator[None]:
    """While this lasts, root-mean-square norms of a transformers model are computed by torch's own fused kernel.

    Theirs takes seven kernels forwards and more backwards. Numbers differ by rounding alone.

    Example:
        >>> class TinyRMSNorm(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight, self.variance_epsilon = nn.Parameter(torch.ones(4)), 1e-6
        >>> model = nn.Sequential(TinyRMSNorm())
        >>> with fused_norms(model):
        ...     [round(value, 3) for value in model(torch.tensor([1.0, 1.0, 7.0, 7.0])).tolist()]
        [0.2, 0.2, 1.4, 1.4]
        >>> "forward" in vars(model[0])
        False
    """
    norms: list[Any] = [
        module
        for module in model.modules()
        if type(module).__name__.endswith("RMSNorm")
        and type(module) is not nn.RMSNorm
        and vars(module).keys() >= {"variance_epsilon"}
        and set(dict(module.named_parameters())) == {"weight"}
    ]
    with ExitStack() as stack:
        for norm in norms:
            norm.forward = partial(_normalise, norm)
            stack.callback(delattr, norm, "forward")
        yield


def _normalise(norm: Any, states: torch.Tensor) -> torch.Tensor:
    """x / rms(x) * weight, in the type that the layers behind it compute in: they would each cast it themselves."""
    kind = states.device.type
    wanted = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    with torch.autocast(kind, enabled=False):
        weight = norm.weight.to(states.dtype)
        return functional.rms_norm(states, (states.shape[-1],), weight, norm.variance_epsilon).to(wanted)


@contextmanager
def skipped_masks(model: nn.Module) -> Iterator[None]:
    """While this lasts, transformers models of this one's module attend without a mask where that is the same.

    They do so by themselves, except while a step is captured into a CUDA graph: there they write every mask out, and
    attention then takes a slower kernel and repeats the keys and values of shared heads. Only for batches whose records
    start at the first place each, as those of ``Completions`` do.

    Example:
        >>> with skipped_masks(nn.Linear(2, 2)):  # no attention: nothing happens
        ...     pass
    """
    with replaced_function(model, "create_causal_mask", _skip_plain):
        yield


@contextmanager
def replaced_function(
    model: nn.Module, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """While this lasts, the function of this name is another in the transformers modules that a model comes from."""
    modules = {sys.modules[type(part).__module__] for part in model.modules()}
    with ExitStack() as stack:
        for module in modules:
            if module.__name__.startswith("transformers.") and hasattr(module, name):
                function = getattr(module, name)
                stack.callback(setattr, module, name, function)
                setattr(module, name, change(function))
        yield


def _skip_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but None for a plain batch that torch's own attention knows to be causal."""
    shape = signature(function)

    @wraps(function)
    def create(*args: Any, **named: Any) -> Any:
        given = {name: value for name, value in shape.bind(*args, **named).arguments.items() if value is not None}
        config = given.get("config")
        is_known = getattr(config, "_attn_implementation", None) == "sdpa" and getattr(config, "is_causal", True)
        return None if is_known and given.keys() <= _OF_A_PLAIN_BATCH else function(*args, **named)

    return create
