"""A short campaign of kills; `python -m tests.faults.kill` runs a long one."""

from pathlib import Path

import pytest
from tests.faults.kill import TARGETS, describe, run_campaign, write


def test_kills_lose_and_change_nothing(tmp_path: Path) -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("finding workers to kill needs /proc")
    small = ["--seeds", "1", "--forget-fractions", "0.05"]
    counts = run_campaign(4, 2, words=small, seed=1, folder=tmp_path)
    assert sum(counts[target] for target in TARGETS) == 4
    assert counts["seen"] > 0
    assert counts["reports"] >= 2
    assert [counts[fault] for fault in ("lost", "changed", "orphans", "torn")] == [0, 0, 0, 0]
    page = tmp_path / "page.md"
    page.write_text(
        "".join(f"<!-- measured: {name} -->\nearlier\n<!-- end -->\n" for name in describe(counts)) + "rest\n"
    )
    write(describe(counts), page)
    assert "| 4 |" in page.read_text()
    assert page.read_text().endswith("<!-- end -->\nrest\n")
    assert "earlier" not in page.read_text()
