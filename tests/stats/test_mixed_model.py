import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ruler.core.errors import InputError
from ruler.stats import fit_random_intercept, mixed_model

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "mixed_model_cases.json").read_text())
LME4 = json.loads((GOLDEN / "mixed_model_lme4.json").read_text())["fits"]


@pytest.mark.parametrize("name", CASES)
def test_equals_lme4(name):
    case, expected = CASES[name], LME4[name]
    fit = fit_random_intercept(case["values"], case["groups"], case["null"])
    assert fit.intercept - case["null"] == pytest.approx(expected["intercept"] - case["null"], rel=1e-7, abs=1e-12)
    assert fit.standard_error == pytest.approx(expected["standard_error"], rel=1e-6)
    assert fit.z == pytest.approx(expected["z"], rel=1e-6)
    assert fit.p_value == pytest.approx(expected["p_value"], rel=1e-5)
    assert fit.variance_within == pytest.approx(expected["variance_within"], rel=1e-6)
    assert fit.variance_between == pytest.approx(
        expected["variance_between"], rel=1e-5, abs=1e-12 * fit.variance_within
    )
    assert fit.icc == pytest.approx(expected["icc"], rel=1e-5, abs=1e-12)
    assert (fit.is_singular, fit.has_converged) == (expected["is_singular"], True)
    assert fit.note.startswith("singular fit") == expected["is_singular"]
    assert (fit.n, fit.n_groups) == (len(case["values"]), len(set(case["groups"])))


def test_golden_cases_cover_both_outcomes():
    assert sum(fit["is_singular"] for fit in LME4.values()) == 2
    assert set(LME4) == set(CASES)


@given(
    seed=st.integers(0, 10_000),
    n_groups=st.integers(2, 12),
    n_each=st.integers(2, 12),
    spread=st.floats(0.0, 30.0),
)
@settings(max_examples=60, deadline=None)
def test_balanced_fit_is_the_analysis_of_variance(seed, n_groups, n_each, spread):
    rng = np.random.default_rng(seed)
    table = spread * rng.standard_normal((n_groups, 1)) + rng.standard_normal((n_groups, n_each))
    fit = fit_random_intercept(table.ravel(), np.repeat(np.arange(n_groups), n_each))
    mean_square_between = n_each * table.mean(axis=1).var(ddof=1)
    mean_square_within = table.var(axis=1, ddof=1).mean()
    if mean_square_between > mean_square_within:
        between = (mean_square_between - mean_square_within) / n_each
        assert fit.variance_between == pytest.approx(between, rel=1e-6, abs=1e-9)
        assert fit.variance_within == pytest.approx(mean_square_within, rel=1e-8)
        assert fit.standard_error == pytest.approx(math.sqrt(mean_square_between / table.size), rel=1e-8)
    else:
        assert fit.variance_between == 0.0
        assert fit.is_singular
        assert fit.standard_error == pytest.approx(math.sqrt(table.var(ddof=1) / table.size), rel=1e-10)
    assert fit.intercept == pytest.approx(table.mean(), abs=1e-10)


@pytest.mark.parametrize("scale", [1e-100, 1e-4, 1.0, 1e90])
def test_scale_and_shift_carry_over(scale):
    case = CASES["unbalanced"]
    values = np.array(case["values"])
    plain = fit_random_intercept(values, case["groups"], null=0.1)
    moved = fit_random_intercept(scale * (values + 3.0), case["groups"], null=scale * 3.1)
    assert moved.z == pytest.approx(plain.z, rel=1e-8)
    assert moved.icc == pytest.approx(plain.icc, rel=1e-8)
    assert moved.standard_error == pytest.approx(scale * plain.standard_error, rel=1e-8)


def test_order_and_labels_do_not_matter():
    case = CASES["unbalanced"]
    order = np.random.default_rng(0).permutation(len(case["values"]))
    values, groups = (
        np.array(case["values"])[order],
        np.array([int(g[1:]) + 7 for g in case["groups"]])[order],
    )
    expected = fit_random_intercept(case["values"], case["groups"])
    assert fit_random_intercept(values, groups).standard_error == pytest.approx(expected.standard_error, rel=1e-12)


def test_equal_values_within_groups_are_said_to_be_singular():
    fit = fit_random_intercept([0.1] * 3 + [0.4] * 3 + [0.7] * 2, [0, 0, 0, 1, 1, 1, 2, 2])
    assert (fit.is_singular, fit.has_converged, fit.icc, fit.variance_within) == (True, True, 1.0, 0.0)
    assert fit.note == "singular fit: the values of a group are all equal, so that the variance within groups is zero"
    assert fit.intercept == pytest.approx(0.4)
    assert fit.standard_error == pytest.approx(0.3 / math.sqrt(3))


def test_clustering_within_a_hair_of_perfect_is_fitted():
    values = np.repeat([0.1, 0.4, 0.7], 4) + 1e-9 * np.tile([-1, 1, -1, 1], 3)
    fit = fit_random_intercept(values, np.repeat([0, 1, 2], 4))
    assert (fit.is_singular, fit.has_converged, fit.note) == (False, True, "")
    assert fit.standard_error == pytest.approx(0.3 / math.sqrt(3), rel=1e-9)
    assert fit.variance_within == pytest.approx(4e-18 / 3, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "groups", "note"),
    [
        ([0.3, 0.3, 0.3, 0.3], [0, 0, 1, 1], "all values are equal"),
        ([0.1, 0.2, 0.3], [0, 0, 0], "one group only"),
        ([0.1, 0.2, 0.3], [0, 1, 2], "every group holds one value"),
        ([0.1], ["a"], "all values are equal"),
    ],
)
def test_data_that_cannot_carry_the_model_give_nan_and_a_reason(values, groups, note):
    fit = fit_random_intercept(values, groups)
    assert note in fit.note
    assert (fit.is_singular, fit.has_converged) == (True, False)
    assert np.isnan([fit.standard_error, fit.z, fit.p_value, fit.icc, fit.variance_between]).all()
    assert fit.intercept == pytest.approx(np.mean(values))


def test_a_maximum_that_is_not_found_is_said(monkeypatch):
    monkeypatch.setattr(mixed_model, "RATIOS", np.array([0.0, 1e-6, 1e-5]))
    fit = fit_random_intercept(CASES["icc_0.95"]["values"], CASES["icc_0.95"]["groups"])
    assert not fit.has_converged
    assert "do not use this fit" in fit.note


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="groups must be one label per value, shape \\(3,\\); got shape \\(2,\\)"):
        fit_random_intercept([1.0, 2.0, 3.0], ["a", "b"])
    with pytest.raises(InputError, match="values must be finite; got NaN or inf in 1 of 3 values"):
        fit_random_intercept([1.0, math.nan, 3.0], ["a", "b", "b"])


@pytest.mark.parametrize("ratio", [3e-7, 2e-6, 0.01, 5.0])
def test_balanced_groups_have_their_mean_squares_whatever_the_ratio(ratio):
    """Restricted likelihood: (MSB / MSW - 1) / n, also where the groups hardly differ."""
    residuals, places = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.array([-3.0, -1.0, 1.0, 3.0])
    within = 4 * (residuals**2).sum() / (4 * 4)
    places *= np.sqrt(within * (1 + 5 * ratio) / (5 * (places**2).sum() / 3))
    found = fit_random_intercept((places[:, None] + residuals).ravel(), np.repeat(np.arange(4), 5))
    assert found.variance_within == pytest.approx(within)
    assert found.variance_between == pytest.approx(ratio * within, rel=1e-6)
