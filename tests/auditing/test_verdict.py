"""The verdict of one contrast, and of all together, from measurements made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from ruler.auditing import AuditSettings
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Damage, GuardFinding, Sensitivity
from ruler.auditing.gather import gather_evidence
from ruler.auditing.measure import Measurement
from ruler.auditing.strands import Strand
from ruler.auditing.verdict import decide_metric, decide_overall, list_needs

SETTINGS = AuditSettings()
N, M = 400, 800


def make_scores(auc, n=N, m=M, widen=1.0):
    """Scores of a first and a second sample whose AUC is this one; the first may be wider than the second."""
    first, second = (norm.ppf((np.arange(size) + 0.5) / size) for size in (n, m))
    return np.concatenate([widen * first + norm.ppf(auc) * math.hypot(1, widen), second])


def measure(now=0.5, before=None, *, name="m2", spread=0.5, p_value=0.9, seen=None, layer=""):
    """A measured contrast whose place has the AUC ``now``; ``seen`` gives the p-value of the positive control."""
    strands = [
        Strand(
            layer,
            part,
            N,
            make_scores(now if part == "place" else spread),
            None if before is None else make_scores(before if part == "place" else 0.5),
            None,
        )
        for part in ("place", "spread")
    ]
    contrast = CONTRASTS[name]
    found = Measurement(contrast, {layer: {}}, strands, "permutation", p_value, p_value, None, None)
    if seen is None:
        return found
    share = strands[0].share(SETTINGS.alpha) if seen <= SETTINGS.alpha else None
    is_seen = share is not None
    return replace(found, sensitivity=Sensitivity("original", before, seen, is_seen, is_seen), share=share)


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
    found, reason = decide_metric(measure(now, name=name, p_value=0.001), SETTINGS)
    assert found == verdict
    assert "reading of the side alone" in reason


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
    assert decide_metric(found, SETTINGS)[0] == verdict


def test_no_difference_seen_is_never_erased_by_itself():
    verdict, reason = decide_metric(measure(0.585), SETTINGS)
    assert verdict == "inconclusive"
    assert "not ruled out" in reason


def test_place_and_spread_must_both_lie_within_the_margin():
    assert decide_metric(measure(0.5), SETTINGS)[0] == "erased"
    assert decide_metric(measure(0.5, spread=0.585), SETTINGS)[0] == "inconclusive"
    assert decide_metric(measure(0.5, spread=0.7, p_value=0.001), SETTINGS)[0] == "residual"
    assert "scatter more" in decide_metric(measure(0.5, spread=0.7, p_value=0.001), SETTINGS)[1]
    assert "scatter less" in decide_metric(measure(0.5, spread=0.3, p_value=0.001), SETTINGS)[1]


def test_every_layer_must_lie_within_the_margin():
    found = measure(0.5, layer="last")
    other = measure(0.585, layer="first")
    both = replace(found, strands=[*other.strands, *found.strands])
    assert decide_metric(found, SETTINGS)[0] == "erased"
    assert decide_metric(both, SETTINGS)[0] == "inconclusive"


def test_a_difference_within_the_margin_is_excused_unless_most_of_the_originals_is_left():
    small = measure(0.53, p_value=0.01)
    assert decide_metric(small, SETTINGS)[0] == "erased"
    kept = measure(0.53, 0.53, p_value=0.01, seen=0.01)
    assert kept.share.lower > 0.5
    assert decide_metric(kept, SETTINGS)[0] == "residual"


def test_the_share_is_asked_of_the_contrast_that_sees_best():
    found = measure(0.52, 0.55, seen=0.004)
    assert decide_metric(found, SETTINGS)[0] == "inconclusive"
    weaker = replace(found, sensitivity=replace(found.sensitivity, is_strongest=False))
    assert decide_metric(weaker, SETTINGS)[0] == "erased"


def test_a_share_that_may_be_left_keeps_the_verdict_open():
    found = measure(0.52, 0.56, seen=0.001)
    assert found.share.upper > 0.5
    verdict, reason = decide_metric(found, SETTINGS)
    assert verdict == "inconclusive"
    assert "may be left" in reason
    assert decide_metric(measure(0.52, 0.9, seen=0.001), SETTINGS)[0] == "erased"
    assert decide_metric(found, replace(SETTINGS, share_limit=0.95))[0] == "erased"


def test_a_single_group_cannot_show_equivalence():
    strands = [replace(one, n_first=1) for one in measure().strands]
    verdict, reason = decide_metric(replace(measure(), strands=strands), SETTINGS)
    assert verdict == "inconclusive"
    assert "single record or group" in reason


def test_without_a_control_there_is_no_answer():
    verdict, reason = decide_metric(replace(measure(), strands=[]), SETTINGS)
    assert verdict == "inconclusive"
    assert "No held-out records were given" in reason


@pytest.mark.parametrize(
    ("name", "value", "reading"),
    [("m2", -0.001, "residual"), ("m2", 0.1, "displaced"), ("m4", 0.51, "residual"), ("m4", 0.5, "erased")],
)
def test_the_papers_rule_is_the_sign(name, value, reading):
    assert CONTRASTS[name].read_by_paper(value) == reading


# all contrasts together


@pytest.fixture
def evidence():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    model, oracle = (tuple(np.split(rows + 0.01 * shift, [10, 30])) for shift in (0, 1))
    return gather_evidence(model, oracle=oracle, original=model)


SEEN = {"m2": measure(0.5, 0.9, seen=0.001), "m4": measure(name="m4", before=0.5, seen=0.9)}
CLEAR = {"m2": ("erased", "within"), "m4": ("erased", "within")}
WORKS = Damage(0.9, 0.7, math.nan, 0.5, False, "The model still works.")


def decide(evidence, found=SEEN, verdicts=CLEAR, guards=(), damage=WORKS, n_flagged=0):
    return decide_overall(evidence, found, verdicts, guards, damage, n_flagged)


def test_erased_needs_everything(evidence):
    verdict, reason = decide(evidence)
    assert verdict == "erased"
    assert "the original's records could be told apart by calibration gap" in reason
    blind = {name: replace(one, sensitivity=replace(one.sensitivity, is_seen=False)) for name, one in SEEN.items()}
    untouched = GuardFinding("identical_to_original", "warn", "The same.", "Check.")
    for changed in (
        {"found": blind},
        {"found": {name: replace(one, sensitivity=None) for name, one in SEEN.items()}},
        {"verdicts": CLEAR | {"m4": ("inconclusive", "not ruled out")}},
        {"guards": [untouched]},
        {"guards": [replace(untouched, name="unfair", blocks=True)]},
        {"n_flagged": 1},
        {"evidence": replace(evidence, oracles=[])},
        {"evidence": replace(evidence, ids={side: evidence.ids[side] for side in ("forget", "retain")})},
    ):
        assert decide(**{"evidence": evidence} | changed)[0] == "inconclusive", changed


def test_invalid_goes_before_damaged_before_blocked_before_residual_before_displaced(evidence):
    alarms = CLEAR | {"m2": ("displaced", "new"), "m4": ("residual", "old")}
    assert decide(evidence, verdicts=alarms) == ("residual", "Percentile rank: old")
    assert decide(evidence, verdicts=CLEAR | {"m2": ("displaced", "new")})[0] == "displaced"
    doubt = GuardFinding("unfair", "warn", "Unfair.", "Be fair.", blocks=True)
    assert decide(evidence, verdicts=alarms, guards=[doubt]) == ("inconclusive", "Unfair.")
    broken = replace(WORKS, is_damaged=True, reason="The model no longer works.")
    assert decide(evidence, verdicts=alarms, guards=[doubt], damage=broken)[0] == "damaged"
    assert decide(evidence, damage=broken, guards=[replace(doubt, severity="fail")])[0] == "invalid"


def test_a_residual_needs_no_oracle_and_no_positive_control(evidence):
    bare = replace(evidence, oracles=[], original=None)
    found = {"m4": measure(0.9, name="m4", p_value=0.001)}
    assert decide(bare, found=found, verdicts={"m4": ("residual", "near")}, damage=None)[0] == "residual"


def test_needs_come_in_the_order_of_their_use(evidence):
    bare = replace(evidence, oracles=[], original=None, ids={"forget": np.arange(10), "retain": np.arange(20)})
    needs = list_needs(bare, {}, [], 0)
    assert [need.split(":")[0] for need in needs] == ["Held-out records", "An oracle"]
    assert "at least 100" in needs[0]
    doubt = GuardFinding("unfair", "warn", "Unfair.", "Be fair.", blocks=True)
    assert list_needs(evidence, SEEN, [doubt], 0)[0] == "Be fair."
    assert "Another round of unlearning" in " ".join(list_needs(evidence, SEEN, [], 2))
