"""Losses of embed: every kind of head against torch's own loss functions, from the pass that gives the rows."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ruler.core.errors import InputError
from ruler.embeddings import embed, read_model

N = 23


@pytest.fixture
def rows():
    return torch.randn(N, 5, generator=torch.Generator().manual_seed(1))


def build(n_outputs, *more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, n_outputs), *more)


def outputs_of(model, rows):
    with torch.no_grad():
        return model.eval()(rows).double()


def classes(n_classes=3):
    return torch.arange(N) % n_classes


def floats(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


HEADS = {
    "classes": (build(3), classes(), lambda z, y: functional.cross_entropy(z, y, reduction="none")),
    "classes as bytes": (
        build(3),
        classes().byte(),
        lambda z, y: functional.cross_entropy(z, y.long(), reduction="none"),
    ),
    "classes in a column": (
        build(3),
        classes()[:, None],
        lambda z, y: functional.cross_entropy(z, y[:, 0], reduction="none"),
    ),
    "classes as floats": (
        build(3),
        classes().float(),
        lambda z, y: functional.cross_entropy(z, y.long(), reduction="none"),
    ),
    "log-softmax": (build(3, nn.LogSoftmax(1)), classes(), lambda z, y: functional.nll_loss(z, y, reduction="none")),
    "softmax": (build(3, nn.Softmax(1)), classes(), lambda z, y: functional.nll_loss(z.log(), y, reduction="none")),
    "one logit": (
        build(1),
        classes(2),
        lambda z, y: functional.binary_cross_entropy_with_logits(z[:, 0], y.double(), reduction="none"),
    ),
    "one logit, truth values": (
        build(1),
        classes(2).bool(),
        lambda z, y: functional.binary_cross_entropy_with_logits(z[:, 0], y.double(), reduction="none"),
    ),
    "one logit, floats 0 and 1": (
        build(1),
        classes(2).float()[:, None],
        lambda z, y: functional.binary_cross_entropy_with_logits(z, y.double(), reduction="none")[:, 0],
    ),
    "sigmoid": (
        build(1, nn.Sigmoid()),
        classes(2),
        lambda z, y: functional.binary_cross_entropy(z[:, 0], y.double(), reduction="none"),
    ),
    "no dimension": (
        build(1, nn.Flatten(0)),
        classes(2),
        lambda z, y: functional.binary_cross_entropy_with_logits(z, y.double(), reduction="none"),
    ),
    "several labels": (
        build(4),
        (floats(N, 4) > 0).float(),
        lambda z, y: functional.binary_cross_entropy_with_logits(z, y.double(), reduction="none").mean(1),
    ),
    "several labels, whole numbers": (
        build(4),
        (floats(N, 4) > 0).long(),
        lambda z, y: functional.binary_cross_entropy_with_logits(z, y.double(), reduction="none").mean(1),
    ),
    "regression": (build(1), floats(N), lambda z, y: functional.mse_loss(z[:, 0], y.double(), reduction="none")),
    "regression in a column": (
        build(1),
        floats(N, 1),
        lambda z, y: functional.mse_loss(z, y.double(), reduction="none")[:, 0],
    ),
    "regression of several": (
        build(3),
        floats(N, 3),
        lambda z, y: functional.mse_loss(z, y.double(), reduction="none").mean(1),
    ),
    "regression of maps": (
        build(6, nn.Unflatten(1, (2, 3))),
        floats(N, 2, 3),
        lambda z, y: functional.mse_loss(z, y.double(), reduction="none").mean((1, 2)),
    ),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("batch_size", [4, 256])
def test_losses_are_those_of_torch(rows, head, batch_size):
    model, labels, loss = HEADS[head]
    found = embed(model, (rows, labels), layer="0", batch_size=batch_size)
    assert found.losses.dtype == np.float64
    np.testing.assert_allclose(found.losses, loss(outputs_of(model, rows), labels).numpy(), rtol=1e-5, atol=1e-7)
    if labels.ndim == 1 or labels.shape[1] == 1:
        np.testing.assert_array_equal(found.labels, labels.numpy().reshape(-1))
    else:
        assert found.labels is None


def test_batch_size_changes_losses_by_rounding_alone(rows):
    model = build(3).double()
    found = [embed(model, (rows.double(), classes()), batch_size=size).losses for size in (1, 7, 23)]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-13)


def test_tokens_of_a_plain_module_are_not_shifted():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 11))
    tokens, labels = torch.randint(11, (9, 5)), torch.randint(11, (9, 5))
    labels[2, :4] = -100
    found = embed(model, (tokens, labels), batch_size=4)
    logits = model(tokens).detach().double()
    each = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
    np.testing.assert_allclose(found.losses, (each.sum(1) / (labels != -100).sum(1)).numpy(), rtol=1e-5)
    assert found.labels is None
    assert found.features is None


@pytest.mark.parametrize(
    ("n_outputs", "labels", "reason"),
    [
        (3, None, "The data carries no labels."),
        (3, classes(4), "For 3 outputs, labels must be classes 0 to 2; got 0 to 3."),
        (3, -100 * torch.ones(N, dtype=torch.int64), "labels must be classes 0 to 2; got -100 to -100"),
        (3, floats(N), "For 3 outputs, labels must be whole numbers or one per output"),
        (3, classes()[:, None].repeat(1, 2), r"Labels of int64 and shape \(2,\) per record do not fit outputs"),
        (1, classes(3), r"For one output, whole-number labels must be 0 and 1; got 0 to 2 \(targets of a regression"),
        (3, np.array(["a"] * N), "The labels are text"),
        (1, torch.full((N,), torch.inf), "The losses of 23 records are NaN or infinite"),
    ],
)
def test_where_there_is_no_loss_there_is_a_reason(rows, n_outputs, labels, reason):
    data = {"input": rows} if labels is None else {"input": rows, "labels": labels}
    assert embed(build(n_outputs), data).losses is None
    found = read_model(build(n_outputs), data)
    assert found.losses == {}
    assert found.hits is None
    assert re.search(reason, found.why_no_losses)


def test_a_later_batch_can_tell_that_labels_are_no_classes(rows):
    labels = torch.cat([torch.zeros(20), torch.full((3,), 0.5)])
    found = read_model(build(1), (rows, labels), batch_size=5)
    assert list(found.losses) == ["squared error"]
    assert found.hits is None
    np.testing.assert_array_equal(found.layers["3:input"].labels, labels.numpy())


def test_a_model_without_logits_has_no_loss(rows):
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 3)

        def forward(self, x):
            return {"scores": self.fc(x)}

    found = read_model(Pairs(), (rows, classes()))
    assert found.why_no_losses == "The model returns dict without logits, so it has no task loss."
    np.testing.assert_array_equal(found.layers["fc:input"].labels, classes().numpy())


def test_hits_are_the_likeliest_class(rows):
    found = read_model(build(3), (rows, classes()))
    np.testing.assert_array_equal(found.hits, (outputs_of(build(3), rows).argmax(1) == classes()).numpy())
    found = read_model(build(1), (rows, classes(2)))
    np.testing.assert_array_equal(found.hits, ((outputs_of(build(1), rows)[:, 0] > 0) == classes(2)).numpy())


class Named(Dataset):
    """Records as dicts, with all that can stand beside them."""

    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return {
            "input": self.rows[row],
            "label": int(self.labels[row]),
            "id": f"r{row}",
            "group": f"g{row // 2}",
            "strata": row % 3,
        }


KINDS = {
    "tuple": lambda rows, labels: (rows, labels),
    "tuple of arrays": lambda rows, labels: (rows.numpy(), labels.numpy()),
    "dataset": TensorDataset,
    "loader": lambda rows, labels: DataLoader(TensorDataset(rows, labels), batch_size=7),
    "dict": lambda rows, labels: {"input": rows, "labels": labels},
    "dict with a list": lambda rows, labels: {"input": rows, "label": labels.tolist()},
    "dict of lists": lambda rows, labels: {"input": rows.tolist(), "labels": labels.tolist()},
    "items": Named,
    "loader of items": lambda rows, labels: DataLoader(Named(rows, labels), batch_size=7),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_features_are_found_in_every_kind_of_data(rows, kind):
    found = embed(build(3), KINDS[kind](rows, classes()), batch_size=5)
    np.testing.assert_array_equal(found.labels, classes().numpy())
    np.testing.assert_array_equal(found.features, rows.numpy().astype(np.float64))
    expected = functional.cross_entropy(outputs_of(build(3), rows), classes(), reduction="none")
    np.testing.assert_allclose(found.losses, expected.numpy(), rtol=1e-5)


def test_of_several_further_parts_none_is_the_label(rows):
    found = read_model(build(3), TensorDataset(rows, classes(), torch.arange(N)))
    assert found.why_no_losses == "The data carries no labels."


def test_groups_and_strata_travel_with_the_records(rows):
    for data in (Named(rows, classes()), DataLoader(Named(rows, classes()), batch_size=7)):
        found = embed(build(3), data, batch_size=5)
        assert found.groups.tolist() == [f"g{row // 2}" for row in range(N)]
        assert found.strata.tolist() == [row % 3 for row in range(N)]
    whole = embed(build(3), {"input": rows, "groups": np.arange(N) // 2, "strata": ["a"] * N})
    assert whole.groups.tolist() == (np.arange(N) // 2).tolist()
    assert whole.strata.tolist() == ["a"] * N


def test_text_labels_are_kept(rows):
    names = [f"class {n}" for n in classes().tolist()]
    assert embed(build(3), {"input": rows, "label": names}).labels.tolist() == names


def test_labels_must_be_one_per_record(rows):
    with pytest.raises(InputError, match="labels must be one per record, 23 in all; got 22"):
        embed(build(3), (rows, classes()[1:]))
    with pytest.raises(InputError, match="labels must be one per record, 23 in all; got int"):
        embed(build(3), {"input": rows, "labels": 3})


def test_wide_or_whole_number_inputs_are_no_features():
    torch.manual_seed(0)
    assert embed(nn.Linear(1001, 2), torch.randn(4, 1001)).features is None
    assert embed(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)), torch.randn(4, 2, 3)).features is None
    assert (
        embed(nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2)), torch.ones(4, 2).long()).features
        is None
    )


def test_rows_labels_and_losses_come_from_one_pass_per_batch(rows):
    model, n_calls = build(3), 0

    def count(*_):
        nonlocal n_calls
        n_calls += 1

    model.register_forward_hook(count)
    embed(model, (rows, classes()), layer=["0", "1", "3:input"], batch_size=5)
    # four batches after the first, which also shows the order of the layers and that the model is stable
    assert n_calls == 4 + 3


def test_the_first_records_can_be_read_alone(rows):
    whole = read_model(build(3), (rows, classes()))
    part = read_model(build(3), DataLoader(TensorDataset(rows, classes()), batch_size=6), n_most=8)
    np.testing.assert_allclose(part.layers["3:input"].values, whole.layers["3:input"].values[:8], rtol=1e-5)
    np.testing.assert_allclose(part.losses["cross-entropy"], whole.losses["cross-entropy"][:8], rtol=1e-5)
    assert len(part.hits) == len(part.layers["3:input"].labels) == 8
