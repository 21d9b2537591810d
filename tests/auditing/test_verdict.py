from dataclasses import replace

import numpy as np
import pytest

from ruler.auditing import AuditSettings
from ruler.auditing.contrast import Draws, Measurement, Scores
from ruler.auditing.verdict import decide_metric, holm, read_by_paper
from ruler.stats.permutation import Contrast
from ruler.stats.units import find_units

SETTINGS = AuditSettings()
FLAT = Contrast(0.5, 0.8, 0.05, 100.0, 0.5, 0.05, 50, 100, False)
LOW = replace(FLAT, effect=0.2, p_value=0.001)
HIGH = replace(FLAT, effect=0.8, p_value=0.001)


def _measure(now, before=None):
    spread = np.linspace(-0.01, 0.01, 99)
    draws = Draws(spread, spread, now.effect + spread, None if before is None else before.effect - spread)
    return Measurement(Scores(spread, spread, None, find_units(50, 49)), now, before, draws)


@pytest.mark.parametrize(
    ("name", "now", "verdict"),
    [("m2", LOW, "residual"), ("m2", HIGH, "displaced"), ("m4", LOW, "displaced"), ("m4", HIGH, "residual")],
)
def test_without_the_original_the_paper_reads_the_sign(name, now, verdict):
    found, reason = decide_metric(name, _measure(now), 0.9, SETTINGS)
    assert found == verdict
    assert "reading of the sign" in reason


@pytest.mark.parametrize("name", ["m2", "m4"])
@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (LOW, LOW, "residual"),
        (HIGH, HIGH, "residual"),
        (LOW, HIGH, "displaced"),
        (HIGH, replace(FLAT, effect=0.52), "displaced"),
        (HIGH, replace(FLAT, effect=0.795, p_value=0.06), "residual"),  # not told apart from the original's own
    ],
)
def test_with_the_original_its_own_contrast_is_residual_and_a_new_one_displaced(name, now, before, verdict):
    assert decide_metric(name, _measure(now, before), 0.9, SETTINGS)[0] == verdict


def test_no_difference_seen_is_never_erased_by_itself():
    verdict, reason = decide_metric("m2", _measure(FLAT), 0.2, SETTINGS)
    assert verdict == "inconclusive"
    assert "not ruled out" in reason


def test_a_difference_within_the_margin_is_erased_and_said():
    verdict, reason = decide_metric("m2", _measure(replace(FLAT, effect=0.48, p_value=0.01)), 0.001, SETTINGS)
    assert verdict == "erased"
    assert "a difference can be seen" in reason


def test_a_single_group_cannot_show_equivalence():
    lonely = replace(FLAT, standard_error=float("nan"), n_first=1)
    verdict, reason = decide_metric("m4", _measure(lonely), float("nan"), SETTINGS)
    assert verdict == "inconclusive"
    assert "single record or group" in reason


def test_holm_is_statsmodels_holm():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p_values = np.array([0.04, 0.001, 0.03, 0.9])
    assert holm(p_values) == pytest.approx(multitest.multipletests(p_values, method="holm")[1])


@pytest.mark.parametrize(
    ("name", "value", "reading"),
    [("m2", -0.001, "residual"), ("m2", 0.1, "displaced"), ("m4", 0.51, "residual"), ("m4", 0.5, "erased")],
)
def test_the_papers_rule_is_the_sign(name, value, reading):
    assert read_by_paper(name, value) == reading
