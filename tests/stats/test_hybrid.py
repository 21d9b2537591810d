import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, t

from ruler.stats import compare_with_oracles
from ruler.stats.hybrid import rank_differences


def draw_models(rng, n, n_second, n_oracles, *, gap=0.0, wobble=0.0, noise=0.5):
    """Scores of one clean model and its oracles: forget records may lie apart in all of them (``gap``)."""
    truth = rng.normal(size=n + n_second) + gap * (np.arange(n + n_second) < n)
    lean = wobble * rng.normal(size=(n_oracles + 1, 1)) * (np.arange(n + n_second) < n)
    models = truth + lean + noise * rng.normal(size=(n_oracles + 1, n + n_second))
    return models[0], models[1:]


def p_value(found):
    return 2 * t.sf(abs(found.statistic), found.freedom)


def test_the_effect_is_the_difference_of_aucs():
    model, oracles = draw_models(np.random.default_rng(0), 12, 30, 5, gap=1.0)
    found = compare_with_oracles(model, oracles, 12)
    aucs = [mannwhitneyu(row[:12], row[12:]).statistic / (12 * 30) for row in (model, *oracles)]
    assert found.value - 0.5 == pytest.approx(aucs[0] - np.mean(aucs[1:]), abs=1e-12)


def test_the_variance_has_its_three_parts():
    model, oracles = draw_models(np.random.default_rng(1), 12, 30, 6)
    found = compare_with_oracles(model, oracles, 12)
    moved = rank_differences(model, oracles)
    aucs = [mannwhitneyu(row[:12], row[12:]).statistic / (12 * 30) for row in oracles]
    parts = [moved[:12].var(ddof=1) / 12, moved[12:].var(ddof=1) / 30, np.var(aucs, ddof=1) * (1 + 1 / 6)]
    assert found.standard_error == pytest.approx(math.sqrt(sum(parts)), rel=1e-9)
    assert found.degrees_of_freedom == 5


@pytest.mark.parametrize("gap", [0.0, 1.5])
def test_records_need_not_be_exchangeable(gap):
    rng = np.random.default_rng(2)
    alarms = [
        p_value(compare_with_oracles(*draw_models(rng, 40, 80, 5, gap=gap, wobble=0.2), 40)) <= 0.05 for _ in range(200)
    ]
    assert np.mean(alarms) <= 0.09


def test_what_retraining_alone_does_is_no_memory():
    # forget records lie elsewhere in every model, as they may where they are a class: five oracles show how much
    rng = np.random.default_rng(3)
    alarms = [
        p_value(compare_with_oracles(*draw_models(rng, 100, 200, 5, wobble=0.6, noise=0.1), 100)) <= 0.05
        for _ in range(200)
    ]
    assert np.mean(alarms) <= 0.09


def test_a_shift_of_the_model_alone_is_found():
    rng = np.random.default_rng(4)
    model, oracles = draw_models(rng, 40, 80, 5, gap=1.0)
    model[:40] += 0.8
    assert p_value(compare_with_oracles(model, oracles, 40)) < 0.05


def test_monotone_changes_of_a_model_are_no_contrast():
    model, oracles = draw_models(np.random.default_rng(5), 12, 30, 5)
    one = compare_with_oracles(model, oracles, 12)
    other = compare_with_oracles(np.exp(model), 3.0 * oracles - 2.0, 12)
    assert (one.value, one.standard_error) == pytest.approx((other.value, other.standard_error))


def test_one_record_on_a_side_has_no_standard_error():
    model, oracles = draw_models(np.random.default_rng(6), 1, 30, 5)
    assert math.isnan(compare_with_oracles(model, oracles, 1).standard_error)


def test_contrasts_on_opposite_sides_stay_within_the_range_of_an_auc():
    oracles = np.tile(np.arange(12.0), (5, 1))
    found = compare_with_oracles(-oracles[0], oracles, 4)
    assert found.value == 1.0
    assert found.statistic > 0


def test_a_difference_of_aucs_stays_between_0_and_1():
    rising = np.arange(20.0)
    oracles = np.tile(-rising, (5, 1)) + 1e-3 * np.arange(5)[:, None]
    assert compare_with_oracles(rising[::-1], oracles[:, ::-1], 10).value == 1.0
    assert compare_with_oracles(rising, oracles, 10).value == 0.0


def test_one_record_on_a_side_leaves_the_error_unknown():
    model, oracles = draw_models(np.random.default_rng(5), 1, 30, 5)
    assert math.isnan(compare_with_oracles(model, oracles, 1).standard_error)
