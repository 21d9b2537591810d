import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from ruler.core.errors import InputError
from ruler.stats.permutation import compare_samples
from ruler.stats.units import find_units


def test_small_samples_are_counted_exactly():
    # all 35 labellings of 7 scores: the studentised statistic orders complete separation first, on either side
    found = compare_samples([5.0, 6.0, 7.0], [1.0, 2.0, 3.0, 4.0])
    assert found.is_exact
    assert found.effect == 1.0
    assert found.p_value == pytest.approx(2 / 35)


def test_monte_carlo_p_value_agrees_with_mann_whitney():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=60) + 0.35, rng.normal(size=90)
    found = compare_samples(first, second, n_permutations=9999)
    assert not found.is_exact
    assert found.p_value == pytest.approx(mannwhitneyu(first, second).pvalue, abs=0.01)
    assert found.null_spread == pytest.approx(np.sqrt((60 + 90 + 1) / (12 * 60 * 90)), rel=0.03)


def test_monte_carlo_p_value_is_never_zero():
    found = compare_samples(np.arange(30.0) + 100, np.arange(30.0), n_permutations=99)
    assert found.p_value == pytest.approx(1 / 100)


def test_the_same_seed_gives_the_same_answer_and_another_one_nearly():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=30), rng.normal(size=50)
    once, twice, other = (compare_samples(first, second, seed=seed).p_value for seed in (3, 3, 4))
    assert once == twice
    assert abs(once - other) < 0.05


def test_scores_that_all_tie_show_nothing():
    found = compare_samples(np.ones(20), np.ones(30))
    assert (found.effect, found.p_value, found.null_spread) == (0.5, 1.0, 0.0)


@pytest.mark.parametrize("has_groups", [True, False])
def test_records_of_a_group_are_not_counted_as_independent(has_groups):
    rng = np.random.default_rng(2)
    rejections = 0
    for _ in range(100):
        first, second = (np.repeat(rng.normal(size=n), 10) for n in (8, 12))
        units = find_units(80, 120, np.repeat(np.arange(8), 10), np.repeat(np.arange(12), 10)) if has_groups else None
        rejections += compare_samples(first, second, units=units, n_permutations=199).p_value <= 0.05
    assert rejections <= 12 if has_groups else rejections >= 30


def test_unequal_spread_alone_is_no_contrast():
    # AUC is 1/2, but the wide small sample would make a plain permutation of ranks reject too often
    rng = np.random.default_rng(3)
    p_values = [
        compare_samples(10 * rng.normal(size=20), rng.normal(size=120), n_permutations=199).p_value for _ in range(200)
    ]
    assert 0.005 <= np.mean(np.array(p_values) <= 0.05) <= 0.1


def test_one_group_against_many_is_still_tested():
    control = np.arange(40.0)
    units = find_units(5, 40, ["ann"] * 5)
    assert compare_samples(np.full(5, 99.0), control, units=units).p_value == pytest.approx(1 / 41, abs=0.03)


def test_scores_must_be_finite():
    with pytest.raises(InputError, match="first must be finite"):
        compare_samples([np.nan, 1.0], [1.0, 2.0])
