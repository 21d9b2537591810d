from itertools import combinations

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.stats import adjust_p_values, compare_methods, paired_signed_rank

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


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match=r"scores\['m2'\] must hold at least two methods; got \['a'\]"):
        compare_methods({"m2": {"a": [1.0]}})
    with pytest.raises(InputError, match=r"scores\['m2'\]\['b'\] must be finite"):
        compare_methods({"m2": {"a": [1.0], "b": [np.nan]}})
    with pytest.raises(InputError, match="first and second must be paired"):
        compare_methods({"m2": {"a": [1.0], "b": [1.0, 2.0]}})
