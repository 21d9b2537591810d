"""A report shows itself: one line, a page of a notebook."""

import math
from dataclasses import replace

import pytest
from tests.auditing.report.factory import VERDICTS, make_report

from ruler.auditing.findings import GuardFinding, find_worst
from ruler.auditing.report.words import choose_headline


@pytest.mark.parametrize("verdict", VERDICTS)
def test_notebooks_get_the_verdict_without_scripts(verdict):
    hostile, severity = "<script>alert(1)</script>", "fail" if verdict == "invalid" else "warn"
    report = make_report(verdict, guards=[GuardFinding(hostile, severity, hostile, hostile)], ids=[hostile] * 40)
    report = replace(report, reason=hostile, needs=[hostile])
    page = report._repr_html_()
    assert f"RULER audit: {verdict}." in page
    assert choose_headline(report) in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert len(page) < 10_000
    assert page.count("<li>") == page.count("</li>") == 2


def test_the_representation_is_one_line():
    text = repr(make_report("residual"))
    assert text.startswith("<Report: residual, 0.84 [0.75, 0.93] remains (loss residual, readout residual, ")
    assert "40 forget records, 2 guard findings" in text
    assert "\n" not in text
    assert len(text) < 300


def test_an_amount_that_nothing_is_known_of_hides_no_other():
    report = make_report()
    known = report.outputs.remaining
    worse = replace(known, value=-0.6, low=-0.7, high=-0.5, at_least=-0.7, at_most=-0.5)
    endless = replace(known, low=-math.inf, high=math.inf, at_least=-math.inf, at_most=math.inf)
    assert find_worst([endless, known, worse]) == worse
    assert find_worst([endless]) == endless
    assert find_worst([]) is None
    for one, other in ((endless, known), (known, endless)):
        told = replace(
            report, outputs=replace(report.outputs, remaining=one), layers=replace(report.layers, remaining=other)
        )
        assert told.remaining == known
