"""A short campaign of kills; `python -m tests.faults.kill` runs a long one."""

from pathlib import Path

import pytest
from tests.faults.kill import SCORES, TARGETS, Scores, describe, run_campaign, write

from ruler.experiment.cell import Workplace, run_job
from ruler.experiment.grid import group_jobs, list_cells
from ruler.experiment.settings import StudySettings


@pytest.fixture
def wanted(tmp_path: Path, one_thread: None) -> Scores:
    """What the campaign's study gives in this process."""
    names = SCORES.split(", ")
    methods = ("gradient_ascent", "scrub")
    study = StudySettings("primary", ("breast_cancer",), methods, (0.05,), (0,), has_reference_rows=True)
    jobs = group_jobs(list_cells(study))
    outcomes = [outcome for job in jobs for outcome in run_job(job, Workplace(tmp_path / "models"), n_threads=1)]
    return {one.cell.key: tuple((one.scores or {}).get(name) for name in names) for one in outcomes}


def test_kills_lose_and_change_nothing(tmp_path: Path, wanted: Scores) -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("finding workers to kill needs /proc")
    small = ["--seeds", "1", "--forget-fractions", "0.05"]
    # this seed kills a worker that loads, and the group right after the first row: both long before the study ends
    counts = run_campaign(2, 1, words=small, seed=8676, folder=tmp_path, wanted=wanted)
    assert sum(counts[target] for target in TARGETS) == 2
    assert len(wanted) == 4
    assert counts["cells"] == 4 * counts["studies"] > 0  # a study that ends before its kills is followed by another
    assert counts["seen"] > 0
    assert counts["reports"] >= 1
    assert [counts[fault] for fault in ("lost", "changed", "orphans", "torn")] == [0, 0, 0, 0]
    page = tmp_path / "page.md"
    page.write_text(
        "".join(f"<!-- measured: {name} -->\nearlier\n<!-- end -->\n" for name in describe(counts)) + "rest\n"
    )
    write(describe(counts), page)
    assert "| 2 |" in page.read_text()
    assert page.read_text().endswith("<!-- end -->\nrest\n")
    assert "earlier" not in page.read_text()
