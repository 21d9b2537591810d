"""Images -> the same images, moved and mirrored at random, on the device where they lie."""

from collections.abc import Callable

import torch
from torch.nn import functional

from ruler.core.errors import InputError

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""(images (n, c, h, w), random stream on the CPU) -> changed images of the same shape."""

MARGIN = 4
"""Pixels that an image is moved by at most: the usual padding for images of 32 x 32."""


def shift_images(images: torch.Tensor, generator: torch.Generator, *, is_mirrored: bool = True) -> torch.Tensor:
    """Each image moved by up to 4 pixels in both directions, zeros coming in, and every second one mirrored.

    Args:
        images: (n, c, h, w), normalised, so that zero is the mean colour.
        generator: On the CPU, so that a seed means the same changes on every device.
        is_mirrored: False leaves left and right as they are (digits, letters).

    Raises:
        InputError: Not a stack of images.

    Example:
        >>> images = torch.ones(2, 3, 8, 8)
        >>> shift_images(images, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 8, 8])
    """
    if images.ndim != 4:
        raise InputError(
            f"augment must be 'none' for records that are not images (n, c, h, w); got shape {tuple(images.shape)}."
        )
    n, height, width = len(images), images.shape[2], images.shape[3]
    offsets = torch.randint(0, 2 * MARGIN + 1, (2, n, 1), generator=generator)
    is_flipped = torch.rand(n, 1, generator=generator) < 0.5 * is_mirrored
    across = torch.arange(width).expand(n, width)
    columns = offsets[1] + torch.where(is_flipped, width - 1 - across, across)  # (n, w)
    rows = offsets[0] + torch.arange(height)  # (n, h)
    columns, rows = columns.to(images.device), rows.to(images.device)
    padded = functional.pad(images, (MARGIN,) * 4)
    places = torch.arange(n, device=images.device)[:, None, None]
    return padded[places, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
