"""What must hold for any embeddings: rotation, scale, order, copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import special_ortho_group

import ruler


@st.composite
def model_rows(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m, p = draw(st.integers(1, 15)), draw(st.integers(2, 60)), draw(st.integers(2, 8))
    names = ("unlearned_forget", "unlearned_retain", "oracle_forget", "oracle_retain", "original_forget")
    return {name: random.normal(size=(n if "forget" in name else m, p)) for name in names}, random


def metrics_are_equal(a, b):
    return all(a[name] == pytest.approx(b[name], abs=1e-9) for name in a)


@given(model_rows())
@settings(max_examples=40)
def test_rotation_changes_nothing(case):
    rows, random = case
    turn = special_ortho_group.rvs(rows["oracle_retain"].shape[1], random_state=random)
    assert metrics_are_equal(
        ruler.all_metrics(**rows), ruler.all_metrics(**{name: values @ turn for name, values in rows.items()})
    )


@given(model_rows())
@settings(max_examples=40)
def test_row_scale_changes_nothing(case):
    rows, random = case
    scaled = {name: values * random.uniform(1e-3, 1e3, size=(len(values), 1)) for name, values in rows.items()}
    assert metrics_are_equal(ruler.all_metrics(**rows), ruler.all_metrics(**scaled))


@given(model_rows())
@settings(max_examples=40)
def test_record_order_changes_nothing(case):
    rows, random = case
    forget = random.permutation(len(rows["oracle_forget"]))
    retain = random.permutation(len(rows["oracle_retain"]))
    shuffled = {name: values[forget if "forget" in name else retain] for name, values in rows.items()}
    assert metrics_are_equal(ruler.all_metrics(**rows), ruler.all_metrics(**shuffled))


@given(model_rows())
@settings(max_examples=40)
def test_copies_of_retain_records_rank_highest(case):
    rows, random = case
    retain = rows["unlearned_retain"]
    copies = retain[random.integers(0, len(retain), 5)]
    assert ruler.m4(copies, retain) == 1.0


@given(model_rows())
@settings(max_examples=40)
def test_an_unlearned_model_that_is_the_oracle_is_perfect(case):
    rows, _ = case
    found = ruler.all_metrics(
        rows["oracle_forget"],
        rows["oracle_retain"],
        rows["oracle_forget"],
        rows["oracle_retain"],
        rows["oracle_forget"],
    )
    assert (found["m1"], found["m2"], found["m3"]) == (1.0, 0.0, 0.0)
