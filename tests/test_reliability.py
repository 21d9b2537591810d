"""What docs/reliability.md says was measured is there, and shows what it should."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text(encoding="utf-8")
MEASURED = dict(re.findall(r"<!-- measured: ([a-z ]+) -->\n(.*?)<!-- end -->", PAGE, flags=re.S))
MEASURED["changed files"] = PAGE.partition("<!-- fuzz: begin -->")[2].partition("<!-- fuzz: end -->")[0]


def read_rows(name):
    """Cells of every row under the first header of a section."""
    table = re.findall(r"(?:^\|.*\n)+", MEASURED[name], flags=re.M)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_all_tables_are_there():
    names = {"kills", "kills of reports", "bundles", "hostile files", "forgeries", "mutants", "changed files"}
    assert {name for name in MEASURED if read_rows(name)} == names


@pytest.mark.parametrize("name", ["kills", "kills of reports"])
def test_kills_lost_nothing(name):
    rows = read_rows(name)
    assert all(row[-1].startswith("0 ") for row in rows)
    assert int(rows[0][1]) >= (200 if name == "kills" else 50)


def test_nothing_ran_from_bundles():
    for _, *audits, on_purpose in read_rows("bundles"):
        assert all(cell.startswith("0 of ") for cell in audits)
        n_ran, n_traps = re.findall(r"\d+", on_purpose)
        assert n_ran == n_traps


def test_hostile_files_end_in_one_line():
    for _, status, n_lines, cpu_s, megabytes in read_rows("hostile files"):
        assert (status, n_lines) == ("2", "1")
        assert float(cpu_s) < 2
        assert float(megabytes) < 500


def test_changes_of_reports_are_found():
    rows = read_rows("forgeries")
    assert all(tried == found for _, tried, found in rows)
    assert rows[0][1] == "1,000"
    assert sum(int(tried) for change, tried, _ in rows if change.startswith("forged by hand")) >= 20


def test_changed_files_end_in_a_result_or_an_error_of_ours():
    rows = read_rows("changed files")
    assert len(rows) >= 25
    assert sum(int(row[1].replace(",", "")) for row in rows) >= 5_000_000
    assert all(row[-1] == "0" for row in rows)


def test_most_mutants_are_killed():
    score = {row[0]: float(row[-1].rstrip("%")) for row in read_rows("mutants")}
    assert list(score) == ["metrics", "stats", "auditing", "all"]
    assert score["all"] >= 92
