import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import brunnermunzel, mannwhitneyu, norm, t

from ruler.core.errors import InputError
from ruler.stats import Effect, auc_interval, measure_effect
from ruler.stats.auc import ScorePool, estimate_auc, place_samples


def label(n_first, n_second):
    return (np.arange(n_first + n_second) < n_first)[None, :]


def draw(seed, n, levels=None, shift=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) + shift if levels is None else rng.integers(0, levels, size=n).astype(float)


@pytest.mark.parametrize("levels", [None, 4])
def test_auc_is_the_mann_whitney_statistic_with_mid_ranks(levels):
    scores = draw(0, 50, levels)
    found = estimate_auc(ScorePool.of(scores), label(20, 30))
    expected = mannwhitneyu(scores[:20], scores[20:]).statistic / (20 * 30)
    assert found.effect[0] == pytest.approx(expected, abs=1e-12)
    assert measure_effect(scores[:20], scores[20:]).value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("levels", "others"), [(None, None), (None, 5), (6, 5), (2, 2)])
def test_statistic_error_and_freedom_are_scipys_brunner_munzel(levels, others):
    first, second = draw(1, 25, levels), draw(2, 40, others)
    expected = brunnermunzel(first, second)
    found = measure_effect(first, second)
    assert found.statistic == pytest.approx(-expected.statistic, rel=1e-9)
    assert brunnermunzel(second, first, alternative="greater").pvalue == pytest.approx(
        t.sf(-found.statistic, found.freedom), rel=1e-6
    )
    pooled = estimate_auc(ScorePool.of(np.concatenate([first, second])), label(25, 40))
    assert pooled.studentise()[0] == pytest.approx(found.statistic, rel=1e-9)


def test_many_labellings_at_once_are_the_same_as_one_by_one():
    rng = np.random.default_rng(3)
    for scores in (rng.normal(size=30), rng.integers(0, 4, size=30).astype(float)):
        labels = rng.permuted(np.tile(label(11, 19), (20, 1)), axis=1)
        found = estimate_auc(ScorePool.of(scores), labels).studentise()
        alone = [measure_effect(scores[row], scores[~row]).statistic for row in labels]
        assert found == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("levels", [None, 1000, 4, 15])  # no ties, few and many
def test_labellings_of_unequal_sizes_are_the_same_as_one_by_one(levels):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=60) if levels is None else rng.integers(0, levels, size=60).astype(float)
    labels = rng.permuted(np.arange(60) < rng.permutation(np.arange(2, 58))[:, None], axis=1)
    found = estimate_auc(ScorePool.of(scores), labels)
    for row, effect, error in zip(labels, found.effect, found.standard_error, strict=True):
        alone = measure_effect(scores[row], scores[~row])
        assert (effect, error) == (alone.value, alone.standard_error)
        wins = np.sign(scores[row][:, None] - scores[~row]) / 2 + 0.5
        assert effect == pytest.approx(wins.mean())


@pytest.mark.parametrize("levels", [None, 3])
def test_placements_are_shares_of_pairs_and_give_delongs_covariance(levels):
    samples = [(draw(seed, 9, levels), draw(seed + 1, 14, levels)) for seed in (4, 6)]
    placed = [place_samples(*pair) for pair in samples]
    kernels = [
        (first[:, None] > second[None, :]) + 0.5 * (first[:, None] == second[None, :]) for first, second in samples
    ]
    for (of_first, of_second), kernel in zip(placed, kernels, strict=True):
        assert of_first == pytest.approx(kernel.mean(axis=1), abs=1e-12)
        assert of_second == pytest.approx(kernel.mean(axis=0), abs=1e-12)
    # DeLong's covariance by its definition: sums over pairs of records of products of kernels
    n, m = kernels[0].shape
    one, other = (kernel - kernel.mean() for kernel in kernels)
    by_pairs = one.mean(axis=1) @ other.mean(axis=1) / (n * (n - 1)) + one.mean(axis=0) @ other.mean(axis=0) / (
        m * (m - 1)
    )
    found = np.cov(placed[0][0], placed[1][0])[0, 1] / n + np.cov(placed[0][1], placed[1][1])[0, 1] / m
    assert found == pytest.approx(by_pairs, abs=1e-12)
    own = np.var(placed[0][0], ddof=1) / n + np.var(placed[0][1], ddof=1) / m
    assert measure_effect(*samples[0]).standard_error == pytest.approx(math.sqrt(own), rel=1e-9)


