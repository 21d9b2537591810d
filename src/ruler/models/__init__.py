"""One architecture per file, and the table of them. Naming one needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ruler.core.errors import InputError
from ruler.core.registry import Registry

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """An architecture in print, and how to build a model of it.

    Args:
        title: Name in print.
        takes: ``"rows"`` of features or ``"images"``.
        home: ``module:function`` in this room, loaded when a model is built. The function takes
            (n_features, n_classes) for rows, or (channels, height, width, n_classes) for images.

    Example:
        >>> tuple(MODELS["residual_mlp"]((54,), 7).head.weight.shape)
        (7, 128)
    """

    title: str
    takes: Literal["rows", "images"]
    home: str

    def __call__(self, record_shape: int | Sequence[int], n_classes: int) -> "nn.Module":
        """A fresh model for records of this shape, such as ``x.shape[1:]``."""
        shape = (record_shape,) if isinstance(record_shape, int) else tuple(record_shape)
        if self.takes == "rows" and len(shape) != 1:
            raise InputError(
                f"record_shape must be (n_features,) for a model of rows; got {shape}. Choose a model of images."
            )
        if self.takes == "images" and len(shape) != 3:
            raise InputError(
                f"record_shape must be (channels, height, width) for a model of images; got {shape}. "
                "Choose a model of rows."
            )
        module, _, name = self.home.partition(":")
        build: Any = getattr(import_module(f"{__name__}.{module}"), name)
        model: nn.Module = build(*shape, n_classes)
        return model


MODELS: Registry[Architecture] = Registry(
    "architecture",
    {
        "tabular_mlp": Architecture("MLP", "rows", "tabular_mlp:TabularMLP"),
        "residual_mlp": Architecture("Residual MLP", "rows", "residual_mlp:ResidualMLP"),
        "ft_transformer": Architecture("FT-Transformer", "rows", "ft_transformer:FTTransformer"),
        "small_cnn": Architecture("Three-layer CNN", "images", "small_cnn:build"),
        "resnet18": Architecture("ResNet-18", "images", "resnet18:build"),
    },
)
