"""The paper's primary model: a perceptron with two hidden layers, and dropout with the paper's masks on every CPU."""

import math

import torch
from torch import nn

from ruler.models.mask_replay import ACTIVE

_HEAD_DROPOUT = 5  # the layers before it end with the second ReLU
_BITS = (1 << 53) - 1  # a double between 0 and 1 holds 53 random bits
_CHUNK = 1 << 16  # numbers at a time: 512 kB of raw bits stay in a core's cache


class TabularMLP(nn.Module):
    """Linear, ReLU, Dropout twice, then a linear head; parameters ``net.0``, ``net.3`` and ``net.6``.

    The layers are made in this order, so that a seed set just before gives the published initial weights.

    Args:
        n_features: Columns of the input.
        n_classes: Columns of the logits.
        hidden: Width of both hidden layers, and of the representation.
        dropout: Share of units dropped after each ReLU in train mode.

    Example:
        >>> model = TabularMLP(13).eval()
        >>> rows = torch.zeros(4, 13)
        >>> tuple(model(rows).shape), tuple(model.penultimate(rows).shape)
        ((4, 2), (4, 128))
    """

    def __init__(self, n_features: int, n_classes: int = 2, hidden: int = 128, dropout: float = 0.2) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_features, hidden),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(hidden, n_classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of rows (n, n_features)."""
        logits: torch.Tensor = self.net(x)
        return logits

    def penultimate(self, x: torch.Tensor) -> torch.Tensor:
        """The representation of each row: the output of the second ReLU, (n, hidden)."""
        representation: torch.Tensor = self.net[:_HEAD_DROPOUT](x)
        return representation


class Dropout(nn.Dropout):
    """``nn.Dropout`` whose CPU masks are those of torch's Mersenne Twister, bit for bit, on any processor.

    The published weights were trained with masks from the sequential generator. torch itself draws them so on most
    processors, but from another generator on Intel's. Here the raw bits are compared with a whole number instead of
    being made into doubles first. Other devices use torch's own dropout.

    Example:
        >>> rows = torch.ones(3, 4)
        >>> _ = torch.manual_seed(0)
        >>> Dropout(0.5)(rows).unique().tolist()
        [0.0, 2.0]
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop each unit with the rate in train mode; scale the others up."""
        if not self.training or not 0 < self.p < 1 or x.device.type != "cpu":
            return super().forward(x)
        return x * draw_noise(x, self.p)


def draw_noise(like: torch.Tensor, rate: float) -> torch.Tensor:
    """A factor for each unit, 0 with probability ``rate`` and else 1 / (1 - rate), from the global generator.

    Example:
        >>> units = torch.ones(64)
        >>> _ = torch.manual_seed(3)
        >>> noise = draw_noise(units, 0.2)
        >>> _ = torch.manual_seed(3)
        >>> bool((torch.empty(64, dtype=torch.double).uniform_().lt(0.8) == (noise > 0)).all())
        True
    """
    noise = torch.empty_like(like, requires_grad=False, memory_format=torch.contiguous_format)
    threshold = math.ceil((1 - rate) * 2.0**53)

    def draw(flat: torch.Tensor, generator: torch.Generator | None = None) -> None:
        raw = torch.empty(min(_CHUNK, flat.numel()), dtype=torch.int64)
        for part in torch.split(flat, _CHUNK):
            bits = raw[: len(part)].random_(-(2**63), None, generator=generator).bitwise_and_(_BITS)
            torch.lt(bits, threshold, out=part)

    replay = ACTIVE.get()
    if replay is None:
        draw(noise.view(-1))
    else:
        replay.fill(noise.view(-1), rate, draw)
    return noise.mul_(1 / (1 - rate))
