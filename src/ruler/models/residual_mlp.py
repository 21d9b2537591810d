"""A perceptron of residual blocks, for the large tables."""

import torch
from torch import nn


class ResidualBlock(nn.Module):
    """Rows plus what two linear layers make of them: x + Linear(Dropout(ReLU(Linear(LayerNorm(x))))).

    LayerNorm and not BatchNorm: a step that unlearns a few records must not move everybody's statistics.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows (n, width) of the same shape."""
        hidden: torch.Tensor = self.contract(self.dropout(torch.relu(self.expand(self.norm(x)))))
        return x + hidden


class ResidualMLP(nn.Module):
    """A linear layer, residual blocks, LayerNorm and ReLU, then a linear head (section 5.5 of the paper).

    The paper gives the 128 columns of the representation and no more; three blocks and dropout 0.1 are chosen.

    Args:
        n_features: Columns of the input.
        n_classes: Columns of the logits.
        width: Columns of every block, and of the representation.
        n_blocks: Residual blocks.
        dropout: Share of hidden units dropped in each block in train mode.

    Example:
        >>> model = ResidualMLP(54, 7).eval()
        >>> rows = torch.zeros(4, 54)
        >>> tuple(model(rows).shape), tuple(model.penultimate(rows).shape)
        ((4, 7), (4, 128))
    """

    def __init__(
        self, n_features: int, n_classes: int = 2, width: int = 128, n_blocks: int = 3, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.stem = nn.Linear(n_features, width)
        self.blocks = nn.Sequential(*(ResidualBlock(width, dropout) for _ in range(n_blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of rows (n, n_features)."""
        logits: torch.Tensor = self.head(self.penultimate(x))
        return logits

    def penultimate(self, x: torch.Tensor) -> torch.Tensor:
        """The representation of each row: the final hidden layer after its ReLU, (n, width)."""
        return torch.relu(self.norm(self.blocks(self.stem(x))))
