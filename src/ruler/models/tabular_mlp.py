"""The paper's primary model: a two-hidden-layer perceptron on tabular data."""

import torch
from torch import nn

from ruler.models.dropout import Dropout

_HEAD_DROPOUT = 5  # the layers before it end with the second ReLU


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
