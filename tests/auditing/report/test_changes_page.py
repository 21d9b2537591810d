"""Reports side by side as a page."""

from dataclasses import replace

import pytest
from tests.auditing.report.factory import make_report
from tests.auditing.report.test_page import HOSTILE, outline, words_of

from ruler import compare_reports
from ruler.auditing.findings import GuardFinding
from ruler.core.errors import WriteError


def make_pair():
    before, after = make_report("residual"), make_report("erased", seed=1)
    after.records["id"] = before.records["id"]
    return {"before": before, "after": after}


def save(reports, folder):
    return compare_reports(reports).save(folder / "changes.html").read_text(encoding="utf-8")


def test_page_tells_what_changed_and_what_it_rests_on(tmp_path):
    reports = make_pair()
    reports["after"] = replace(reports["after"], settings=replace(reports["after"].settings, limit=0.3))
    page = save(reports, tmp_path)
    text = words_of(page)
    assert "The verdict changed from residual to erased." in text
    for line in compare_reports(reports).changes:
        assert line in text
    assert "Loss, the members' scale 35% [26%, 44%], residual 5% [-4%, 14%], within limit" in text
    assert "M2 calibration gap, AUC 0.24 [0.15, 0.33], residual 0.48 [0.42, 0.54], inconclusive" in text
    assert "Forget records 40 40" in text
    assert '<tr class="differs"><th scope="row">Limit</th>' in page
    assert '<tr><th scope="row">Error rate</th>' in page
    assert "before: what the model says: 35% [26%, 44%], residual." in text
    n_moved = int((reports["before"].records["q_value"] <= 0.05).sum())
    assert f"{n_moved} forget records" in text


@pytest.mark.parametrize(
    "reports",
    [
        make_pair(),
        {"a": make_report("residual"), "b": make_report("residual")},
        {"a": make_report("invalid"), "b": make_report("damaged"), "c": make_report("inconclusive", n_held_out=0)},
        {"a": make_report("inconclusive", n_held_out=0), "b": make_report("inconclusive", n_held_out=0)},
    ],
    ids=["two", "equal", "three", "untested"],
)
def test_structure_is_sound(reports, tmp_path):
    page = save(reports, tmp_path)
    found = outline(page)
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.references) <= set(found.ids)
    assert found.tags.count("caption") == found.tags.count("table")
    assert not found.inline
    assert "default-src 'none'" in page
    assert "unsafe" not in page


def test_headline_counts_reports(tmp_path):
    one, other = make_report("residual"), make_report("erased")
    assert "The verdict is residual in both reports." in save({"a": one, "b": one}, tmp_path)
    assert "The verdicts are residual, erased and residual, in this order." in save(
        {"a": one, "b": other, "c": one}, tmp_path
    )
    assert "Nothing has changed." in save({"a": one, "b": one}, tmp_path)


def test_hostile_text_stays_text(tmp_path):
    before = make_report(ids=[HOSTILE + str(n) for n in range(40)], guards=[GuardFinding(HOSTILE, "warn", "", "")])
    after = replace(
        before, verdict="erased", declared={"model": HOSTILE}, records=before.records.assign(finding=HOSTILE)
    )
    page = save({HOSTILE: before, "id": after}, tmp_path)
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "alert(1)" in page


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(WriteError):
        compare_reports(make_pair()).save(tmp_path / "x" / "changes.html")
