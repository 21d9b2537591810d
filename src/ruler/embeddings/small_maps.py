"""Convolutions of small feature maps with many channels, each as one matrix product.

cuDNN's rule for float32 picks algorithms that transform tiles of 16 or 32 positions a side. A map of 7 x 7 positions or
fewer fills little of such a tile, and on an H200 the product took between all of cuDNN's time and a thirteenth of it. A
race between algorithms would find that out too, but its winner, and so the last bits of the embeddings, may change from
run to run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ruler.embeddings.running import replacing

_MOST_POSITIONS = 49
_FEWEST_CHANNELS = 256
_BLOCK_NUMBERS = 1 << 26  # of patches that are laid out at once: 256 MB


@contextmanager
def small_maps_as_products(model: nn.Module, device: torch.device) -> Iterator[None]:
    """On a GPU, 3 x 3 convolutions of a model give such maps by `multiply_patches`; the same up to rounding."""
    # a subclass, or a module whose weight is computed from others, may do something else
    chosen = [module for module in model.modules() if type(module) is nn.Conv2d and _is_plain(module)]

    def replace(module: nn.Conv2d) -> Callable[..., Tensor]:
        def forward(*args: Tensor, **named: Tensor) -> Tensor:
            is_product = len(args) == 1 and _fits(module, args[0])
            return multiply_patches(module, args[0]) if is_product else nn.Conv2d.forward(module, *args, **named)

        return forward

    with replacing((module, replace(module)) for module in chosen if device.type == "cuda"):
        yield


def multiply_patches(convolution: nn.Conv2d, maps: Tensor) -> Tensor:
    """A 3 x 3 convolution: patches (n x height x width, channels x 9) times weights (channels x 9, n_out).

    Example:
        >>> convolution, maps = nn.Conv2d(2, 4, 3, padding=1), torch.rand(3, 2, 5, 5)
        >>> torch.allclose(multiply_patches(convolution, maps), convolution(maps), atol=1e-6)
        True
    """
    height, width = _output_shape(convolution, maps)
    weights = convolution.weight.flatten(1)
    n_at_once = max(1, _BLOCK_NUMBERS // (height * width * weights.shape[1]))
    across, along = convolution.padding[1], convolution.padding[0]
    is_last = any(_is_channels_last(one) for one in (maps, convolution.weight))
    found = torch.empty(
        (len(maps), len(weights), height, width),
        dtype=maps.dtype,
        device=maps.device,
        memory_format=torch.channels_last if is_last else torch.contiguous_format,  # a model may call view() on them
    )
    for start in range(0, len(maps), n_at_once):
        block = slice(start, start + n_at_once)
        windows = nn.functional.pad(maps[block], (int(across),) * 2 + (int(along),) * 2)
        for axis in (0, 1):
            windows = windows.unfold(2 + axis, 3, convolution.stride[axis])
        patches = windows.permute(0, 2, 3, 1, 4, 5).reshape(-1, weights.shape[1])
        rows = nn.functional.linear(patches, weights, convolution.bias)
        found[block] = rows.view(-1, height, width, len(weights)).permute(0, 3, 1, 2)
    return found


def _is_channels_last(maps: Tensor) -> bool:
    return maps.is_contiguous(memory_format=torch.channels_last) and not maps.is_contiguous()


def _is_plain(module: nn.Conv2d) -> bool:
    return (
        module.kernel_size == (3, 3)
        and module.dilation == (1, 1)
        and module.groups == 1
        and module.padding_mode == "zeros"
        and isinstance(module.stride, tuple)  # a caller may have put a number there
        and isinstance(module.padding, tuple)
        and min(module.in_channels, module.out_channels) >= _FEWEST_CHANNELS
        and "forward" not in vars(module)
    )


def _fits(module: nn.Conv2d, maps: Tensor) -> bool:
    is_float32 = maps.dtype == module.weight.dtype == torch.float32
    is_known = is_float32 and maps.ndim == 4 and maps.shape[1] == module.in_channels and len(maps) > 0
    if not is_known or torch.is_autocast_enabled(maps.device.type):
        return False
    height, width = _output_shape(module, maps)
    return min(height, width) > 0 and height * width <= _MOST_POSITIONS


def _output_shape(module: nn.Conv2d, maps: Tensor) -> tuple[int, int]:
    def count(axis: int) -> int:
        return (maps.shape[2 + axis] + 2 * int(module.padding[axis]) - 3) // module.stride[axis] + 1

    return count(0), count(1)
