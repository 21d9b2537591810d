import math
from dataclasses import replace

import numpy as np
import pytest

from ruler.stats.equivalence import count_needed, equivalence_p_value, minimum_detectable_effect
from ruler.stats.permutation import Contrast, compare_samples

CONTRAST = Contrast(0.5, 1.0, 0.03, 200.0, 0.5, 0.03, 100, 200, False)


def test_equivalence_needs_distance_and_error_to_fit_into_the_margin():
    assert equivalence_p_value(CONTRAST, 0.1) < 0.001
    assert equivalence_p_value(replace(CONTRAST, effect=0.57), 0.1) > 0.05
    assert equivalence_p_value(replace(CONTRAST, standard_error=0.1), 0.1) > 0.05
    assert equivalence_p_value(replace(CONTRAST, effect=0.65), 0.1) > 0.9


def test_a_lucky_small_variance_proves_nothing():
    lucky = replace(CONTRAST, standard_error=1e-6, null_spread=0.08)
    assert equivalence_p_value(lucky, 0.1) > 0.05


def test_identical_scores_are_equivalent_and_separate_ones_are_not():
    assert equivalence_p_value(compare_samples(np.ones(9), np.ones(9)), 0.1) == 0.0
    assert equivalence_p_value(compare_samples(np.ones(9), np.zeros(9)), 0.1) > 0.9


def test_without_a_standard_error_there_is_no_answer():
    assert math.isnan(equivalence_p_value(replace(CONTRAST, standard_error=math.nan), 0.1))


def test_equivalence_is_claimed_at_the_margin_no_more_often_than_alpha():
    rng = np.random.default_rng(0)
    # a normal shift whose AUC is 0.6: the least favourable case that is not equivalent
    shift = math.sqrt(2) * 0.2533471
    claims = [
        equivalence_p_value(compare_samples(rng.normal(size=150) + shift, rng.normal(size=300), n_permutations=99), 0.1)
        <= 0.05
        for _ in range(150)
    ]
    assert np.mean(claims) <= 0.1


def test_needed_records_shrink_the_error_to_what_the_margin_asks():
    needed = count_needed(CONTRAST, 0.1, alpha=0.05, power=0.8)
    assert needed == math.ceil(100 * (0.03 * (1.6448536 + 1.2815516) / 0.1) ** 2)
    assert count_needed(replace(CONTRAST, null_spread=0.0), 0.1, alpha=0.05, power=0.8) is None


def test_minimum_detectable_effect_is_bounded_and_nan_when_all_tie():
    assert minimum_detectable_effect(CONTRAST, alpha=0.05, power=0.8) == pytest.approx(0.03 * 2.801585, rel=1e-6)
    assert minimum_detectable_effect(replace(CONTRAST, null_spread=0.4), alpha=0.05, power=0.8) == 0.5
    assert math.isnan(minimum_detectable_effect(replace(CONTRAST, null_spread=0.0), alpha=0.05, power=0.8))
