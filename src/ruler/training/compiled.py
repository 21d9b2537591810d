"""Decoder blocks of language models, compiled: most of a step of a small one is elementwise work, which fuses well."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import nn


@contextmanager
def compiled_blocks(model: nn.Module) -> Iterator[None]:
    """While this lasts, the longest list of blocks of a model runs compiled; where that fails, as it is.

    All blocks share the code that is compiled once per process, for any number of records and tokens. Hooks of
    blocks are called as always. Numbers differ from those without it by rounding alone.

    Example:
        >>> model = nn.Sequential(nn.ModuleList([nn.Linear(2, 2)]))
        >>> with compiled_blocks(model):
        ...     "forward" in vars(model[0][0])
        True
        >>> "forward" in vars(model[0][0])
        False
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    blocks: list[Any] = list(max(lists, key=len, default=()))
    if not blocks:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch itself imports
        dynamo: Any = import_module("torch._dynamo")
        for block in blocks:
            block.forward = torch.compile(block.forward, dynamic=True)
    with dynamo.config.patch(suppress_errors=True):
        try:
            yield
        finally:
            for block in blocks:
                del block.forward
