"""From the shape of one record and the number of classes to a model."""

from collections.abc import Callable, Sequence

from torch import nn

from ruler.core.errors import InputError

Builder = Callable[[int | Sequence[int], int], nn.Module]


def build_for_rows(architecture: Callable[[int, int], nn.Module]) -> Builder:
    """A builder of models that take rows, from an architecture of (n_features, n_classes).

    Example:
        >>> build = build_for_rows(lambda n_features, n_classes: nn.Linear(n_features, n_classes))
        >>> build((54,), 7), build(54, 7)
        (Linear(in_features=54, out_features=7, bias=True), Linear(in_features=54, out_features=7, bias=True))
    """

    def build(record_shape: int | Sequence[int], n_classes: int) -> nn.Module:
        shape = _as_shape(record_shape)
        if len(shape) != 1:
            raise InputError(
                f"record_shape must be (n_features,) for a model of rows; got {shape}. Choose a model of images."
            )
        return architecture(shape[0], n_classes)

    return build


def build_for_images(architecture: Callable[[int, int, int, int], nn.Module]) -> Builder:
    """A builder of models that take images, from an architecture of (channels, height, width, n_classes).

    Example:
        >>> build = build_for_images(lambda c, h, w, n_classes: nn.Linear(c * h * w, n_classes))
        >>> build((3, 8, 8), 10)
        Linear(in_features=192, out_features=10, bias=True)
    """

    def build(record_shape: int | Sequence[int], n_classes: int) -> nn.Module:
        shape = _as_shape(record_shape)
        if len(shape) != 3:
            raise InputError(
                f"record_shape must be (channels, height, width) for a model of images; got {shape}. "
                "Choose a model of rows."
            )
        return architecture(*shape, n_classes)

    return build


def _as_shape(record_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (record_shape,) if isinstance(record_shape, int) else tuple(record_shape)