@pytest.mark.parametrize("levels", [None, 3])
def test_spread_under_the_null_is_that_of_all_labellings(levels):
    scores = draw(8, 9, levels)
    rng = np.random.default_rng(9)
    labels = rng.permuted(np.tile(label(4, 5), (40_000, 1)), axis=1)
    spread = estimate_auc(ScorePool.of(scores), labels).effect.std()
    assert measure_effect(scores[:4], scores[4:]).null_spread == pytest.approx(spread, rel=0.02)


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
    pool = ScorePool.of(np.array([0.5, 0.5 + 5e-13, 0.5 - 5e-13, 0.7]))
    assert estimate_auc(pool, np.array([[True, False, False, False]])).effect[0] == pytest.approx(1 / 3)


def test_one_record_on_a_side_has_no_standard_error():
    found = estimate_auc(ScorePool.of(np.arange(4.0)), label(1, 3))
    assert np.isnan(found.standard_error[0])
    assert found.studentise()[0] == pytest.approx(-0.5)
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


@pytest.mark.parametrize("freedom", [0.5, 1.0, 1.5])
def test_intervals_of_differences_are_students_with_at_least_one_degree_of_freedom(freedom):
    effect = Effect(0.6, 0.01, freedom, 0.01, 10, 20)  # of a difference: no interval_error
    low, high = auc_interval(effect, 0.05)
    reach = t.ppf(0.975, max(1.0, freedom)) * 0.01 / 0.24
    assert [math.log(end / (1 - end)) for end in (low, high)] == pytest.approx(
        [math.log(1.5) - reach, math.log(1.5) + reach]
    )


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_auc_at_its_end_has_newcombes_interval_whatever_its_error(value):
    effect = Effect(value, 0.1, 9.0, 0.1, 7, 12, interval_error=0.1)
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


def test_intervals_of_a_difference_of_aucs_take_students_quantile():
    effect = Effect(0.7, 0.08, 5.0, 0.06, 20, 40)  # no error of its own for intervals
    reach = t.ppf(0.975, 5) * 0.08 / (0.7 * 0.3)
    middle = math.log(0.7 / 0.3)
    assert auc_interval(effect, 0.05) == pytest.approx(
        tuple(1 / (1 + math.exp(-(middle + side * reach))) for side in (-1, 1))
    )
    for value, inside in ((0.0, 0.5 / 800), (1.0, 1 - 0.5 / 800)):  # half a pair from the end
        moved = auc_interval(replace(effect, value=value), 0.05)
        assert moved == pytest.approx(auc_interval(replace(effect, value=inside), 0.05))


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
    assert tied.freedom == 7.0  # of the sizes: placements that do not vary have none
    assert estimate_auc(ScorePool.of(np.ones(9)), label(4, 5)).studentise()[0] == 0.0


def test_differences_within_rounding_are_no_contrast():
    assert Effect(0.5 + 1e-10, 1e-12, 5.0, 0.1, 4, 5).statistic == pytest.approx(1e-10, rel=1e-3)


@pytest.mark.parametrize(("value", "nearest"), [(-0.1, 0.5 / 200), (1.3, 1 - 0.5 / 200)])
def test_a_difference_beyond_all_aucs_counts_as_half_a_pair_from_the_end(value, nearest):
    effect = Effect(value, 0.001, 8.0, 0.001, 10, 20)
    assert auc_interval(effect, 0.05) == pytest.approx(auc_interval(replace(effect, value=nearest), 0.05))
    low, high = auc_interval(effect, 0.05)
    assert math.log(low / (1 - low)) + math.log(high / (1 - high)) == pytest.approx(
        2 * math.log(nearest / (1 - nearest))
    )
