import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import brunnermunzel, mannwhitneyu

from ruler.stats import compare_families
from ruler.stats.auc import measure_effect
from ruler.stats.permutation import KeptLabels, shuffle_labels


def compare(first, second, **options):
    """One score of two samples."""
    return compare_families(np.concatenate([first, second])[None, :], len(first), [0], **options)


def test_small_samples_are_counted_exactly():
    # all 35 labellings of 7 scores: complete separation comes first, on either side
    found = compare([5.0, 6.0, 7.0], [1.0, 2.0, 3.0, 4.0])
    assert found.is_exact
    assert found.n_draws == 35
    assert found.p_values[0] == found.adjusted[0] == pytest.approx(2 / 35)


@pytest.mark.parametrize("levels", [None, 3])
def test_families_are_westfall_and_young_by_brute_force(levels):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(5, 9)) if levels is None else rng.integers(0, levels, size=(5, 9)).astype(float)
    scores[0, :4] += 1.5
    families = [0, 0, 1, 2, 2]
    drawn = []
    for chosen in combinations(range(9), 4):
        rest = [row for row in range(9) if row not in chosen]
        own = [abs(measure_effect(row[list(chosen)], row[rest]).statistic) for row in scores]
        drawn.append([max(own[:2]), own[2], max(own[3:])])
    table = np.array(drawn)
    observed = table[0]  # the first combination is 0, 1, 2, 3
    slack = observed * (1 - 1e-9) - 1e-9
    raw = (table >= slack).mean(axis=0)
    order = np.argsort(-observed, kind="stable")
    adjusted, so_far = np.empty(3), 0.0
    for step, family in enumerate(order):
        so_far = max(so_far, float((table[:, order[step:]].max(axis=1) >= slack[family]).mean()))
        adjusted[family] = so_far
    found = compare_families(scores, 4, families)
    assert found.is_exact
    assert found.p_values == pytest.approx(raw)
    assert found.adjusted == pytest.approx(adjusted)


def test_monte_carlo_p_values_agree_with_mann_whitney_and_brunner_munzel():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=60) + 0.35, rng.normal(size=90)
    found = compare(first, second, n_permutations=9999)
    assert not found.is_exact
    assert found.p_values[0] == pytest.approx(mannwhitneyu(first, second).pvalue, abs=0.012)
    assert found.p_values[0] == pytest.approx(brunnermunzel(first, second).pvalue, abs=0.012)


def test_monte_carlo_p_values_are_never_zero():
    found = compare(np.arange(30.0) + 100, np.arange(30.0), n_permutations=99, alpha=0.3)
    assert found.p_values[0] == pytest.approx(1 / (found.n_draws + 1))


def test_the_same_seed_gives_the_same_answer_and_another_one_nearly():
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=30), rng.normal(size=50)
    once, twice, other = (compare(first, second, seed=seed).p_values[0] for seed in (3, 3, 4))
    assert once == twice
    assert abs(once - other) < 0.05


def test_near_alpha_labellings_are_added_until_the_side_is_clear():
    rng = np.random.default_rng(5)
    clear = compare(rng.normal(size=30), rng.normal(size=50), n_permutations=500)
    assert clear.n_draws == 500
    for seed in range(200):  # a p-value of 0.04 to 0.045: on the side of alpha, but not clearly after 500 draws
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=30) + 0.45, rng.normal(size=50)
        if 0.040 < brunnermunzel(first, second).pvalue < 0.043:
            break
    found = [compare(first, second, n_permutations=500, seed=seed) for seed in range(8)]
    assert all(one.n_draws > 500 for one in found)
    assert {bool(one.adjusted[0] <= 0.05) for one in found} == {True}


def test_scores_that_all_tie_show_nothing():
    assert compare(np.ones(20), np.ones(30)).p_values[0] == 1.0


def test_unequal_spread_alone_is_no_contrast():
    # AUC is 1/2, but the wide small sample would make a plain permutation of ranks reject too often
    rng = np.random.default_rng(3)
    p_values = [
        compare(10 * rng.normal(size=20), rng.normal(size=120), n_permutations=199, alpha=1e-9).p_values[0]
        for _ in range(200)
    ]
    assert 0.005 <= np.mean(np.array(p_values) <= 0.05) <= 0.1


def test_the_maximum_over_layers_holds_the_level():
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(200):
        common = rng.normal(size=(1, 90))
        scores = 0.6 * common + rng.normal(size=(6, 90))  # six layers of one contrast, alike but not the same
        alarms += bool(
            compare_families(scores, 30, [0] * 6, n_permutations=199, alpha=0.05, seed=1).adjusted[0] <= 0.05
        )
    assert 0.02 <= alarms / 200 <= 0.08


def test_corrected_p_values_hold_the_level_over_families_and_are_no_smaller():
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(150):
        found = compare_families(rng.normal(size=(4, 60)), 20, [0, 1, 2, 3], n_permutations=199, alpha=1e-9)
        assert (found.adjusted >= found.p_values - 1e-12).all()
        alarms += bool((found.adjusted <= 0.05).any())
    assert alarms / 150 <= 0.1


