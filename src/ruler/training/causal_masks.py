"""Attention of causal language models without a mask where places say all: the kernel for that is the fastest."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any

from torch import nn

_NAME = "create_causal_mask"
_OF_A_PLAIN_BATCH = {"config", "inputs_embeds", "input_embeds", "position_ids", "cache_position"}


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
    modules: list[Any] = [
        module
        for module in {sys.modules[type(part).__module__] for part in model.modules()}
        if module.__name__.startswith("transformers.") and hasattr(module, _NAME)
    ]
    own = [(module, getattr(module, _NAME)) for module in modules]
    for module, function in own:
        setattr(module, _NAME, _skip_plain(function))
    try:
        yield
    finally:
        for module, function in own:
            setattr(module, _NAME, function)


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
