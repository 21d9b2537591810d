"""Reports on paper, by both browsers: every record, every column, and the headings on every page."""

import re
import shutil
import subprocess

import pytest
from tests.auditing.report.factory import make_report

pytestmark = pytest.mark.browser


def read_pages(pdf):
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext on PATH: apt-get install poppler-utils")
    found = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], capture_output=True, text=True, check=True)
    return found.stdout.split("\f")[:-1]


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_no_table_is_cut(browser, request, tmp_path):
    running = request.getfixturevalue(browser)
    folder = make_report("inconclusive", n_forget=120, n_groups=4, n_layers=2).save(
        tmp_path / "report", also=["pdf"] if browser == "chromium" else []
    )
    pdf = folder / "report.pdf"
    if browser == "firefox":
        running.open(folder / "report.html")
        running.print_page(pdf)
    pages = read_pages(pdf)
    listed = [page for page in pages if re.search(r"patient-\d{5} +person", page)]
    assert len(listed) > 1
    assert all("Loss gap" in page and "Shift" in page for page in listed)  # headings repeated, to the last column
    rows = [line for page in listed for line in page.splitlines() if re.search(r"patient-\d{5} +person", line)]
    assert len(rows) == 120
    assert all(re.search(r"[+\u2212]\d\.\d+$", row.rstrip()) for row in rows)  # the last column holds a shift
    for heading, table in (
        ("Remaining, members\u2019", "original Verdict"),
        ("Does the model still work?", "Linear CKA"),
        ("Metrics and tests", "M1 oracle"),
        ("The paper\u2019s own nulls", "misleads"),
        ("Records", "Nearest retain"),
    ):
        assert any(heading in page and table in page for page in pages), heading