def test_strata_keep_what_they_hold_apart():
    # the stratum moves the score and its mix differs: free labellings see a contrast, stratified ones do not
    rng = np.random.default_rng(7)
    strata = np.concatenate([np.repeat([0, 1], [30, 10]), np.repeat([0, 1], [20, 60])])
    free, matched = [], []
    for _ in range(40):
        scores = (2.0 * strata + rng.normal(size=120))[None, :]
        free.append(compare_families(scores, 40, [0], n_permutations=199, alpha=1e-9).p_values[0])
        matched.append(compare_families(scores, 40, [0], strata=strata, n_permutations=199, alpha=1e-9).p_values[0])
    assert np.mean(np.array(free) <= 0.05) > 0.9
    assert np.mean(np.array(matched) <= 0.05) <= 0.15


def test_a_few_labellings_are_all_counted():
    for n, m in ((1, 20), (2, 5), (3, 4), (2, 2)):
        found = compare(np.arange(n) + 100.0, np.arange(float(m)))
        assert (found.is_exact, found.n_draws) == (True, math.comb(n + m, n))
        assert found.p_values[0] == pytest.approx(min(1.0, 2 / math.comb(n + m, n)))  # wholly apart, on either side


def test_labellings_are_counted_where_they_are_no_more_than_those_to_draw():
    # one record against 19 has 20 labellings
    first, second = [100.0], np.arange(19.0)
    assert compare(first, second, n_permutations=20).is_exact
    fewer = compare(first, second, n_permutations=19, alpha=1e-9)
    assert not fewer.is_exact
    assert fewer.n_draws == 19


def find_samples(low, high):
    """Samples of 30 and 50 scores whose p-value lies between these."""
    for seed in range(500):
        rng = np.random.default_rng(seed)
        first, second = rng.normal(size=30), rng.normal(size=50)
        if low < brunnermunzel(first, second).pvalue < high:
            return first, second
    raise AssertionError("no such samples")


def test_a_side_is_clear_at_four_standard_errors():
    # with 400 draws and alpha = 1/2, four standard errors are 0.1
    assert compare(*find_samples(0.34, 0.36), n_permutations=400, alpha=0.5).n_draws == 400
    assert compare(*find_samples(0.42, 0.44), n_permutations=400, alpha=0.5).n_draws > 400


def test_labellings_are_added_up_to_16_times_as_many():
    assert compare(*find_samples(0.499, 0.501), n_permutations=100, alpha=0.5).n_draws == 1600


def test_all_families_must_be_clear():
    near, clear = (np.concatenate(find_samples(*ends)) for ends in ((0.499, 0.501), (0.04, 0.05)))
    found = compare_families(np.array([clear, near]), 30, [0, 1], n_permutations=100, alpha=0.5)
    assert found.n_draws == 1600


def test_draws_with_a_p_value_by_simulation_count_the_labelling_that_was_seen():
    first, second = find_samples(0.2, 0.3)
    found = compare(first, second, n_permutations=99, alpha=1e-9)
    assert found.n_draws == 99
    assert found.p_values[0] * 100 == pytest.approx(round(found.p_values[0] * 100))
    assert found.adjusted[0] == found.p_values[0]


def test_more_labellings_take_no_more_memory():
    scores = np.random.default_rng(0).normal(size=(1, 40_000))
    peaks = []
    for n_permutations in (99, 300):
        tracemalloc.start()
        compare_families(scores, 20_000, [0], n_permutations=n_permutations, alpha=1e-9)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_labellings_follow_from_the_seed():
    first, second = np.random.default_rng(3).normal(size=(2, 30))
    found = [compare(first, second, n_permutations=99, **seed) for seed in ({}, {"seed": 0}, {"seed": 1})]
    assert found[0].p_values == found[1].p_values
    assert found[0].p_values != found[2].p_values


@pytest.mark.parametrize("strata", [None, np.arange(80) % 3])
@pytest.mark.parametrize("most_kept", [0, 200, 400, 1 << 24])
def test_kept_labels_change_nothing(strata, most_kept, monkeypatch):
    monkeypatch.setattr("ruler.stats.permutation._MOST_KEPT_BYTES", most_kept)
    monkeypatch.setattr("ruler.stats.permutation._BLOCK_ELEMENTS", 80 * 7)  # seven labellings per block
    scores, kept = np.random.default_rng(8).normal(size=(4, 80)), KeptLabels()
    scores[1:3, :30] += 0.4
    n_draws = set()
    for row in scores:  # some stop after the first round, others go on
        options = {"strata": strata, "n_permutations": 100, "alpha": 0.2}
        alone, after = (compare_families(row[None, :], 30, [0], **options, **one) for one in ({}, {"kept": kept}))
        assert (alone.p_values[0], alone.n_draws) == (after.p_values[0], after.n_draws)
        n_draws.add(alone.n_draws)
    assert len(n_draws) > 1
    assert sum(block.nbytes for block in kept.blocks) <= most_kept


def test_kept_labels_of_other_samples_are_not_used():
    scores, kept = np.random.default_rng(9).normal(size=(1, 60)), KeptLabels()
    for n_first, seed in ((20, 0), (25, 0), (25, 1)):
        options = {"n_permutations": 99, "seed": seed}
        alone = compare_families(scores, n_first, [0], **options)
        assert compare_families(scores, n_first, [0], **options, kept=kept).p_values[0] == alone.p_values[0]


@pytest.mark.parametrize(("n", "n_first"), [(1, 1), (9, 4), (300, 100)])
def test_shuffled_labels_are_those_of_numpy(n, n_first):
    labels = np.arange(n) < n_first
    expected = np.random.default_rng(0).permuted(np.tile(labels, (20, 1)), axis=1)
    np.testing.assert_array_equal(shuffle_labels(np.random.default_rng(0), labels, 20), expected)
