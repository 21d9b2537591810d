import math
from itertools import combinations

import numpy as np
import pytest
import scipy.stats

from ruler.core.errors import InputError
from ruler.stats import adjust_p_values, compare_methods, paired_signed_rank, signed_rank, signed_rank_of_means


def sample_with_statistic(w: int, n: int) -> np.ndarray:
    """Values 1..n of which those that add up to ``w`` are negative."""
    values = np.arange(1.0, n + 1)
    for rank in range(n, 0, -1):
        if rank <= w:
            values[rank - 1] *= -1
            w -= rank
    return values


@pytest.mark.parametrize(
    ("w", "p_value", "rank_biserial"),
    # each pair (p, r) as printed in the paper's Table 10; W follows from r
    [
        (0, 0.002, 1.000),
        (3, 0.010, 0.891),
        (4, 0.014, 0.855),
        (6, 0.027, 0.782),
        (7, 0.037, 0.745),
        (12, 0.131, 0.564),
        (13, 0.160, 0.527),
        (14, 0.193, 0.491),
        (15, 0.232, 0.455),
        (16, 0.275, 0.418),
        (17, 0.322, 0.382),
        (21, 0.557, 0.236),
        (23, 0.695, 0.164),
        (26, 0.922, 0.055),
    ],
)
def test_ten_datasets_give_the_papers_pairs(w, p_value, rank_biserial):
    for sign in (1, -1):
        result = signed_rank(sign * sample_with_statistic(w, 10))
        assert (result.statistic, result.n, result.note) == (w, 10, "")
        assert result.p_value == pytest.approx(p_value, abs=5.1e-4)
        assert result.rank_biserial == pytest.approx(rank_biserial, abs=5.1e-4)


def test_smallest_p_of_five_seeds_is_the_papers():
    assert signed_rank([0.7, 0.8, 0.9, 0.75, 0.85], 0.5).p_value == 0.0625


def test_large_samples_equal_scipy():
    values = np.random.default_rng(3).normal(0.2, 1.0, 100)
    result, reference = signed_rank(values), scipy.stats.wilcoxon(values)
    assert (result.statistic, result.p_value) == (reference.statistic, reference.pvalue)
    assert result.rank_biserial == pytest.approx(1 - 4 * reference.statistic / (100 * 101))


def test_values_at_the_null_are_not_counted():
    with_null = signed_rank([0.5, 0.52, 0.47, 0.55, 0.5, 0.59], 0.5)
    without = signed_rank([0.52, 0.47, 0.55, 0.59], 0.5)
    assert with_null == without
    assert with_null.n == 4


def test_ties_on_paper_are_ties():
    # 0.52 - 0.5 and 0.48 - 0.5 differ in their last bits
    result = signed_rank([0.52, 0.48, 0.56, 0.58], 0.5)
    assert result.statistic == 1.5
    assert result.p_value == pytest.approx(2 * 3 / 16)


def test_the_test_is_blind_to_scale():
    values = np.random.default_rng(1).normal(0.3, 1.0, 12)
    assert signed_rank(1e-7 * values) == signed_rank(values)


def test_no_difference_at_all_is_nan_with_a_reason():
    result = signed_rank([0.5, 0.5], 0.5)
    assert (result.n, result.note) == (0, "every difference is zero: nothing to rank")
    assert np.isnan([result.statistic, result.p_value, result.rank_biserial]).all()
    assert signed_rank([0.0, 0.0]).n == 0


def test_one_difference_is_no_test():
    result = paired_signed_rank([1.0, 2.0], [1.0, 1.5])
    assert math.isnan(result.p_value)
    assert math.isnan(result.rank_biserial)
    assert (result.n, result.note) == (1, "one difference that is not zero: nothing to test")


def test_paired_is_one_sample_on_differences():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=10), rng.normal(size=10)
    assert paired_signed_rank(a, b) == signed_rank(a - b)
    assert paired_signed_rank(a, b).p_value == scipy.stats.wilcoxon(a, b).pvalue


