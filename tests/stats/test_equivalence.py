import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import t

from ruler.stats import Effect, count_needed, equivalence_p_value, measure_effect, minimum_detectable_effect
from ruler.stats.auc import place_samples
from ruler.stats.equivalence import divide, share_of_records

EFFECT = Effect(0.5, 0.03, 200.0, 0.03, 100, 200)


def test_equivalence_needs_distance_and_error_to_fit_into_the_margin():
    assert equivalence_p_value(EFFECT, 0.1) < 0.001
    assert equivalence_p_value(replace(EFFECT, value=0.57), 0.1) > 0.05
    assert equivalence_p_value(replace(EFFECT, standard_error=0.1), 0.1) > 0.05
    assert equivalence_p_value(replace(EFFECT, value=0.65), 0.1) > 0.9
    assert equivalence_p_value(replace(EFFECT, value=0.43), 0.1) == pytest.approx(
        equivalence_p_value(replace(EFFECT, value=0.57), 0.1)
    )


def test_a_lucky_small_variance_proves_nothing():
    lucky = replace(EFFECT, standard_error=1e-6, null_spread=0.08)
    assert equivalence_p_value(lucky, 0.1) > 0.05


def test_identical_scores_are_equivalent_and_separate_ones_are_not():
    assert equivalence_p_value(measure_effect(np.ones(9), np.ones(9)), 0.1) == 0.0
    assert equivalence_p_value(measure_effect(np.ones(9), np.zeros(9)), 0.1) > 0.9


def test_two_people_cannot_show_equivalence_wherever_they_lie():
    others = set(range(42))
    found = (measure_effect(pair, sorted(others - set(pair))) for pair in combinations(range(42), 2))
    assert min(equivalence_p_value(effect, 0.1) for effect in found) > 0.3
    assert equivalence_p_value(measure_effect([499.5, 499.5], range(1000)), 0.1) > 0.3


def test_without_a_standard_error_there_is_no_answer():
    assert math.isnan(equivalence_p_value(replace(EFFECT, standard_error=math.nan), 0.1))
    assert math.isnan(equivalence_p_value(measure_effect([1.0], [1.0, 2.0]), 0.1))


def test_equivalence_is_claimed_at_the_margin_no_more_often_than_alpha():
    rng = np.random.default_rng(0)
    shift = math.sqrt(2) * 0.2533471  # AUC 0.6: the least favourable case that is not equivalent
    claims = [
        equivalence_p_value(measure_effect(rng.normal(size=150) + shift, rng.normal(size=300)), 0.1) <= 0.05
        for _ in range(400)
    ]
    assert np.mean(claims) <= 0.08


def test_needed_records_shrink_the_error_to_what_the_margin_asks():
    needed = count_needed(EFFECT, 0.1, alpha=0.05, power=0.8)
    assert needed == math.ceil(100 * (0.03 * (1.6448536 + 1.2815516) / 0.1) ** 2)
    assert count_needed(EFFECT, 0.1, alpha=0.05, power=0.8, n_tests=4) > needed
    assert count_needed(replace(EFFECT, null_spread=0.0), 0.1, alpha=0.05, power=0.8) is None


def test_needed_records_suffice_for_all_tests_together():
    effect = measure_effect(np.arange(50.0), np.arange(100.0))
    n = count_needed(effect, 0.1, alpha=0.05, power=0.8, n_tests=2)
    rng = np.random.default_rng(1)
    shown = [
        all(
            equivalence_p_value(measure_effect(rng.normal(size=n), rng.normal(size=2 * n)), 0.1) <= 0.05
            for _ in range(2)
        )
        for _ in range(300)
    ]
    assert 0.73 <= np.mean(shown) <= 0.87


def test_minimum_detectable_effect_is_bounded_and_nan_when_all_tie():
    assert minimum_detectable_effect(EFFECT, alpha=0.05, power=0.8) == pytest.approx(0.03 * 2.801585, rel=1e-6)
    assert minimum_detectable_effect(replace(EFFECT, null_spread=0.4), alpha=0.05, power=0.8) == 0.5
    assert math.isnan(minimum_detectable_effect(replace(EFFECT, null_spread=0.0), alpha=0.05, power=0.8))


def test_fiellers_limits_are_where_the_test_of_the_ratio_turns():
    covariance = np.array([[4.0, 1.0], [1.0, 9.0]]) * 1e-4
    found = divide(0.05, 0.2, covariance, freedom=1e9, alpha=0.05)
    for limits, quantile in ((found.interval, 1.959964), ((found.lower, found.upper), 1.644854)):
        for ratio in limits:
            spread = math.sqrt(covariance[0, 0] - 2 * ratio * covariance[0, 1] + ratio**2 * covariance[1, 1])
            assert abs(0.05 - ratio * 0.2) / spread == pytest.approx(quantile, rel=1e-5)
    assert found.lower < found.value < found.upper


