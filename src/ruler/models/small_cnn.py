"""The paper's three-layer CNN for small images."""

import torch
from torch import nn

from ruler.core.errors import InputError

_CHANNELS = (32, 64, 128)
_FIRST_WIDTH, _WIDTH = 512, 256
_SHRINK = 2 ** len(_CHANNELS)  # each pooling halves height and width


class SmallCNN(nn.Module):
    """Convolution, ReLU and pooling three times, two fully connected layers with ReLU, then a linear head.

    The paper gives the 256 columns of the second fully connected layer and no more; 32, 64 and 128 channels and 512
    columns in the first are chosen.

    Args:
        n_classes: Columns of the logits.
        n_channels: Colours of the input.
        image_size: Height and width of the input, at least 8 each.

    Raises:
        InputError: Images that three poolings would make vanish.

    Example:
        >>> model = SmallCNN().eval()
        >>> images = torch.zeros(4, 3, 32, 32)
        >>> tuple(model(images).shape), tuple(model.penultimate(images).shape)
        ((4, 10), (4, 256))
    """

    def __init__(self, n_classes: int = 10, n_channels: int = 3, image_size: tuple[int, int] = (32, 32)) -> None:
        super().__init__()
        height, width = image_size
        if min(image_size) < _SHRINK:
            raise InputError(f"image_size must be at least {_SHRINK} by {_SHRINK}; got {height} by {width}. Resize.")
        layers: list[nn.Module] = []
        for n_in, n_out in zip((n_channels, *_CHANNELS), _CHANNELS, strict=False):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers)
        self.fc1 = nn.Linear(_CHANNELS[-1] * (height // _SHRINK) * (width // _SHRINK), _FIRST_WIDTH)
        self.fc2 = nn.Linear(_FIRST_WIDTH, _WIDTH)
        self.head = nn.Linear(_WIDTH, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of images (n, n_channels, height, width)."""
        logits: torch.Tensor = self.head(self.penultimate(x))
        return logits

    def penultimate(self, x: torch.Tensor) -> torch.Tensor:
        """The representation of each image: the second fully connected layer after its ReLU, (n, 256)."""
        hidden = torch.relu(self.fc1(self.features(x).flatten(1)))
        return torch.relu(self.fc2(hidden))


def build(n_channels: int, height: int, width: int, n_classes: int) -> SmallCNN:
    """The model for images of this shape."""
    return SmallCNN(n_classes, n_channels, (height, width))
