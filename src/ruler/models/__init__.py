"""Architectures of the paper's experiments, one a file."""

from collections.abc import Callable, Sequence

from torch import nn

from ruler.core.registry import Registry
from ruler.models.build import build_for_images, build_for_rows
from ruler.models.ft_transformer import FTTransformer
from ruler.models.residual_mlp import ResidualMLP
from ruler.models.resnet18 import ResNet18
from ruler.models.small_cnn import SmallCNN
from ruler.models.tabular_mlp import TabularMLP

_SMALL_SIDE = 40  # pixels; larger images get a stem of stride 2

MODELS: Registry[Callable[[int | Sequence[int], int], nn.Module]] = Registry(
    "architecture",
    {
        "tabular_mlp": build_for_rows(TabularMLP),
        "residual_mlp": build_for_rows(ResidualMLP),
        "ft_transformer": build_for_rows(FTTransformer),
        "small_cnn": build_for_images(lambda c, h, w, n_classes: SmallCNN(n_classes, c, (h, w))),
        "resnet18": build_for_images(
            lambda c, h, w, n_classes: ResNet18(n_classes, c, stem_stride=1 if min(h, w) <= _SMALL_SIDE else 2)
        ),
    },
)
"""Name -> a function of (shape of one record, number of classes) that builds the model: ``x.shape[1:]`` will do."""

__all__ = ["MODELS", "FTTransformer", "ResNet18", "ResidualMLP", "SmallCNN", "TabularMLP"]
