"""p-values are those of scipy's, to the bit."""

import numpy as np
from scipy.stats import chi2_contingency

from ruler.stats.contingency import homogeneity_p_value


def test_p_values_are_those_of_scipy(random):
    for n_samples, n_classes in ((2, 2), (2, 3), (2, 10), (2, 40), (3, 2), (4, 5)):
        for most in (3, 30, 3000):
            for _ in range(20):
                table = random.integers(0, most, (n_samples, n_classes)) + np.eye(n_samples, n_classes, dtype=int)
                table[0] += 1
                table[:, 0] += 1
                assert homogeneity_p_value(table) == chi2_contingency(table).pvalue


def test_the_same_mix_shows_nothing():
    assert homogeneity_p_value(np.array([[3, 5], [3, 5]])) == 1
    assert homogeneity_p_value(np.array([[3, 5, 4], [6, 10, 8]])) == 1
