import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from ruler.stats.rank_sum import rank_sum_p_value


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize(("n", "m"), [(3, 50), (8, 8), (9, 9), (40, 25)])
@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_is_scipys_to_the_last_bit(n, m, decimals, alternative, random):
    for shift in (-1.0, 0.0, 1.0):
        first, second = random.normal(size=n).round(decimals) + shift, random.normal(size=m).round(decimals)
        expected = mannwhitneyu(first, second, alternative=alternative).pvalue
        assert rank_sum_p_value(first, second, alternative) == expected


def test_equal_values_tell_nothing_and_nan_is_passed_on():
    assert rank_sum_p_value(np.ones(20), np.ones(9)) == 1.0
    assert math.isnan(rank_sum_p_value(np.array([1.0, np.nan]), np.ones(9)))