def test_fiellers_limits_cover_in_simulation():
    rng = np.random.default_rng(2)
    covariance = np.array([[4.0, 1.0], [1.0, 9.0]]) * 1e-4
    drawn = rng.multivariate_normal([0.06, 0.15], covariance, size=4000)
    found = [divide(now, before, covariance, freedom=1e9, alpha=0.05) for now, before in drawn]
    assert np.mean([one.upper >= 0.4 for one in found]) == pytest.approx(0.95, abs=0.012)
    assert np.mean([one.interval[0] <= 0.4 <= one.interval[1] for one in found]) == pytest.approx(0.95, abs=0.012)


def test_a_reference_that_may_be_zero_leaves_every_share_possible():
    found = divide(0.01, 0.02, np.eye(2) * 1e-3, freedom=100, alpha=0.05)
    assert (found.lower, found.upper) == (-math.inf, math.inf)
    assert math.isnan(divide(0.01, 0.0, np.eye(2), freedom=10, alpha=0.05).value)


def test_the_share_left_covers_the_true_ratio_of_aucs():
    rng = np.random.default_rng(3)
    # the same records before and after: a common part makes the two AUCs covary
    truth = (0.5 + 0.5 * math.erf(0.3 / 2)) - 0.5, (0.5 + 0.5 * math.erf(1.0 / 2)) - 0.5
    ratio, above = truth[0] / truth[1], []
    for _ in range(300):
        common = [rng.normal(size=n) for n in (80, 160)]
        scores = []
        for shift in (0.3, 1.0):
            own = [(part + rng.normal(size=len(part))) / math.sqrt(2) for part in common]
            scores.append((own[0] + shift, own[1]))
        above.append(share_of_records(*scores, alpha=0.05).upper >= ratio)
    assert 0.91 <= np.mean(above) <= 0.985


def test_all_of_it_left_is_known_without_error_and_a_single_record_tells_nothing():
    rng = np.random.default_rng(4)
    pair = rng.normal(size=40) + 1, rng.normal(size=60)
    found = share_of_records(pair, pair, alpha=0.05)
    assert (found.value, found.upper) == pytest.approx((1.0, 1.0), abs=1e-6)
    lonely = share_of_records((pair[0][:1], pair[1]), (pair[0][:1], pair[1]), alpha=0.05)
    assert lonely.upper == math.inf


def test_an_unknown_spread_tells_nothing():
    unknown = replace(EFFECT, standard_error=math.nan, null_spread=math.nan)
    assert math.isnan(minimum_detectable_effect(unknown, alpha=0.05, power=0.8))
    assert count_needed(unknown, 0.1, alpha=0.05, power=0.8) is None


def test_limits_open_where_the_reference_just_may_be_zero():
    before = float(t.ppf(0.95, 30)) / 2  # as many standard errors of 1/2 as the one-sided quantile
    covariance = np.diag([0.01, 0.25])
    found = divide(0.1, before, covariance, freedom=30, alpha=0.05)
    assert (found.lower, found.upper) == (-math.inf, math.inf)
    closed = divide(0.1, before * (1 + 1e-6), covariance, freedom=30, alpha=0.05)
    assert -math.inf < closed.lower < closed.upper < math.inf
    assert closed.interval == (-math.inf, math.inf)


def test_the_share_of_records_is_fiellers_of_delongs_covariance():
    rng = np.random.default_rng(5)
    now, before = ((rng.normal(size=6) + shift, rng.normal(size=8)) for shift in (0.5, 3.0))
    placed = [place_samples(*pair) for pair in (now, before)]
    covariance = sum(np.cov(placed[0][side], placed[1][side]) / n for side, n in ((0, 6), (1, 8)))
    distances = [float(pair[0].mean()) - 0.5 for pair in placed]
    assert share_of_records(now, before, alpha=0.05) == divide(*distances, covariance, freedom=12, alpha=0.05)


def test_scores_that_do_not_vary_are_equivalent_below_the_margin_alone():
    constant = replace(EFFECT, value=0.75, standard_error=0.0, null_spread=0.0)
    assert equivalence_p_value(constant, 0.25) == 1.0
    assert equivalence_p_value(constant, 0.26) == 0.0


def test_two_records_are_the_fewest_that_can_be_needed():
    assert count_needed(replace(EFFECT, null_spread=1e-6), 0.4, alpha=0.05, power=0.8) == 2
