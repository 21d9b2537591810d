import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import brunnermunzel, mannwhitneyu, norm, rankdata

from ruler.core.errors import InputError
from ruler.stats import Effect, auc_interval, measure_effect
from ruler.stats.auc import ScorePool


def draw(seed, n, levels=None, shift=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) + shift if levels is None else rng.integers(0, levels, size=n).astype(float)


@pytest.mark.parametrize("levels", [None, 4])
def test_auc_is_the_mann_whitney_statistic_with_mid_ranks(levels):
    scores = draw(0, 50, levels)
    expected = mannwhitneyu(scores[:20], scores[20:]).statistic / (20 * 30)
    assert measure_effect(scores[:20], scores[20:]).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("levels", "others"), [(None, None), (None, 5), (6, 5), (2, 2)])
def test_the_statistic_is_scipys_brunner_munzel(levels, others):
    first, second = draw(1, 25, levels), draw(2, 40, others)
    expected = brunnermunzel(first, second)
    found = measure_effect(first, second)
    assert found.statistic == pytest.approx(-expected.statistic, rel=1e-9)


def test_the_error_for_intervals_is_free_of_the_bias():
    rng = np.random.default_rng(10)
    drawn = [measure_effect(rng.normal(size=8) + 0.7, rng.normal(size=8)) for _ in range(1500)]
    truth = np.var([one.value for one in drawn])
    assert np.mean([one.interval_error**2 for one in drawn]) == pytest.approx(truth, rel=0.08)
    assert np.mean([one.standard_error**2 for one in drawn]) > 1.03 * truth


@pytest.mark.parametrize("auc", [0.5, 0.7, 0.9])
@pytest.mark.parametrize(("n", "m"), [(10, 20), (60, 120)])
def test_intervals_cover_as_often_as_they_say(auc, n, m):
    rng = np.random.default_rng([n, int(100 * auc)])
    shift = math.sqrt(2) * norm.ppf(auc)
    n_draws, covered = 400, 0
    for _ in range(n_draws):
        low, high = auc_interval(measure_effect(rng.normal(size=n) + shift, rng.normal(size=m)), 0.05)
        covered += low <= auc <= high
    assert 0.92 <= covered / n_draws <= 0.985


def test_intervals_of_samples_that_lie_apart_are_open_to_one_side():
    low, high = auc_interval(measure_effect(np.arange(10.0) + 100, np.arange(20.0)), 0.05)
    assert 0.8 < low < 0.99 < high <= 1
    assert auc_interval(measure_effect(np.ones(10), np.ones(20)), 0.05)[0] < 0.4  # tied, but few


def test_sides_exchanged_mirror_the_answer():
    first, second = draw(11, 13), draw(12, 29, shift=0.4)
    there, back = measure_effect(first, second), measure_effect(second, first)
    assert there.value == pytest.approx(1 - back.value)
    assert there.statistic == pytest.approx(-back.statistic)
    assert auc_interval(there, 0.05) == pytest.approx(tuple(1 - end for end in auc_interval(back, 0.05)[::-1]))


def test_scores_within_the_slack_are_one_tie():
    assert measure_effect([0.5], [0.5 + 5e-13, 0.5 - 5e-13, 0.7]).value == pytest.approx(1 / 3)


def test_one_record_on_a_side_has_no_standard_error():
    alone = measure_effect([0.0], [1.0, 2.0, 3.0])
    assert alone.statistic == -0.5
    assert np.isnan(auc_interval(alone, 0.05)).all()


def test_scores_must_be_finite():
    with pytest.raises(InputError, match="first must be finite"):
        measure_effect([np.nan, 1.0], [1.0, 2.0])


def test_intervals_are_normal_on_the_logit():
    effect = measure_effect(draw(13, 12), draw(14, 17, shift=0.5))
    low, high = auc_interval(effect, 0.1)
    reach = norm.ppf(0.95) * effect.interval_error / (effect.value * (1 - effect.value))
    middle = math.log(effect.value / (1 - effect.value))
    assert (low, high) == pytest.approx(tuple(1 / (1 + math.exp(-(middle + side * reach))) for side in (-1, 1)))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_auc_at_its_end_has_newcombes_interval_whatever_its_error(value):
    effect = Effect(value, 0.1, 0.1, 7, 12)
    assert auc_interval(effect, 0.05) == auc_interval(replace(effect, interval_error=0.0), 0.05)
    assert auc_interval(effect, 0.05)[int(value)] == value


@pytest.mark.parametrize(("first", "second"), [(10.0, 0.0), (0.0, 10.0), (0.0, 0.0)])
def test_without_spread_intervals_end_where_newcombes_reaches_the_estimate(first, second):
    n, m = 7, 12
    apart = first != second
    samples = [place + np.arange(size) * (0.1 if apart else 0.0) for place, size in ((first, n), (second, m))]
    effect = measure_effect(*samples)
    assert effect.value == (0.5 if not apart else float(first > second))
    ends = auc_interval(effect, 0.05)
    assert ends[0] < 0.75 if effect.value < 1 else ends[1] == 1.0
    for end in ends:
        if end == effect.value:
            continue
        by_pairs = (n + m - 2) / 2 * ((1 - end) / (2 - end) + end / (1 + end))
        spread = math.sqrt(end * (1 - end) * (1 + by_pairs) / (n * m))
        assert abs(effect.value - end) == pytest.approx(norm.ppf(0.975) * spread, rel=1e-6)
    assert ends[0] <= effect.value <= ends[1]
    assert ends[0] < ends[1]


def test_the_bias_is_that_of_the_pairs():
    # by its definition: what is left of a pair's win after the mean, the row and the column
    for levels in (None, 4):
        first, second = draw(15, 9, levels), draw(16, 13, levels)
        kernel = (first[:, None] > second[None, :]) + 0.5 * (first[:, None] == second[None, :])
        rest = kernel - kernel.mean(axis=1, keepdims=True) - kernel.mean(axis=0) + kernel.mean()
        effect = measure_effect(first, second)
        expected = effect.standard_error**2 - (rest**2).sum() / (8 * 12) / (9 * 13)
        assert effect.interval_error == pytest.approx(math.sqrt(expected), rel=1e-9)


def test_two_records_on_a_side_have_errors_and_one_has_none():
    two = measure_effect([1.0, 4.0], [2.0, 3.0, 5.0])
    assert not math.isnan(two.standard_error)
    assert not math.isnan(two.interval_error)
    one = measure_effect([1.0, 4.0], [2.0])
    assert math.isnan(one.standard_error)
    assert math.isnan(one.interval_error)


def test_a_statistic_without_spread_is_infinite_and_that_of_no_contrast_zero():
    assert measure_effect([5.0, 6.0], [1.0, 2.0]).statistic == math.inf
    assert measure_effect([1.0, 2.0], [5.0, 6.0]).statistic == -math.inf
    tied = measure_effect(np.ones(4), np.ones(5))
    assert tied.statistic == 0.0


def test_differences_within_rounding_are_no_contrast():
    assert Effect(0.5 + 1e-10, 1e-12, 1e-12, 4, 5).statistic == pytest.approx(1e-10, rel=1e-3)


@pytest.mark.parametrize("levels", [None, 3])
def test_mid_ranks_are_scipys(levels):
    scores = draw(17, 40, levels)
    assert ScorePool.of(scores).rank() == pytest.approx(rankdata(scores))
