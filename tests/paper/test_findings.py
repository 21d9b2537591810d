import math

import numpy as np
import pytest

from ruler.paper.findings import FINDINGS, NEAR, Check, check_findings, judge
from ruler.paper.published import load_table
from ruler.paper.results import check_results

RESNET, CNN = "resnet18", "small_cnn"


def outcomes(results):
    found = check_findings(check_results(results))
    return found.groupby("finding").outcome.first().to_dict()


def shift(results, by, **place):
    where = results.seed >= 0
    for key, value in place.items():
        where &= results[key].isin(value) if isinstance(value, list) else results[key] == value
    assert where.any()
    results.loc[where, "m4"] += by


def test_the_papers_own_numbers_confirm_its_findings(diagnostics):
    assert outcomes(diagnostics) == dict.fromkeys(range(1, 8), "confirmed")


@pytest.mark.parametrize(
    ("finding", "by", "place"),
    [
        (1, 0.05, {"study": ["large-tabular", "images"], "method": "original"}),
        (1, -0.05, {"study": ["large-tabular", "images"], "method": "original"}),
        (2, 0.4, {"study": "images", "architecture": RESNET, "method": ["neggrad_plus", "scrub"]}),
        (2, -0.2, {"study": "images", "architecture": CNN, "method": ["neggrad_plus", "scrub"]}),
        (3, -0.1, {"dataset": "higgs", "architecture": "ft_transformer", "method": "neggrad_plus"}),
        (4, -0.3, {"study": "faces", "method": "original"}),
        (5, 0.5, {"study": "faces", "method": "oracle"}),
        (7, 0.05, {"study": "clinical", "method": "original"}),
        (7, -0.09, {"study": "clinical", "method": "original"}),
    ],
)
def test_each_finding_can_be_refuted(diagnostics, finding, by, place):
    shift(diagnostics, by, **place)
    assert outcomes(diagnostics)[finding] == "refuted"


def test_methods_that_reach_the_null_refute_that_none_does(diagnostics):
    diagnostics.loc[diagnostics.study == "faces", "m4"] = 0.51
    assert outcomes(diagnostics)[6] == "refuted"


@pytest.mark.parametrize(
    ("finding", "by", "place"),
    [
        (1, 0.06, {"dataset": "cifar10", "method": "original"}),
        (2, 0.4, {"dataset": "cifar10", "architecture": RESNET, "method": ["neggrad_plus", "scrub"]}),
        (3, 0.2, {"dataset": "higgs", "architecture": "ft_transformer", "method": "original"}),
        (4, -0.1, {"study": "faces", "method": "original", "forget_fraction": 0.1}),
        (5, 0.3, {"study": "faces", "method": "oracle", "forget_fraction": 0.1}),
        (6, -0.15, {"study": "faces", "method": "scrub", "forget_fraction": 0.1}),
        (7, 0.05, {"study": "clinical", "method": "original", "forget_fraction": 0.05}),
    ],
)
def test_each_finding_can_hold_in_part(diagnostics, finding, by, place):
    shift(diagnostics, by, **place)
    assert outcomes(diagnostics)[finding] == "partly confirmed"


def test_the_near_band_holds_all_published_originals_and_no_more_than_noise():
    ranks = [load_table(table).query("column == 'm4_mean' and method == 'original'").paper for table in (12, 13)]
    farthest = max((rank - 0.5).abs().max() for rank in ranks)
    spread = load_table(13).query("column == 'm4_sd' and method == 'original'").paper.max()
    assert farthest == pytest.approx(0.013)
    assert farthest + 2 * spread / math.sqrt(5) == pytest.approx(NEAR, abs=0.005)


def test_the_edge_of_a_rule(diagnostics):
    is_original = (diagnostics.study == "clinical") & (diagnostics.method == "original")
    diagnostics.loc[is_original, "m4"] = 0.5401
    assert outcomes(diagnostics)[7] == "refuted"
    diagnostics.loc[is_original, "m4"] = 0.5399
    assert outcomes(diagnostics)[7] == "confirmed"


def test_too_few_seeds_are_not_judged(diagnostics):
    found = check_findings(check_results(diagnostics[diagnostics.seed < 4]))
    assert set(found.outcome) == {"not judged"}
    assert found.holds.isna().all()
    assert found.ours.notna().all()


def test_a_smoke_run_is_no_evidence(diagnostics):
    assert check_findings(check_results(diagnostics.assign(size="smoke"))).empty
    diagnostics["size"] = np.where(diagnostics.study == "faces", "smoke", "full")
    found = outcomes(diagnostics)
    assert (found[4], found[7]) == ("not run", "confirmed")


def test_a_missing_condition_leaves_its_finding_open(diagnostics):
    some = diagnostics[diagnostics.dataset != "svhn"]
    found = outcomes(some)
    assert (found[1], found[2], found[3]) == ("not judged", "not judged", "confirmed")


def test_a_study_that_was_not_run_is_said(diagnostics, results):
    found = outcomes(diagnostics[diagnostics.study == "clinical"])
    assert found == dict.fromkeys(range(1, 7), "not run") | {7: "confirmed"}
    assert check_findings(check_results(results)).empty


def test_checks_carry_the_paper_ours_and_the_control(diagnostics):
    shift(diagnostics, 0.2, study="faces", method="oracle")
    found = check_findings(check_results(diagnostics))
    first = found[(found.finding == 4) & (found.label == "1%")].iloc[0]
    assert (first.paper, first.ours, first.control) == pytest.approx((0.941, 0.941, 0.7))
    [excess] = found[(found.finding == 5) & (found.label == "1%")].ours
    assert excess == pytest.approx(0.241)
    assert found[found.finding == 1].control.tolist() == pytest.approx([0.514] * 12)
    assert any("(about 51,200 rows, not 100,000)" in label for label in found.label)


def test_the_leaking_split_and_other_choices_of_identities_do_not_count(diagnostics):
    shift(diagnostics, 0.4, dataset="mtsamples_rows")
    shift(diagnostics, -0.4, forget_choice=["most_frequent", "single"])
    assert outcomes(diagnostics) == dict.fromkeys(range(1, 8), "confirmed")


def test_outcomes_by_rule():
    held, failed, few = (Check("", 0.5, 0.5, 0.5, 5, holds) for holds in (True, False, None))
    assert judge([held, held, failed, failed]) == "partly confirmed"
    assert judge([held, failed, failed]) == "refuted"
    assert judge([held, few]) == "not judged"
    assert judge([Check("", 0.5, math.nan, math.nan, 0, None)]) == "not run"
    assert len({finding.claim for finding in FINDINGS}) == len(FINDINGS) == 7
