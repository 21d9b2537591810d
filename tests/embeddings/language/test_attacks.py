"""One epoch of training, against the same steps written out."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import norm
from tests.embeddings.bundle.language import build
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ruler.core.errors import InputError
from ruler.embeddings import embed
from ruler.embeddings.language.attacks import NF4, quantize_model, relearn_records, round_to_nf4


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


def make_records(n, seed, n_prompt=3, n_completion=4):
    tokens = torch.randint(6, 60, (n, n_prompt + n_completion), generator=torch.Generator().manual_seed(seed))
    labels = tokens.clone()
    labels[:, :n_prompt] = -100
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_steps_are_those_of_adamw_over_both_sets_in_one_random_order(kind):
    model, parts = build(kind), [make_records(5, 1), make_records(4, 2)]
    before = copy.deepcopy(model.state_dict())
    found = relearn_records(model, parts, learning_rate=1e-2, batch_size=4, seed=3)
    whole = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    expected = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(expected.parameters(), lr=1e-2, weight_decay=0.0)
    for rows in order.split(4):
        optimizer.zero_grad()
        expected(**{key: value[rows] for key, value in whole.items()}).loss.backward()
        optimizer.step()
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not found.training


def test_what_is_trained_on_is_learned_and_nothing_depends_on_chance():
    model, records = build("t5"), make_records(24, 1)
    found = [relearn_records(model, [records], learning_rate=1e-2, batch_size=8) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*(one.state_dict().values() for one in found), strict=True))
    assert embed(found[0], records).losses.mean() < embed(model, records).losses.mean() - 0.2


def test_records_of_unequal_length_are_padded():
    model = build("llama")
    padded = make_records(4, 1)
    short = {key: value[:2, :5] for key, value in padded.items()}
    lists = [
        {key: value[row] for key, value in part.items()}
        for part in (padded, short)
        for row in range(len(part["labels"]))
    ]
    found = relearn_records(model, [lists], batch_size=100, learning_rate=1e-2)
    again = relearn_records(model, [padded, short], batch_size=100, learning_rate=1e-2)
    for name, value in found.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_other_models_and_records_without_labels_are_refused():
    with pytest.raises(InputError, match="Hugging Face model with whole weights; got Linear"):
        relearn_records(torch.nn.Linear(2, 2), [torch.eye(2)])
    records = make_records(2, 1)
    with pytest.raises(InputError, match="labels of all forget and held-out records"):
        relearn_records(build("gpt2"), [{"input_ids": records["input_ids"]}])
