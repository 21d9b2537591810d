"""Norms of language models in one kernel each: most of a step of a small model is elementwise work."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional


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
    for norm in norms:
        norm.forward = partial(_normalise, norm)
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _normalise(norm: Any, states: torch.Tensor) -> torch.Tensor:
    """x / rms(x) * weight, in the type that the layers behind it compute in: they would each cast it themselves."""
    kind = states.device.type
    wanted = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else states.dtype
    with torch.autocast(kind, enabled=False):
        weight = norm.weight.to(states.dtype)
        return functional.rms_norm(states, (states.shape[-1],), weight, norm.variance_epsilon).to(wanted)
