"""ResNet-18 with a stem for small images."""

import torch
from torch import nn

_WIDTHS = (64, 128, 256, 512)
_SMALL_SIDE = 40  # pixels


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with batch normalisation, and a shortcut around them; stride 2 halves the image."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module | None = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps (n, n_out, height / stride, width / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        maps: torch.Tensor = self.relu(inner + shortcut)
        return maps


class ResNet18(nn.Module):
    """ResNet-18 (He et al., 2016) for small images of any size; parameters are named as in torchvision.

    The stem is one 3 x 3 convolution without pooling, as is usual for 32 x 32 images: the 7 x 7 stem with pooling would
    leave a single position to the last stage.

    Args:
        n_classes: Columns of the logits.
        n_channels: Colours of the input.
        stem_stride: 2 gives images of about 64 x 64, such as faces, the same feature maps as 32 x 32 ones.

    Example:
        >>> model = ResNet18().eval()
        >>> images = torch.zeros(2, 3, 32, 32)
        >>> tuple(model(images).shape), tuple(model.penultimate(images).shape)
        ((2, 10), (2, 512))
    """

    def __init__(self, n_classes: int = 10, n_channels: int = 3, stem_stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_channels, _WIDTHS[0], 3, stride=stem_stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(_WIDTHS[0])
        self.relu = nn.ReLU(inplace=True)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(BasicBlock(n_in, n_out, 1 if n_in == n_out else 2), BasicBlock(n_out, n_out, 1))
            for n_in, n_out in zip((_WIDTHS[0], *_WIDTHS), _WIDTHS, strict=False)
        )
        self.fc = nn.Linear(_WIDTHS[3], n_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of images (n, n_channels, height, width)."""
        logits: torch.Tensor = self.fc(self.penultimate(x))
        return logits

    def penultimate(self, x: torch.Tensor) -> torch.Tensor:
        """The representation of each image: the last feature maps, averaged over all positions, (n, 512)."""
        maps = self.relu(self.bn1(self.conv1(x)))
        maps = self.layer4(self.layer3(self.layer2(self.layer1(maps))))
        representation: torch.Tensor = maps.mean((2, 3))
        return representation


def build(n_channels: int, height: int, width: int, n_classes: int) -> ResNet18:
    """The model for images of this shape; from 41 pixels on, the stem halves them."""
    return ResNet18(n_classes, n_channels, stem_stride=1 if min(height, width) <= _SMALL_SIDE else 2)
