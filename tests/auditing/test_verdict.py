"""The verdict of one contrast, and of all together, from measurements made by hand."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.auditing.cases import FAST
from tests.auditing.measured import SEEN, measure
from tests.auditing.report.factory import make_report

from ruler.auditing import AuditSettings, audit
from ruler.auditing.conclusions import add_decisive
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Damage, GuardFinding, Sensitivity
from ruler.auditing.records import ALIKE
from ruler.auditing.verdict import (
    UNCHECKED,
    count_flagged,
    decide,
    decide_metric,
    decide_overall,
    leaves_too_much,
)
from ruler.stats.auc import normal_quantile

SETTINGS = AuditSettings()


def describe(found, settings=SETTINGS, **changes):
    """The finding of a measured contrast, with the numbers that the verdict is read from."""
    blank = make_report(n_held_out=0).metrics["m2"]
    control = "held-out" if found.strands else "none"
    before = found.strongest.before if found.strands else None
    effect = None if before is None else found.place.effect_before.value
    blank = replace(blank, control=control, original_effect=effect)
    return replace(add_decisive(blank, found, settings), **changes)


def judge(found, settings):
    return decide_metric(describe(found, settings), settings, found.contrast)


@pytest.mark.parametrize(
    ("beyond", "verdict"), [(math.nan, "residual"), (0.05, "residual"), (0.051, "inconclusive"), (1.0, "inconclusive")]
)
def test_a_difference_must_go_beyond_the_oracle(beyond, verdict):
    # NaN: a report without an oracle, or from before it was asked
    finding = describe(measure(0.2, p_value=0.001), beyond_oracle_p_value=beyond)
    found, reason = decide_metric(finding, SETTINGS, CONTRASTS["m2"])
    assert found == verdict
    assert ("which records were chosen" in reason) == (verdict == "inconclusive")


@pytest.mark.parametrize("has_oracle", [False, True])
def test_accusing_without_an_oracle_says_what_is_taken_on_trust(build_world, has_oracle):
    world = build_world(0)
    known, oracle = world.model(gain=2.0), world.model(gain=0.0)
    report = audit(known, oracle=oracle if has_oracle else None, settings=FAST)
    assert report.verdict == "residual"
    assert report.reason.endswith(UNCHECKED) != has_oracle


def test_a_difference_that_the_oracle_explains_does_not_clear():
    # within the margin, most of the original's contrast left, and explained by the oracle: neither residual nor erased
    finding = describe(measure(0.45, p_value=0.001), equivalence_p_value=0.001)
    finding = replace(finding, share_left_lower=0.6, share_left_upper=1.2)
    assert decide_metric(finding, SETTINGS, CONTRASTS["m2"])[0] == "residual"
    explained = replace(finding, beyond_oracle_p_value=0.5)
    assert decide_metric(explained, SETTINGS, CONTRASTS["m2"])[0] == "inconclusive"


@pytest.mark.parametrize(
    ("name", "now", "verdict"),
    [
        ("m2", 0.2, "residual"),
        ("m2", 0.8, "displaced"),
        ("m4", 0.2, "displaced"),
        ("m4", 0.8, "residual"),
        ("loss", 0.2, "residual"),
        ("loss", 0.8, "displaced"),
        ("norm", 0.2, "residual"),
        ("norm", 0.8, "residual"),
    ],
)
def test_without_the_original_the_side_is_read(name, now, verdict):
    found, reason = judge(measure(now, name=name, p_value=0.001), SETTINGS)
    assert found == verdict
    assert "inferred from the side alone" in reason


@pytest.mark.parametrize("name", ["m2", "m4", "norm", "loss"])
@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (0.2, 0.2, "residual"),
        (0.8, 0.8, "residual"),
        (0.2, 0.8, "displaced"),
        (0.8, 0.51, "displaced"),
        (0.7, 0.8, "residual"),
    ],
)
def test_with_the_original_its_own_contrast_is_residual_and_a_new_one_displaced(name, now, before, verdict):
    found = measure(now, before, name=name, p_value=0.001, seen=0.001 if abs(before - 0.5) > 0.1 else 0.8)
    assert judge(found, SETTINGS)[0] == verdict


def test_no_difference_seen_is_never_erased_by_itself():
    verdict, reason = judge(measure(0.585), SETTINGS)
    assert verdict == "inconclusive"
    assert "not ruled out" in reason


def test_place_and_spread_must_both_lie_within_the_margin():
    assert judge(measure(0.5), SETTINGS)[0] == "erased"
    assert judge(measure(0.5, spread=0.585), SETTINGS)[0] == "inconclusive"
    assert judge(measure(0.5, spread=0.7, p_value=0.001), SETTINGS)[0] == "residual"
    assert "scatter more" in judge(measure(0.5, spread=0.7, p_value=0.001), SETTINGS)[1]
    assert "scatter less" in judge(measure(0.5, spread=0.3, p_value=0.001), SETTINGS)[1]


def test_every_layer_must_lie_within_the_margin():
    found = measure(0.5, layer="last")
    other = measure(0.585, layer="first")
    both = replace(found, strands=[*other.strands, *found.strands])
    assert judge(found, SETTINGS)[0] == "erased"
    assert judge(both, SETTINGS)[0] == "inconclusive"


def test_a_difference_within_the_margin_is_excused_unless_most_of_the_originals_is_left():
    small = measure(0.53, p_value=0.01)
    assert judge(small, SETTINGS)[0] == "erased"
    kept = measure(0.53, 0.53, p_value=0.01, seen=0.01)
    assert kept.share.lower > 0.5
    assert judge(kept, SETTINGS)[0] == "residual"


def test_the_share_is_asked_of_the_contrast_that_sees_best():
    found = measure(0.52, 0.55, seen=0.004)
    assert judge(found, SETTINGS)[0] == "inconclusive"
    weaker = replace(found, sensitivity=replace(found.sensitivity, is_strongest=False))
    assert judge(weaker, SETTINGS)[0] == "erased"
    again = replace(weaker, p_value=0.04, adjusted_p_value=0.04)  # seen before and still seen: asked as well
    assert found.share.lower < 0.5 < found.share.upper
    verdict, reason = judge(again, SETTINGS)
    assert verdict == "inconclusive"
    assert "may be left" in reason


def test_a_model_that_only_the_loss_could_see_says_so():
    only_loss = {"loss": measure(0.5, 0.8, name="loss", seen=0.001)}
    verdict, reason = decide_all(only_loss, {"loss": ("erased", "within")})
    assert verdict == "erased"
    assert "No representation showed them." in reason
    assert "No representation" not in decide_all()[1]


def test_a_share_that_may_be_left_keeps_the_verdict_open():
    found = measure(0.52, 0.56, seen=0.001)
    assert found.share.upper > 0.5
    verdict, reason = judge(found, SETTINGS)
    assert verdict == "inconclusive"
    assert "may be left" in reason
    assert judge(measure(0.52, 0.9, seen=0.001), SETTINGS)[0] == "erased"
    assert judge(found, replace(SETTINGS, share_limit=0.95))[0] == "erased"


def test_a_single_group_cannot_show_equivalence():
    strands = [replace(one, n_first=1) for one in measure().strands]
    verdict, reason = judge(replace(measure(), strands=strands), SETTINGS)
    assert verdict == "inconclusive"
    assert "single record or group" in reason


def test_without_a_control_there_is_no_answer():
    verdict, reason = judge(replace(measure(), strands=[]), SETTINGS)
    assert verdict == "inconclusive"
    assert "No held-out records were given" in reason


@pytest.mark.parametrize(
    ("name", "value", "reading"),
    [("m2", -0.001, "residual"), ("m2", 0.1, "displaced"), ("m4", 0.51, "residual"), ("m4", 0.5, "erased")],
)
def test_the_papers_rule_is_the_sign(name, value, reading):
    assert CONTRASTS[name].read_by_paper(value) == reading


# all contrasts together


CLEAR = {"m2": ("erased", "within"), "m4": ("erased", "within")}
WORKS = Damage(0.9, 0.7, math.nan, 0.5, False, "The model still works.")
ORACLE = make_report().pairing


def decide_all(found=SEEN, verdicts=CLEAR, guards=(), damage=WORKS, n_flagged=0, pairing=ORACLE):
    """The verdict of all contrasts together, whose own verdicts are given."""
    metrics = {name: describe(one, verdict=verdicts[name][0], reason=verdicts[name][1]) for name, one in found.items()}
    records = pd.DataFrame({"id": range(5), "finding": ["far"] * n_flagged + [ALIKE] * (5 - n_flagged)})
    report = replace(make_report(), metrics=metrics, guards=list(guards), damage=damage, pairing=pairing)
    return decide_overall(replace(report, records=records))


def test_erased_needs_everything():
    verdict, reason = decide_all()
    assert verdict == "erased"
    assert "The original's forget records could be told from held-out records by M2" in reason
    blind = {name: replace(one, sensitivity=replace(one.sensitivity, is_seen=False)) for name, one in SEEN.items()}
    untouched = GuardFinding("identical_to_original", "warn", "The same.", "Check.")
    for changed in (
        {"found": blind},
        {"found": {name: replace(one, sensitivity=None) for name, one in SEEN.items()}},
        {"verdicts": CLEAR | {"m4": ("inconclusive", "not ruled out")}},
        {"guards": [untouched]},
        {"guards": [replace(untouched, name="unfair", blocks=True)]},
        {"n_flagged": 1},
        {"pairing": None},
        {"found": {name: replace(one, strands=[]) for name, one in SEEN.items()}},
    ):
        assert decide_all(**changed)[0] == "inconclusive", changed


def test_invalid_goes_before_damaged_before_blocked_before_residual_before_displaced():
    alarms = CLEAR | {"m2": ("displaced", "new"), "m4": ("residual", "old")}
    assert decide_all(verdicts=alarms) == ("residual", "M4: old")
    assert decide_all(verdicts=CLEAR | {"m2": ("displaced", "new")})[0] == "displaced"
    doubt = GuardFinding("unfair", "warn", "Unfair.", "Be fair.", blocks=True)
    assert decide_all(verdicts=alarms, guards=[doubt]) == ("inconclusive", "Unfair.")
    broken = replace(WORKS, is_damaged=True, reason="The model no longer works.")
    assert decide_all(verdicts=alarms, guards=[doubt], damage=broken)[0] == "damaged"
    assert decide_all(damage=broken, guards=[replace(doubt, severity="fail")])[0] == "invalid"


def test_a_residual_needs_no_oracle_and_no_positive_control():
    found = {"m4": measure(0.9, name="m4", p_value=0.001)}
    verdicts = {"m4": ("residual", "near")}
    assert decide_all(found, verdicts, damage=None, pairing=None)[0] == "residual"


def test_groups_flag_their_records_only_if_held_out_groups_are_named():
    report = make_report(n_groups=4)
    groups = report.groups.assign(finding=["far", ALIKE, ALIKE, ALIKE])
    report = replace(report, groups=groups, records=report.records.assign(finding=ALIKE))
    assert count_flagged(report) == 0
    grouped = replace(report, provenance=report.provenance | {"grouped": ["forget", "held_out"]})
    assert count_flagged(grouped) == (report.records["group"] == groups["group"][0]).sum()


def test_the_rule_reads_the_same_from_the_numbers_of_a_finished_audit(random):
    rows = random.normal(size=(600, 8))
    oracle, unlearned = (tuple(np.split(rows + 0.05 * random.normal(size=rows.shape), [100, 300])) for _ in "ab")
    original = (unlearned[0] + 1.0, *unlearned[1:])
    for extras in ({}, {"oracle": oracle}, {"oracle": oracle, "original": original}, {"oracle": unlearned}):
        report = audit(unlearned, **extras, settings=AuditSettings(n_permutations=99))
        assert repr(decide(report)) == repr(report)
        forged = replace(report, verdict="erased" if report.verdict != "erased" else "residual", reason="Trust me.")
        assert (decide(forged).verdict, decide(forged).reason) == (report.verdict, report.reason)


def test_no_more_than_all_records_can_be_missed():
    verdict, reason = decide_all({"m2": measure(0.995, 0.9, seen=0.001)}, {"m2": ("erased", "within")})
    assert verdict == "erased"
    assert "A clear mark on up to 100% of the forget records, or a faint one on more, is not excluded." in reason
    (share,) = re.findall(r"up to (\d+)% of the forget records", decide_all()[1])
    largest = max(describe(one).largest_distance for one in SEEN.values())
    assert int(share) == round(200 * largest)


def test_a_share_at_the_limit_is_too_much():
    found = measure(0.52, 0.56, seen=0.001)
    at = replace(SETTINGS, share_limit=found.share.upper)
    assert leaves_too_much(found.sensitivity, found.share_upper, 1.0, at)
    more = replace(at, share_limit=at.share_limit + 1e-9)
    assert not leaves_too_much(found.sensitivity, found.share_upper, 1.0, more)
    assert not leaves_too_much(found.sensitivity, None, 0.0, SETTINGS)
    assert not leaves_too_much(None, 2.0, 0.0, SETTINGS)


def test_every_limit_of_a_contrast_counts_itself_in():
    metric, contrast = describe(measure(0.5)), CONTRASTS["m2"]
    at = replace(metric, equivalence_p_value=SETTINGS.alpha)
    assert decide_metric(at, SETTINGS, contrast)[0] == "erased"
    above = replace(metric, equivalence_p_value=SETTINGS.alpha * 1.001)
    assert decide_metric(above, SETTINGS, contrast)[0] == "inconclusive"
    shown = describe(measure(0.8, p_value=0.05))
    assert decide_metric(shown, SETTINGS, contrast)[0] == "displaced"
    assert decide_metric(replace(shown, adjusted_p_value=0.0501), SETTINGS, contrast)[0] == "inconclusive"


def test_a_contrast_is_new_beyond_twice_the_originals():
    metric, contrast = describe(measure(0.8, 0.8, p_value=0.001)), CONTRASTS["m2"]

    def trace(effect, before, statistic, lower):
        strongest = replace(
            metric.strongest, effect=effect, original_effect=before, original_statistic=statistic, share_lower=lower
        )
        return decide_metric(replace(metric, strongest=strongest), SETTINGS, contrast)[0]

    assert trace(0.75, 0.625, 1.0, None) == "residual"  # exactly twice
    assert trace(0.76, 0.625, 1.0, None) == "displaced"
    seen = normal_quantile(1 - SETTINGS.alpha / 2)
    assert trace(0.76, 0.625, seen, None) == "residual"  # the original's own was seen
    assert trace(0.76, 0.625, -seen, None) == "residual"
    assert trace(0.76, 0.625, seen, 1.0) == "residual"
    assert trace(0.76, 0.625, seen, 1.01) == "displaced"  # but this one is shown to be larger


def test_of_many_doubts_the_three_gravest_are_told():
    unfair = GuardFinding("not_exchangeable", "note", "Unfair.", "Be fair.")
    blind = {name: replace(one, sensitivity=None) for name, one in SEEN.items()}
    verdict, reason = decide_all(blind, guards=[unfair], n_flagged=2, pairing=None)
    assert (verdict, reason) == (
        "inconclusive",
        "2 forget records stand out from the held-out ones. Held-out records are unfair, so single records could "
        "not be judged. Without an oracle no model is called erased.",
    )


def test_the_share_is_asked_of_what_is_seen_again_at_the_limit():
    seen = Sensitivity("original", 0.9, 0.001, True, False)  # but not best
    assert leaves_too_much(seen, 0.9, SETTINGS.alpha, SETTINGS)
    assert not leaves_too_much(seen, 0.9, SETTINGS.alpha * 1.001, SETTINGS)


def test_a_share_shown_to_be_at_the_limit_is_not_beyond_it():
    metric, contrast = describe(measure(0.52, 0.56, p_value=0.001, seen=0.001)), CONTRASTS["m2"]
    strongest = replace(metric.strongest, share_lower=None)
    metric = replace(metric, equivalence_p_value=0.01, strongest=strongest)
    at, beyond = (replace(metric, share_left_lower=SETTINGS.share_limit + more) for more in (0.0, 1e-9))
    assert decide_metric(at, SETTINGS, contrast)[0] == "inconclusive"
    assert decide_metric(beyond, SETTINGS, contrast)[0] == "residual"


@pytest.mark.parametrize(("severity", "word"), [("warn", "inconclusive"), ("fail", "invalid")])
def test_what_stops_the_verdict_stops_every_contrast_that_decides(severity, word):
    stop = GuardFinding("unfair", severity, "Unfair.", "Be fair.", blocks=True)
    report = decide(replace(make_report(), guards=[stop]))
    assert report.verdict == word
    for name, metric in report.metrics.items():
        decides = CONTRASTS[name].decides
        assert ((metric.verdict, metric.reason) == (word, "Unfair.")) == decides
