import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ruler.core.errors import InputError
from ruler.metrics.peers.linear_probe import fit_logistic, linear_probe

RNG = np.random.default_rng(1)


def test_coefficients_are_those_of_scikit_learn():
    layers = RNG.normal(size=(3, 50, 70)) * np.array([0.2, 1, 5])[:, None, None]
    is_first = np.arange(50) < 15
    layers[:, is_first, 0] += 1
    with_constant = np.concatenate([layers, np.ones((3, 50, 1))], axis=2)
    duals = fit_logistic(with_constant @ with_constant.transpose(0, 2, 1), is_first, 1.0)
    for rows, own in zip(layers, duals, strict=True):
        known = LogisticRegression(solver="liblinear", C=1.0, class_weight="balanced", tol=1e-9, max_iter=5000)
        known.fit(rows, is_first)
        found = np.concatenate([rows, np.ones((50, 1))], axis=1).T @ own
        np.testing.assert_allclose(found, [*known.coef_[0], known.intercept_[0]], atol=1e-4)


def test_torch_fits_the_same_probes():
    forget, held_out = ({name: RNG.normal(size=(n, 12)) for name in "ab"} for n in (30, 40))
    expected = linear_probe(forget, held_out)
    found = linear_probe(forget, held_out, device="cpu")
    assert found.layers == pytest.approx(expected.layers, abs=1e-9)


def test_unrelated_states_are_at_chance_and_shifted_ones_are_told_apart():
    noise = [linear_probe({"a": RNG.normal(size=(60, 8))}, {"a": RNG.normal(size=(60, 8))}).value for _ in range(12)]
    assert abs(np.mean(noise) - 0.5) < 0.06
    assert linear_probe({"a": RNG.normal(2, 1, size=(60, 8))}, {"a": RNG.normal(size=(60, 8))}).value > 0.99


def test_whole_groups_are_left_out():
    """Authors that differ, but not by side: records of the same author would give it away."""
    authors = np.repeat(np.arange(20), 10)
    found = {"by record": [], "by author": []}
    for _ in range(6):
        centres = RNG.normal(size=(20, 30)) * 3
        rows = centres[authors] + RNG.normal(size=(200, 30))
        forget, held_out = {"a": rows[:100]}, {"a": rows[100:]}
        found["by record"].append(linear_probe(forget, held_out).value)
        found["by author"].append(linear_probe(forget, held_out, authors[:100], authors[100:]).value)
    assert np.mean(found["by record"]) > 0.95
    assert np.mean(found["by author"]) < 0.7


def test_aggregate_is_the_mean_over_layers():
    forget = {"a": RNG.normal(size=(20, 3)), "b": RNG.normal(3, 1, size=(20, 3))}
    held_out = {"a": RNG.normal(size=(30, 3)), "b": RNG.normal(size=(30, 3))}
    found = linear_probe(forget, held_out)
    assert list(found.layers) == ["a", "b"]
    assert found.value == pytest.approx(np.mean(list(found.layers.values())))
    assert found.layers["b"] > found.layers["a"]


def test_what_cannot_be_probed():
    rows = {"a": RNG.normal(size=(6, 2))}
    one = linear_probe(rows, rows, ["ann"] * 6, list("abcdef"))
    assert math.isnan(one.value)
    assert "at least two groups" in one.reason
    with pytest.raises(InputError, match="groups must be one per record"):
        linear_probe(rows, rows, ["ann"] * 5)
    with pytest.raises(InputError, match="same layers on both sides"):
        linear_probe(rows, {"b": rows["a"]})


def test_fits_are_stationary_whatever_the_scale():
    """At the optimum of penalised logistic regression each dual is the weighted residual over the penalty."""
    rows = RNG.normal(size=(2, 12, 3)) * np.array([1, 30])[:, None, None]
    is_first = np.arange(12) < 4
    grams = rows @ rows.transpose(0, 2, 1)
    duals = fit_logistic(grams, is_first, 0.5)
    chance = 1 / (1 + np.exp(-np.einsum("lij,lj->li", grams, duals)))
    weight = np.where(is_first, 12 / 8, 12 / 16)
    np.testing.assert_allclose(0.5 * duals, weight * (is_first - chance), atol=1e-6)


def test_a_column_that_never_varies_changes_nothing():
    forget, held_out = RNG.normal(size=(20, 3)), RNG.normal(size=(30, 3))
    longer = [{"a": np.column_stack([rows, np.full(len(rows), 7.0)])} for rows in (forget, held_out)]
    assert linear_probe(*longer).value == linear_probe({"a": forget}, {"a": held_out}).value
