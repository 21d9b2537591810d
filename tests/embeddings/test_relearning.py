"""One epoch of training, against the same steps written out."""

import copy

import numpy as np
import pytest
import torch
from tests.embeddings.bundle.language import build
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import ruler.core.progress
from ruler.core.errors import InputError
from ruler.embeddings import embed, losses
from ruler.embeddings.relearning import choose_batch, relearn_records


def make_tokens(n, seed, n_prompt=3, n_completion=4):
    tokens = torch.randint(6, 60, (n, n_prompt + n_completion), generator=torch.Generator().manual_seed(seed))
    labels = tokens.clone()
    labels[:, :n_prompt] = -100
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def make_rows(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator)


def make_network(n_outputs=3, *ending):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, n_outputs), *ending)


def train_by_hand(model, measure, n, rate, seed):
    """Steps of AdamW without weight decay over all records in one random order; ``measure`` gives a batch's loss."""
    expected = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(expected.parameters(), lr=rate, weight_decay=0.0)
    for rows in torch.randperm(n, generator=torch.Generator().manual_seed(seed)).split(choose_batch(n)):
        optimizer.zero_grad()
        measure(expected, rows).backward()
        optimizer.step()
    return expected


def assert_same_weights(found, expected, **tolerance):
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, **tolerance)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_steps_are_those_of_adamw_over_the_chosen_records_in_one_random_order(kind):
    model, parts, chosen = build(kind), [make_tokens(50, 1), make_tokens(40, 2)], [range(5, 45), range(30)]
    before = copy.deepcopy(model.state_dict())
    found = relearn_records(
        model, list(zip(parts, chosen, strict=True)), kind=losses.TOKENS, learning_rate=1e-2, seed=3
    )
    whole = {
        key: torch.cat([part[key][list(rows)] for part, rows in zip(parts, chosen, strict=True)]) for key in parts[0]
    }
    expected = train_by_hand(
        model, lambda one, rows: one(**{key: value[rows] for key, value in whole.items()}).loss, 70, 1e-2, 3
    )
    assert choose_batch(70) == 2
    assert_same_weights(found, expected, rtol=1e-4, atol=1e-5)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert not found.training


def test_any_classifier_can_relearn():
    model, (rows, labels) = make_network(), make_rows(40)
    found = relearn_records(model, [((rows, labels), range(40))], kind=losses.CROSS_ENTROPY, seed=1)
    expected = train_by_hand(
        model, lambda one, some: functional.cross_entropy(one(rows[some]), labels[some]), 40, 1e-3, 1
    )
    assert_same_weights(found, expected)


@pytest.mark.parametrize(
    ("kind", "n_outputs", "labels", "measure"),
    [
        (losses.BINARY, 1, torch.arange(40) % 2, functional.binary_cross_entropy_with_logits),
        (losses.MULTI_LABEL, 3, (torch.arange(120) % 2).reshape(40, 3), functional.binary_cross_entropy_with_logits),
        (losses.SQUARED_ERROR, 1, torch.linspace(0, 1, 40), functional.mse_loss),
        (losses.SQUARED_ERROR, 3, torch.linspace(0, 1, 120).reshape(40, 3), functional.mse_loss),
    ],
)
def test_the_loss_is_the_one_that_is_read(kind, n_outputs, labels, measure):
    model, rows = make_network(n_outputs), make_rows(40)[0]
    found = relearn_records(model, [((rows, labels), range(40))], kind=kind)
    expected = train_by_hand(
        model, lambda one, some: measure(one(rows[some]).reshape(labels[some].shape), labels[some].float()), 40, 1e-3, 0
    )
    assert_same_weights(found, expected)


@pytest.mark.parametrize(
    ("kind", "n_outputs", "ending", "labels"),
    [
        (losses.CROSS_ENTROPY, 3, nn.Softmax(dim=1), torch.arange(40) % 3),
        (losses.BINARY, 1, nn.Sigmoid(), torch.arange(40) % 2),
    ],
)
def test_probabilities_are_trained_like_logits(kind, n_outputs, ending, labels):
    data = [((make_rows(40)[0], labels), range(40))]
    found = relearn_records(make_network(n_outputs, ending), data, kind=kind)
    assert_same_weights(found, relearn_records(make_network(n_outputs), data, kind=kind), rtol=1e-4, atol=1e-5)


def test_what_is_trained_on_is_learned_and_only_the_seed_decides():
    model, records = build("t5"), make_tokens(64, 1)
    rows = [(records, range(64))]
    found = [relearn_records(model, rows, kind=losses.TOKENS, learning_rate=1e-2, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (list(one.state_dict().values()) for one in found)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert embed(found[0], records).losses.mean() < embed(model, records).losses.mean() - 0.2


def test_records_of_unequal_length_are_padded():
    model, padded = build("llama"), make_tokens(4, 1)
    short = {key: value[:2, :5] for key, value in padded.items()}
    lists = [
        {key: value[row] for key, value in part.items()}
        for part in (padded, short)
        for row in range(len(part["labels"]))
    ]
    found = relearn_records(model, [(lists, range(6))], kind=losses.TOKENS, learning_rate=1e-2)
    parts = [(padded, range(4)), (short, range(2))]
    again = relearn_records(model, parts, kind=losses.TOKENS, learning_rate=1e-2)
    assert_same_weights(found, again, rtol=1e-5, atol=1e-6)


def test_every_row_of_a_loaders_batches_is_found():
    rows, labels = make_rows(40)
    loader, chosen = DataLoader(TensorDataset(rows, labels), batch_size=7), np.array([39, 3, 20, 6])
    found = relearn_records(make_network(), [(loader, chosen)], kind=losses.CROSS_ENTROPY)
    expected = relearn_records(make_network(), [((rows, labels), chosen)], kind=losses.CROSS_ENTROPY)
    assert_same_weights(found, expected)


def test_progress_is_shown_if_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(ruler.core.progress, "SECONDS_PER_LINE", 0.0)
    for is_shown in (False, True):
        relearn_records(make_network(), [(make_rows(40), range(40))], kind=losses.CROSS_ENTROPY, progress=is_shown)
        assert ("relearning: 50%" in capsys.readouterr().err) == is_shown


def test_what_cannot_relearn_is_refused():
    records, (rows, labels) = make_tokens(2, 1), make_rows(4)
    with pytest.raises(InputError, match="a model with whole weights; got Flatten"):
        relearn_records(nn.Flatten(), [((rows, labels), range(4))], kind=losses.CROSS_ENTROPY)
    with pytest.raises(InputError, match="labels of all forget and held-out records"):
        relearn_records(build("gpt2"), [({"input_ids": records["input_ids"]}, range(2))], kind=losses.TOKENS)
    with pytest.raises(InputError, match="a finite loss at every step; got NaN"):
        relearn_records(make_network(), [((rows * torch.nan, labels), range(4))], kind=losses.CROSS_ENTROPY)
