"""What the forward method of a model takes."""

import numpy as np
import pytest
import torch
from tests.embeddings.cases import assert_close
from torch import nn
from torch.utils.data import TensorDataset

from ruler.core.errors import InputError
from ruler.embeddings import embed


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (torch.empty(0, 5), "data must hold at least one record; got 0"),
        ([], "data must hold at least one record; got 0"),
        (torch.tensor(3.0), "data must have one row per record; got a single number"),
        (7, "data must be a tensor, an array, .* got int"),
        ("abc", "got str"),
        (["some text"], "data must be made of numbers; got str .* Tokenise texts first"),
        (np.array([["a"]]), "data must be made of numbers; got ndarray"),
        ({"y": torch.ones(2, 5)}, r"model's inputs \(x\) as keys; got y\. Rename"),
        ([torch.ones(5), torch.ones(4)], r"records must have equal shapes; got \(4,\) and \(5,\)"),
        ([{"x": torch.ones(5)}, {"x": torch.ones(5, 1)}], "records must have equal shapes"),
        ([{"x": torch.ones(5)}, torch.ones(5)], "records must all have the same parts"),
    ],
)
def test_data_that_cannot_be_fed_is_refused(model, data, message):
    with pytest.raises(InputError, match=message):
        embed(model, data)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)

    def forward(self, x, gate, scale=None):
        return self.fc(x * gate if scale is None else x * gate * scale)


def test_parts_are_fed_by_the_signature_of_forward(rows):
    model, gate = TwoInputs(), torch.rand(23, 5)
    expected = (rows * gate).numpy()
    labels = torch.zeros(23)
    assert_close(embed(model, (rows, gate)).values, expected)
    assert_close(embed(model, (rows, gate, labels)).values, expected)
    assert_close(embed(model, TensorDataset(rows, gate, labels)).values, expected)
    assert_close(embed(model, {"gate": gate, "x": rows, "scale": 2 * gate}).values, expected * 2 * gate.numpy())


def test_parts_that_do_not_fit_forward_are_refused(rows):
    model, gate = TwoInputs(), torch.rand(23, 5)
    with pytest.raises(InputError, match=r"must hold the model's inputs \(x, gate\); got tuples of 1"):
        embed(model, (rows,))
    with pytest.raises(
        InputError, match="unambiguous; got tuples of 4 for a forward with the optional parameters scale"
    ):
        embed(model, (rows, gate, gate, gate))
    with pytest.raises(InputError, match=r"got 'scales'\. Did you mean 'scale'"):
        embed(model, {"x": rows, "gate": gate, "scales": gate})
    with pytest.raises(InputError, match=r"as many records in every part; got lengths \{0: 23, 1: 22\}"):
        embed(model, (rows, gate[1:]))
