"""A short campaign of kills; `python -m tests.faults.kill` runs a long one."""

from pathlib import Path

import pytest
from tests.faults.kill import TARGETS, describe, run_campaign, write


def test_ten_kills_lose_and_change_nothing(tmp_path: Path) -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("finding workers to kill needs /proc")
    counts = run_campaign(7, 3, n_seeds=1, seed=1, folder=tmp_path)
    assert sum(counts[target] for target in TARGETS) == 7
    assert counts["seen"] > 0
    assert counts["reports"] >= 3
    assert [counts[fault] for fault in ("lost", "changed", "orphans", "torn")] == [0, 0, 0, 0]
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- measured: {name} -->\nold\n<!-- end -->\n" for name in describe(counts)) + "rest\n")
    write(describe(counts), page)
    assert "| 7 |" in page.read_text()
    assert page.read_text().endswith("<!-- end -->\nrest\n")
    assert "old" not in page.read_text()
