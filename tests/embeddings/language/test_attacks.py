"""Weights of four bits, against their definition."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ruler.core.errors import InputError
from ruler.embeddings.language.attacks import NF4, quantize_model, round_to_nf4


def test_the_values_are_quantiles_of_the_normal_distribution():
    """As NF4 is defined: evenly spaced quantiles of either half, with zero, scaled to one."""
    offset = 0.9677083
    above = norm.ppf(np.linspace(offset, 0.5, 9)[:-1])
    below = -norm.ppf(np.linspace(offset, 0.5, 8)[:-1])
    expected = np.sort(np.concatenate([above, [0.0], below])) / above.max()
    np.testing.assert_allclose(NF4, expected, atol=1e-6)


def test_every_weight_becomes_the_nearest_value_of_its_block():
    weights = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    found = round_to_nf4(weights, block=64).flatten()
    for start in range(0, 200, 64):
        part = weights.flatten()[start : start + 64]
        values = part.abs().max() * torch.tensor(NF4)
        nearest = values[(part[:, None] - values).abs().argmin(dim=1)]
        torch.testing.assert_close(found[start : start + 64], nearest)
    assert round_to_nf4(torch.zeros(3, 3)).eq(0).all()
    assert round_to_nf4(weights.bfloat16()).dtype is torch.bfloat16


@pytest.mark.parametrize(
    "model",
    [
        GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)),
        LlamaForCausalLM(
            LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
        ),
    ],
    ids=["gpt2", "llama"],
)
def test_blocks_are_rounded_and_embeddings_head_and_norms_are_not(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rounded = quantize_model(model).state_dict()
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    changed = {name for name, value in rounded.items() if not value.equal(before[name])}
    layers = {name for name in before if name.endswith("weight") and any(part in name for part in ("attn.", "mlp."))}
    assert changed == layers


def test_a_model_without_linear_layers_is_refused():
    with pytest.raises(InputError, match="must have linear layers"):
        quantize_model(nn.Sequential(nn.ReLU()))