def test_means_count_each_group_once():
    values, groups = [1.0, 2.0, 3.0, -5.0, 0.1, 0.3], ["a", "a", "a", "b", "c", "c"]
    assert signed_rank_of_means(values, groups) == signed_rank([2.0, -5.0, 0.2])
    assert signed_rank_of_means(values, groups, 0.2).n == 2


def test_normal_distribution_on_request():
    values = np.arange(1.0, 10.0)
    z = 22.5 / math.sqrt(9 * 10 * 19 / 24)
    assert signed_rank(values, distribution="normal").p_value == pytest.approx(2 * scipy.stats.norm.sf(z))
    assert signed_rank(values).p_value == 2 / 2**9


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="first and second must be paired, of the same length; got 2 and 3"):
        paired_signed_rank([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="distribution must be 'auto' or 'normal'; got 'exact'"):
        signed_rank([1.0], distribution="exact")


METHODS = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub")
METRICS = ("m2", "m4", "mia", "retain_accuracy")


def draw_scores() -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(12)
    scores = {metric: {method: rng.normal(size=10) for method in METHODS} for metric in METRICS}
    accuracy = rng.uniform(0.7, 0.9, 10)
    better = np.array([0.0] + [0.01] * 9) * rng.uniform(1, 2, 10)  # one dataset on which no method differs
    scores["retain_accuracy"] = {
        "gradient_ascent": accuracy,
        "neggrad_plus": accuracy - 1e-4 * better * np.resize([1, -1], 10),
        "fine_tuning": accuracy + better,
        "scrub": accuracy + better * (1 + 1e-3 * np.resize([1, -1], 10)),
    }
    return scores


def test_six_pairs_on_four_metrics_are_one_family():
    scores = draw_scores()
    found = compare_methods(scores)
    assert [(c.metric, c.first, c.second) for c in found] == [
        (metric, *pair) for metric in METRICS for pair in combinations(METHODS, 2)
    ]
    expected = adjust_p_values(
        [paired_signed_rank(scores[c.metric][c.first], scores[c.metric][c.second]).p_value for c in found]
    )
    np.testing.assert_array_equal([c.p_adjusted for c in found], expected)
    assert found[3].difference == pytest.approx(
        np.mean(scores["m2"]["neggrad_plus"]) - np.mean(scores["m2"]["fine_tuning"])
    )


def test_the_papers_adjusted_p_is_the_normal_approximation_on_nine_datasets():
    scores = draw_scores()
    cross = {("gradient_ascent", "fine_tuning"), ("gradient_ascent", "scrub")}
    cross |= {("neggrad_plus", "fine_tuning"), ("neggrad_plus", "scrub")}
    for distribution, p_adjusted in (("normal", 0.0461), ("auto", 0.0234)):
        found = [c for c in compare_methods(scores, distribution=distribution) if c.p_adjusted < 0.05]
        assert {(c.first, c.second) for c in found} == cross
        assert {c.metric for c in found} == {"retain_accuracy"}
        assert [c.p_adjusted for c in found] == pytest.approx([p_adjusted] * 4, abs=5e-5)
        assert [c.n for c in found] == [9] * 4


def test_methods_that_never_differ_are_nan_and_not_counted():
    same = [0.1, 0.2, 0.3]
    found = compare_methods({"m2": {"a": same, "b": same, "c": [0.2, 0.4, 0.6]}})
    assert np.isnan(found[0].p_adjusted)
    assert "nothing to rank" in found[0].note
    assert [c.p_adjusted for c in found[1:]] == [0.25, 0.25]


def test_bad_arguments_of_a_comparison_are_named():
    with pytest.raises(InputError, match=r"scores\['m2'\] must hold at least two methods; got \['a'\]"):
        compare_methods({"m2": {"a": [1.0]}})
    with pytest.raises(InputError, match=r"scores\['m2'\]\['b'\] must be finite"):
        compare_methods({"m2": {"a": [1.0], "b": [np.nan]}})
    with pytest.raises(InputError, match="first and second must be paired"):
        compare_methods({"m2": {"a": [1.0], "b": [1.0, 2.0]}})
