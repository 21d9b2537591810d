"""The FT-Transformer against the paper's formulas written out, with every token computed in every block."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.models.ft_transformer import Attention, FTTransformer


def attend_plainly(attention, tokens):
    """Softmax(Q K^T / sqrt(d)) V, a head at a time."""
    width, size = tokens.shape[2], tokens.shape[2] // attention.n_heads
    query, key, value = (
        tokens @ w.T + b
        for w, b in zip(attention.qkv.weight.split(width), attention.qkv.bias.split(width), strict=True)
    )
    heads = []
    for start in range(0, width, size):
        q, k, v = (part[:, :, start : start + size] for part in (query, key, value))
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(size), dim=-1) @ v)
    return torch.cat(heads, dim=2) @ attention.merge.weight.T + attention.merge.bias


def represent_plainly(model, rows):
    weight, bias = model.tokenizer.weight, model.tokenizer.bias
    features = rows[:, :, None] * weight + bias[1:]
    tokens = torch.cat([bias[:1].expand(len(rows), 1, -1), features], dim=1)
    for block in model.blocks:
        tokens = tokens + attend_plainly(block.attention, block.attention_norm(tokens))
        gated, gate = block.expand(block.feed_forward_norm(tokens)).chunk(2, dim=-1)
        tokens = tokens + block.contract(gated * gate.clamp(min=0))
    return model.norm(tokens)[:, 0].clamp(min=0)


@pytest.fixture
def model():
    torch.manual_seed(1)
    return FTTransformer(7, 3, width=32, n_blocks=3, n_heads=4).eval()


def test_representation_is_the_formulas_written_out(model) -> None:
    rows = torch.randn(5, 7)
    with torch.no_grad():
        torch.testing.assert_close(model.penultimate(rows), represent_plainly(model, rows), rtol=1e-4, atol=1e-5)


def test_attention_equals_torchs_own_module() -> None:
    ours = Attention(32, 4, dropout=0.0)
    theirs = nn.MultiheadAttention(32, 4, batch_first=True)
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.qkv.weight.data, ours.qkv.bias.data
    theirs.out_proj.weight.data, theirs.out_proj.bias.data = ours.merge.weight.data, ours.merge.bias.data
    tokens = torch.randn(3, 6, 32)
    with torch.no_grad():
        expected, _ = theirs(tokens, tokens, tokens)
        torch.testing.assert_close(ours(tokens), expected, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours(tokens, n_queries=2), expected[:, :2], rtol=1e-4, atol=1e-6)


def test_gradients_are_those_of_the_formulas(model) -> None:
    rows = torch.randn(5, 7)
    grads = []
    for represent in (model.penultimate, lambda x: represent_plainly(model, x)):
        model.zero_grad()
        functional.cross_entropy(model.head(represent(rows)), torch.arange(5) % 3).backward()
        grads.append({name: value.grad.clone() for name, value in model.named_parameters()})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-3, atol=1e-5, msg=name)


def test_features_have_tokens_of_their_own(model) -> None:
    rows = torch.randn(4, 7)
    with torch.no_grad():
        assert not torch.allclose(model(rows), model(rows.flip(1)), atol=1e-3)


def test_dropout_acts_in_train_mode_only() -> None:
    model, rows = FTTransformer(7, dropout=0.5), torch.randn(4, 7)
    assert not torch.equal(model(rows), model(rows))
    model.eval()
    assert torch.equal(model(rows), model(rows))


def test_heads_must_share_the_width() -> None:
    with pytest.raises(InputError, match="width must be a multiple of n_heads; got 100 and 8"):
        FTTransformer(5, width=100)
