import math

import numpy as np
import pytest
import scipy.stats

from ruler.stats.intervals import combine_p_values, difference_interval, mean_interval

FIRST, SECOND = [0.61, 0.58, 0.66, 0.57, 0.63], [0.52, 0.50, 0.55, 0.49]


def test_the_interval_of_a_mean_is_students():
    found = mean_interval([*FIRST, math.nan])
    reference = scipy.stats.ttest_1samp(FIRST, 0.0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))
    assert found.n == 5


def test_the_interval_of_a_difference_is_welchs():
    found = difference_interval(FIRST, SECOND)
    reference = scipy.stats.ttest_ind(FIRST, SECOND, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))
    assert found.value == pytest.approx(np.mean(FIRST) - np.mean(SECOND))


def test_samples_that_do_not_vary_have_an_interval_too():
    constant = difference_interval([0.5, 0.5, 0.5], [0.4, 0.4, 0.4])
    assert (constant.low, constant.high) == pytest.approx((0.1, 0.1))
    mixed = difference_interval(FIRST, [0.5, 0.5])
    assert mixed.low < mixed.value < mixed.high


def test_one_run_has_no_interval_and_none_no_value():
    assert math.isnan(mean_interval([0.5]).low)
    assert mean_interval([0.5]).value == 0.5
    assert math.isnan(mean_interval([]).value)
    assert difference_interval([0.5], FIRST).value == pytest.approx(0.5 - np.mean(FIRST))
    assert math.isnan(difference_interval([0.5], FIRST).high)
    assert math.isnan(difference_interval([], FIRST).value)


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [([0.03], 0.03), ([0.01, 0.5], 0.02), ([0.3, 0.01, 0.06], 0.09), ([0.9] * 5, 1.0), ([0.2, math.nan], 0.2)],
)
def test_p_values_are_combined_by_ruegers_rule(p_values, expected):
    assert combine_p_values(p_values) == pytest.approx(expected)


def test_the_combined_p_value_keeps_its_level_for_equal_and_for_independent_seeds():
    rng = np.random.default_rng(0)
    equal = np.repeat(rng.uniform(size=(2000, 1)), 5, axis=1)
    for draws in (equal, rng.uniform(size=(2000, 5))):
        assert np.mean([combine_p_values(row) <= 0.05 for row in draws]) <= 0.06


def test_no_p_value_combines_to_none():
    assert math.isnan(combine_p_values([]))


def test_two_runs_are_enough_for_an_interval():
    assert mean_interval([0.4, 0.6]).high == pytest.approx(0.5 + scipy.stats.t.ppf(0.975, 1) * 0.1)
    assert math.isfinite(difference_interval([0.4, 0.6], [0.1, 0.4]).low)


def test_a_sample_that_does_not_vary_leaves_the_fewest_degrees_of_freedom():
    found = difference_interval(FIRST, [0.5, 0.5, 0.5])
    error = np.std(FIRST, ddof=1) / math.sqrt(5)
    assert found.high - found.value == pytest.approx(scipy.stats.t.ppf(0.975, 2) * error)
    assert found.n == 3
