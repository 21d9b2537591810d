"""One epoch of training, against the same steps written out."""

import copy

import pytest
import torch
from tests.embeddings.bundle.language import build

from ruler.core.errors import InputError
from ruler.embeddings import embed
from ruler.embeddings.language.relearn import relearn_records


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
