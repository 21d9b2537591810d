"""embed: plain torch modules, their modes and devices, and every kind of data."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embeddings.cases import PaperMLP, assert_close, penultimate
from torch import nn

from ruler.core.errors import InputError
from ruler.embeddings import embed


def test_paper_mlp_in_train_mode_gives_the_second_relu(model, rows):
    model.train()
    result = embed(model, rows)
    assert_close(result.values, penultimate(model, rows))
    assert result.layer == "net.6:input"
    assert result.values.dtype == np.float32
    assert result.ids.tolist() == list(range(23))


@given(batch_size=st.integers(1, 40), n=st.integers(1, 30))
@settings(max_examples=20, deadline=None)
def test_batch_size_changes_nothing(batch_size, n):
    torch.manual_seed(0)
    model, x = PaperMLP(), torch.randn(n, 5)
    assert_close(embed(model, x, batch_size=batch_size).values, penultimate(model, x))


def test_nan_rows_are_counted(model, rows):
    rows[[3, 20], 1] = float("nan")
    with pytest.raises(InputError, match="embeddings must be finite; got NaN or inf in 2 of 23 rows"):
        embed(model, rows)


def test_infinite_rows_are_counted(rows):
    with pytest.raises(InputError, match="NaN or inf in 23 of 23 rows"):
        embed(nn.Sequential(nn.Threshold(1e9, float("inf")), nn.Linear(5, 2)), rows)


def test_float64_model_gives_float64_and_casts_its_input(model, rows):
    result = embed(model.double(), rows.numpy())
    assert result.values.dtype == np.float64
    np.testing.assert_allclose(result.values, penultimate(model, rows.double()), rtol=1e-12)


def test_half_precision_gives_float32(model, rows):
    assert embed(model.bfloat16(), rows).values.dtype == np.float32


def test_batch_size_must_be_positive(model, rows):
    with pytest.raises(InputError, match="batch_size must be a whole number of at least 1; got 0"):
        embed(model, rows, batch_size=0)


def test_progress_is_silent_when_not_a_terminal(model, rows, capfd):
    embed(model, rows, progress=True)
    assert capfd.readouterr() == ("", "")
