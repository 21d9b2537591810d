"""The FT-Transformer: every feature of a row becomes a token, and a [CLS] token gathers them."""

import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError


class FeatureTokenizer(nn.Module):
    """Numbers to tokens: token j of a row is x_j * weight_j + bias_j, and a learned [CLS] token stands first."""

    def __init__(self, n_features: int, width: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(n_features, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_features + 1, width).uniform_(-bound, bound))  # row 0: [CLS]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens (n, 1 + n_features, width) of rows (n, n_features)."""
        return torch.addcmul(
            self.bias, functional.pad(x, (1, 0)).unsqueeze(2), functional.pad(self.weight, (0, 0, 1, 0))
        )


class Attention(nn.Module):
    """Multi-head self-attention with one product for queries, keys and values; the heads share the columns."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.n_heads, self.dropout = n_heads, dropout

    def forward(self, tokens: torch.Tensor, n_queries: int | None = None) -> torch.Tensor:
        """What the first ``n_queries`` tokens (default: all) gather, (n, n_queries, width)."""
        n, n_tokens, width = tokens.shape
        heads = self.qkv(tokens).view(n, n_tokens, 3, self.n_heads, width // self.n_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (n, n_heads, n_tokens, width / n_heads)
        rate = self.dropout if self.training else 0.0
        gathered = functional.scaled_dot_product_attention(query[:, :, :n_queries], key, value, dropout_p=rate)
        merged: torch.Tensor = self.merge(gathered.transpose(1, 2).flatten(2))
        return merged


class TransformerBlock(nn.Module):
    """A pre-norm block: attention, then a feed-forward part with a ReGLU gate."""

    def __init__(self, width: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        hidden = width * 4 // 3
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, n_heads, dropout)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * hidden)
        self.dropout = nn.Dropout(dropout)
        self.contract = nn.Linear(hidden, width)

    def forward(self, tokens: torch.Tensor, n_queries: int | None = None) -> torch.Tensor:
        """The first ``n_queries`` tokens (default: all) after the block, (n, n_queries, width)."""
        tokens = tokens[:, :n_queries] + self.attention(self.attention_norm(tokens), n_queries)
        gated, gate = self.expand(self.feed_forward_norm(tokens)).chunk(2, dim=-1)
        hidden: torch.Tensor = self.contract(self.dropout(gated * torch.relu(gate)))
        return tokens + hidden


class FTTransformer(nn.Module):
    """Feature tokens and [CLS], pre-norm blocks, LayerNorm and ReLU of [CLS], then a linear head.

    After Gorishniy et al. (2021), for numerical features. The paper gives the 128 columns of the representation and no
    more; two blocks, eight heads and dropout 0.1 are chosen. Only [CLS] leaves the last block, so that block
    computes no other token.

    Args:
        n_features: Columns of the input.
        n_classes: Columns of the logits.
        width: Columns of a token, and of the representation.
        n_blocks: Transformer blocks.
        n_heads: Heads of the attention; they divide the width.
        dropout: Share of attention weights and of hidden units dropped in train mode.

    Raises:
        InputError: A width that the heads cannot share.

    Example:
        >>> model = FTTransformer(28).eval()
        >>> rows = torch.zeros(4, 28)
        >>> tuple(model(rows).shape), tuple(model.penultimate(rows).shape)
        ((4, 2), (4, 128))
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int = 2,
        width: int = 128,
        n_blocks: int = 2,
        n_heads: int = 8,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if width % n_heads:
            raise InputError(f"width must be a multiple of n_heads; got {width} and {n_heads}. Change one of them.")
        self.tokenizer = FeatureTokenizer(n_features, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, n_heads, dropout) for _ in range(n_blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (n, n_classes) of rows (n, n_features)."""
        logits: torch.Tensor = self.head(self.penultimate(x))
        return logits

    def penultimate(self, x: torch.Tensor) -> torch.Tensor:
        """The representation of each row: the final [CLS] token, normalised and after its ReLU, (n, width)."""
        tokens = self.tokenizer(x)
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        tokens = self.blocks[-1](tokens, n_queries=1)
        return torch.relu(self.norm(tokens[:, 0]))
