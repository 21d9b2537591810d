import numpy as np
import pytest
from scipy.stats import brunnermunzel, mannwhitneyu

from ruler.stats.auc import ScorePool, estimate_auc, weighted_auc


def _label(n_first, n_second):
    return (np.arange(n_first + n_second) < n_first)[None, :]


@pytest.mark.parametrize("levels", [None, 4])
def test_auc_is_the_mann_whitney_statistic_with_mid_ranks(levels):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=50) if levels is None else rng.integers(0, levels, size=50).astype(float)
    found = estimate_auc(ScorePool.of(scores), _label(20, 30))
    expected = mannwhitneyu(scores[:20], scores[20:]).statistic / (20 * 30)
    assert found.effect[0] == pytest.approx(expected, abs=1e-12)


def test_studentised_auc_is_the_brunner_munzel_statistic():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=25), rng.integers(-2, 3, size=40).astype(float)
    found = estimate_auc(ScorePool.of(np.concatenate([first, second])), _label(25, 40))
    assert found.studentise()[0] == pytest.approx(-brunnermunzel(first, second).statistic, rel=1e-9)


def test_scores_within_the_slack_are_one_tie():
    pool = ScorePool.of(np.array([0.5, 0.5 + 5e-13, 0.5 - 5e-13, 0.7]))
    assert estimate_auc(pool, np.array([[True, False, False, False]])).effect[0] == pytest.approx(1 / 3)


def test_weights_count_a_record_as_often_as_it_is_drawn():
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 5, size=12).astype(float)
    weights = rng.integers(0, 3, size=12).astype(float)
    first, second = weights * (np.arange(12) < 5), weights * (np.arange(12) >= 5)
    repeated = np.repeat(scores, weights.astype(int))
    is_first = np.repeat(np.arange(12) < 5, weights.astype(int))
    expected = estimate_auc(ScorePool.of(repeated), is_first[None, :]).effect
    assert weighted_auc(ScorePool.of(scores), first[None, :], second[None, :]) == pytest.approx(expected)


def test_groups_of_equal_records_have_the_error_of_their_number_not_of_their_records():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=30)
    single = estimate_auc(ScorePool.of(scores), _label(10, 20))
    codes = np.repeat(np.arange(30), 4)
    grouped = estimate_auc(ScorePool.of(np.repeat(scores, 4)), np.repeat(_label(10, 20), 4, axis=1), codes)
    assert grouped.effect == pytest.approx(single.effect)
    assert grouped.standard_error == pytest.approx(single.standard_error)


def test_one_unit_on_a_side_has_no_standard_error():
    found = estimate_auc(ScorePool.of(np.arange(4.0)), _label(1, 3))
    assert np.isnan(found.standard_error[0])
    assert found.studentise()[0] == pytest.approx(-0.5)
