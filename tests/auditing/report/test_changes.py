from dataclasses import replace

import pytest
from tests.auditing.report.factory import make_report

from ruler import compare_reports
from ruler.core.errors import InputError


def test_says_what_changed_from_report_to_report():
    before, after = make_report("residual"), make_report("erased")
    found = compare_reports({"before": before, "after": after})
    assert found.table["verdict"].tolist() == ["residual", "erased"]
    assert "From before to after the verdict changed from residual to erased." in found.changes
    assert (
        "From before to after what the model says changed from 35% [26%, 44%], residual to 5% [-4%, 14%], erased."
        in found.changes
    )
    assert found.table["layers"].tolist() == ["84% [75%, 93%], residual", "4% [-5%, 13%], erased"]
    text = str(found)
    assert "before" in text
    assert "AUC" in text
    assert "<li>From before to after the verdict changed" in found._repr_html_()


def test_other_rules_and_records_are_said_first():
    before = make_report("residual")
    records = before.records.assign(id=[f"other {n}" for n in range(len(before.records))])
    after = replace(before, settings=replace(before.settings, limit=0.3), records=records, metrics={}, guards=[])
    first, second, *rest = compare_reports([before, after]).changes
    assert "the forget records are not the same" in first
    assert "limit changed from 0.2 to 0.3" in second
    assert "m4 is only in report 1." in rest
    assert sum("no longer finds anything" in line for line in rest) == len({guard.name for guard in before.guards})


def test_saved_reports_are_read_and_equal_ones_show_no_change(tmp_path):
    report = make_report("erased")
    report.save(tmp_path / "a")
    found = compare_reports([tmp_path / "a", report])
    assert found.changes == []
    assert str(found).endswith("Nothing has changed.")


def test_names_cannot_control_the_page_or_the_terminal():
    report = make_report("erased")
    found = compare_reports({"<b>": report, "\x1b[31m": replace(report, verdict="residual")})
    assert "\x1b" not in str(found)
    assert "<b>" not in found._repr_html_()


@pytest.mark.parametrize("given", [[], ["x"], "ab", None, [1, 2]])
def test_fewer_than_two_reports_are_refused(given):
    with pytest.raises(InputError, match="must be"):
        compare_reports(given)
