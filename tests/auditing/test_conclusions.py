"""The numbers of a metric: values, intervals, and what would be needed to see more."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind
from tests.auditing.cases import FAST, QUICK, make_cleared

import ruler
from ruler.auditing import audit, gather_evidence
from ruler.auditing.conclusions import conclude_metrics
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.measure import measure_contrasts
from ruler.auditing.records import NOT_JUDGED


def test_without_held_out_records_there_are_numbers_but_no_test(build_world):
    given = make_cleared(build_world)
    models = {name: model[:2] for name, model in given.items() if name != "settings"}
    report = audit(**models, settings=FAST)
    assert report.verdict == "inconclusive"
    assert "No held-out records were given" in report.reason
    assert report.needs[0].startswith("Held-out records: at least 300")
    for one in report.metrics.values():
        assert np.isfinite(one.value)
        assert np.isnan([one.p_value, one.adjusted_p_value, one.equivalence_p_value, one.effect]).all()
        assert (one.control, one.test) == ("none", "none")
        assert one.verdict in ("inconclusive", "descriptive")
    assert set(report.records["finding"]) == {NOT_JUDGED}
    assert report.privacy is None


def test_too_few_records_for_the_margin_are_inconclusive_and_say_how_many_would_do(build_world):
    given = make_cleared(build_world, sizes=(8, 400, 300))
    report = audit(**given)
    m2 = report.metrics["m2"]
    assert report.verdict == "inconclusive"
    assert m2.p_value > 0.05
    assert m2.minimum_detectable_effect > 0.2
    assert m2.n_needed > 8
    assert any("forget records with" in need for need in report.needs)


def test_values_are_the_papers_numbers_and_nulls_are_the_controls(make_world):
    unlearned, oracle = make_world(moved=0.3)
    original, _ = make_world(seed=0, moved=0.9)
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    expected = ruler.all_metrics(unlearned[0], unlearned[1], oracle[0], oracle[1], original[0])
    assert {name: report.metrics[name].value for name in expected} == pytest.approx(expected)
    held_out = ruler.all_metrics(unlearned[2], unlearned[1], oracle[2], oracle[1], original[2])
    assert {name: report.metrics[name].null for name in expected} == pytest.approx(held_out)
    for name in expected:
        one = report.metrics[name]
        assert one.difference == pytest.approx(one.value - one.null)
        assert one.interval[0] < one.value < one.interval[1]
        assert one.difference_interval[0] < one.difference < one.difference_interval[1]
        assert one.effect_interval[0] < one.effect <= one.effect_interval[1]


def test_the_report_bounds_what_the_sample_does_to_m4(make_world):
    model, _ = make_world()
    settings = replace(QUICK, n_reference=200)
    report, exact = audit(model, settings=settings), audit(model, settings=QUICK)
    m4 = report.metrics["m4"]
    assert m4.reference_error == pytest.approx(math.sqrt(math.log(2 / 0.05) / 400))
    assert f"200 retain records drawn at random: M4 is within {m4.reference_error:.4f}" in m4.reason
    assert exact.metrics["m4"].reference_error is None
    assert 0 < abs(m4.value - exact.metrics["m4"].value) <= m4.reference_error
    assert (m4.p_value, m4.effect, m4.verdict) == (
        exact.metrics["m4"].p_value,
        exact.metrics["m4"].effect,
        exact.metrics["m4"].verdict,
    )


def test_a_sample_serves_without_held_out_records_too(make_world):
    model, _ = make_world()
    report = audit(model[:2], settings=replace(QUICK, n_reference=100))
    assert report.metrics["m4"].reference_error is not None
    assert report.verdict == "inconclusive"


def test_the_summary_states_the_bound(make_world):
    model, _ = make_world()
    text = " ".join(str(audit(model, settings=replace(QUICK, n_reference=200))).split())
    assert (
        "M4 was computed with 200 retain records drawn at random. Its value is within 0.0960 of that with all" in text
    )
    assert "drawn at random" not in str(audit(model, settings=QUICK))


def test_intervals_of_means_are_students_and_welchs(build_world):
    unlearned = build_world(0, sizes=(2, 30, 3)).model()
    evidence = gather_evidence(unlearned, settings=QUICK)
    found = measure_contrasts(evidence)
    metric = conclude_metrics(evidence, found)["m4"]
    forget, held_out = (CONTRASTS["m4"].value(evidence.main, [])[side] for side in ("forget", "held_out"))
    one = ttest_1samp(forget, 0.0).confidence_interval()
    assert metric.interval == pytest.approx((one.low, one.high))
    both = ttest_ind(forget, held_out, equal_var=False).confidence_interval()
    assert metric.difference_interval == pytest.approx((both.low, both.high))


def test_one_record_has_a_value_and_no_interval(build_world):
    evidence = gather_evidence(build_world(0, sizes=(1, 30, 9)).model(), settings=QUICK)
    metric = conclude_metrics(evidence, measure_contrasts(evidence))["m4"]
    assert math.isfinite(metric.value)
    assert np.isnan([*metric.interval, *metric.difference_interval]).all()


def test_layers_are_profiled_where_there_are_several(build_world):
    world = build_world(0, sizes=(30, 60, 40))
    one = world.model()
    assert audit(one, settings=QUICK).metrics["m4"].layers == ()
    layers = tuple({"first": first, "last": last} for first, last in zip(one, world.model(), strict=True))
    evidence = gather_evidence(layers, settings=QUICK)
    found = measure_contrasts(evidence)
    profile = conclude_metrics(evidence, found)["m4"].layers
    assert [layer.layer for layer in profile] == ["first", "last"]
    for layer in profile:
        own = {strand.part: strand.effect.value for strand in found["m4"].strands if strand.layer == layer.layer}
        assert (layer.effect, layer.spread) == (own["place"], own["spread"])
