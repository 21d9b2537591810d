"""A report shows itself: one line, a page of a notebook."""

from dataclasses import replace

import pytest
from tests.auditing.report.factory import VERDICTS, make_report

from ruler.auditing.findings import GuardFinding
from ruler.auditing.report.wording import choose_headline


@pytest.mark.parametrize("verdict", VERDICTS)
def test_notebooks_get_the_verdict_without_scripts(verdict):
    hostile = "<script>alert(1)</script>"
    report = make_report(verdict, guards=[GuardFinding(hostile, "warn", hostile, hostile)], ids=[hostile] * 40)
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
    assert text.startswith("<Report: residual (m1 descriptive, m2 residual, ")
    assert "40 forget records, 2 guard findings" in text
    assert "\n" not in text
    assert len(text) < 300
