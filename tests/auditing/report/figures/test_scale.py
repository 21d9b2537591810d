"""The scale: what remains with its interval, and persons and records along it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.report.factory import NAN, VERDICTS, make_remaining, make_report

from ruler.auditing.records import ALIKE
from ruler.auditing.report.figures import draw_across, draw_amounts, draw_scale, draw_strip
from ruler.auditing.report.figures.axes import EDGE, WIDTH
from ruler.auditing.report.figures.scale import fit_scale, judge_rows
from ruler.auditing.settings import AuditSettings


def give(report, value, low, high):
    found = replace(make_remaining("loss", value), low=low, high=high, at_least=low, at_most=high)
    return replace(report, outputs=replace(report.outputs, remaining=found))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_outputs_and_layers_lie_on_one_scale(verdict):
    report = make_report(verdict)
    figure = draw_scale(report)
    assert [row.label for row in figure.rows] == ["What the model says", "What its layers hold"]
    assert [row.tone for row in figure.rows] == [report.outputs.verdict, report.layers.verdict]
    (_, zero), (_, one) = figure.marks
    assert figure.band[0] < zero < figure.band[1] < one
    assert figure.band[1] - zero == pytest.approx(0.2 * (one - zero), abs=0.1)  # the limit, on the same scale
    for row in (row for row in figure.rows if row.x is not None):
        assert EDGE <= row.whole[0] <= row.inner[0] <= row.x <= row.inner[1] <= row.whole[1] <= WIDTH - EDGE
    assert {"0%", "100%"} <= {tick.label for tick in figure.ticks}
    assert f"What the model says: {figure.rows[0].value}" in figure.sentence


def test_the_marks_say_what_was_measured():
    report = make_report()
    original = replace(report.layers, remaining=report.metrics["readout"].remaining["original"])
    members = replace(report.outputs, remaining=report.metrics["loss"].remaining["members"])
    assert [label.label for label, _ in draw_scale(replace(report, outputs=members, layers=original)).marks] == [
        "never seen: oracle",
        "trained on: original or members",
    ]
    by_members = draw_scale(replace(report, outputs=members, layers=members))
    assert by_members.marks[1][0].label == "trained on: members"
    bare = draw_scale(make_report(has_oracle=False, has_original=False))
    assert [label.label for label, _ in bare.marks] == ["never seen", "trained on: members"]


def test_intervals_that_go_on_are_cut_and_unknown_ones_are_no_dot():
    report = make_report("erased")
    (row, _) = draw_scale(give(report, 0.5, -8.0, 9.0)).rows
    assert row.cut == (True, True)
    assert (row.whole[0], row.whole[1]) == (EDGE, WIDTH - EDGE)
    (row, _) = draw_scale(give(report, 0.5, -0.1, math.inf)).rows
    assert row.cut == (False, True)
    for unknown in (give(report, 4.0, -math.inf, math.inf), give(report, NAN, NAN, NAN)):
        (row, other) = draw_scale(unknown).rows
        assert row.x is None
        assert "not known" in row.words
        assert other.x is not None


def test_layers_that_were_not_asked_say_so():
    figure = draw_scale(make_report("erased", settings=AuditSettings(scope="outputs")))
    assert "not asked" in figure.rows[1].words
    assert "not asked" not in figure.rows[0].words


def test_every_contrast_has_a_row_per_scale():
    labels = [row.label for row in draw_amounts(make_report()).rows]
    assert labels == [
        "Loss, the original's scale",
        "Loss, the members' scale",
        "Readout, the original's scale",
        "Readout, the members' scale",
    ]
    assert draw_amounts(make_report("inconclusive", n_held_out=0)) is None


def test_reports_side_by_side():
    reports = {"before": make_report("residual"), "after": make_report("erased")}
    figure = draw_across(reports)
    assert [row.label for row in figure.rows][:2] == ["before: what the model says", "before: what its layers hold"]
    assert figure.limit == "limit 20%"
    other = replace(reports["after"], settings=AuditSettings(limit=0.3))
    assert draw_across({**reports, "after": other}).band is None
    untested = make_report("inconclusive", n_held_out=0)
    assert draw_across({"a": untested, "b": untested}) is None


def test_the_strip_holds_every_record_once():
    report = make_report("residual", n_forget=60)
    strip = draw_strip(report)
    assert len(strip.dots) == 60
    assert sum(int(text.split()[0]) for _, text, _ in strip.counts) == 60
    assert len({(x, y) for x, y, _ in strip.dots}) == 60
    assert all(EDGE <= x <= WIDTH - EDGE and 20 <= y < strip.base for x, y, _ in strip.dots)
    n_flagged = int((report.records["finding"] != ALIKE).sum())
    assert sum(word == "residual" for *_, word in strip.dots) == n_flagged
    scale = draw_scale(report)
    assert strip.band == scale.band  # one axis for both


def test_many_records_are_thinned_but_none_that_stands_out():
    report = make_report("residual", n_forget=5000)
    strip = draw_strip(report)
    n_flagged = int((report.records["finding"] != ALIKE).sum())
    assert n_flagged > 0
    assert len(strip.dots) == 300
    assert sum(word == "residual" for *_, word in strip.dots) == min(300, n_flagged)
    assert "300 of 5,000 records are drawn" in strip.note


def test_the_strip_counts_records_above_the_limit_one_by_one():
    report = make_report("erased")
    report.records["low"] = [0.3, 0.21, *[-0.2] * 38]
    assert "One by one, 2 records lie above the limit with the whole interval" in draw_strip(report).note
    report.records.loc[0, "low"] = NAN
    assert "One by one, 1 record lies above the limit" in draw_strip(report).note
    assert "One by one" not in draw_strip(make_report("residual", n_groups=6)).note


def test_persons_take_the_place_of_records():
    report = make_report("residual", n_groups=6)
    strip = draw_strip(report)
    assert strip.noun == "group"
    assert len(strip.dots) == 6
    assert sorted(word for *_, word in strip.dots) == sorted(report.groups["verdict"])


def test_what_was_not_measured_is_not_drawn():
    report = make_report()
    report.records.loc[:4, "remaining"] = NAN
    assert len(draw_strip(report).dots) == 35
    assert "5 records could not be measured." in draw_strip(report).note
    report.records["remaining"] = NAN
    assert draw_strip(report) is None


def test_records_are_coloured_by_what_was_shown_of_them():
    records = make_report(n_forget=4).records.assign(
        finding=["apart", "apart", ALIKE, ALIKE], low=[0.1, -0.9, -0.1, -0.3], high=[0.9, -0.4, 0.1, 0.4]
    )
    assert judge_rows(records, 0.2) == ["residual", "displaced", "erased", "inconclusive"]


@pytest.mark.parametrize("ends", [[], [0.5], [-9.0, 40.0], [NAN], [math.inf]])
def test_the_axis_always_holds_zero_one_and_the_limit(ends):
    axis = fit_scale(ends, 0.4)
    assert axis.low < -0.4
    assert 1.0 < axis.high <= 2.05
    assert np.isfinite([axis.low, axis.high]).all()
