import json
import math
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.comparison import BENCH, NAMES, PAGE, SETTINGS, gather_finished, run_bounded
from benchmarks.comparison_tables import (
    FIGURE,
    TABLES,
    TITLES,
    describe,
    keep_runs,
    read_runs,
    show_measured,
    write_page,
)
from ruler.experiment.compare.settings import CompareSettings, read_settings
from ruler.unlearning import METHODS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("mark", ["figure", *TABLES])
def test_the_page_shows_what_was_measured(mark: str) -> None:
    known = read_runs(BENCH)
    lines = show_measured(known)[mark]
    assert bool(known) == PAGE.with_name(FIGURE).is_file()
    assert "\n".join(["", f"<!-- measured: compare {mark} -->", *lines, "<!-- end -->", ""]) in PAGE.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_all_methods_of_classifiers_are_compared(name: str) -> None:
    wanted = read_settings(SETTINGS / f"{name}.toml")
    own = {key for key, method in METHODS.items() if method.kind in ("any", "classifier") and method.source}
    assert {cell.method for cell in wanted.list_cells(10_000)} - {"original"} == own
    assert name in TITLES


@pytest.fixture
def wanted(tmp_path: Path) -> CompareSettings:
    # SSD cannot reach its threshold here, and is to be kept as failed.
    methods = {"retrain": {}, "newton": {}, "ssd": {"threshold": 100.0}}
    return CompareSettings("breast_cancer", methods=methods, metrics=["cka"], seeds=2, training={"epochs": 1})


def test_runs_stop_in_time_resume_in_parts_and_make_a_page(wanted: CompareSettings, tmp_path: Path) -> None:
    folder, bench = tmp_path / "breast_cancer", tmp_path / "bench"
    assert "0 of 8 runs" in run_bounded(wanted, folder, device="cpu", seconds=0.0, n_parts=3, n_jobs=1)
    assert gather_finished(wanted, folder).empty
    said = run_bounded(wanted, folder, device="cpu", seconds=math.inf, n_parts=3, n_jobs=1)
    assert "6 of 8 runs" in said
    assert "ssd seed 1: InputError: threshold must be below" in said
    runs = gather_finished(wanted, folder)
    assert list(runs["method"]) == ["original", "retrain", "newton", "ssd"] * 2
    bench.mkdir()
    keep_runs(runs, bench / "compare_breast_cancer.csv")
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- measured: compare {mark} -->\n<!-- end -->\n" for mark in ("figure", *TABLES)))
    write_page(bench, page)
    lines = page.read_text().splitlines()
    told = "- breast cancer: `tabular_mlp` on cpu, 3 methods, 2 seeds, 8 audits, 45 records forgotten, 2 runs failed."
    assert told in lines
    assert lines.count("Not measured yet.") == 1
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines if "|" in line
    }
    assert rows["SSD (threshold=100.0)"] == ["", "", "", "2 failed"]
    assert rows["Original"][2] == ""
    assert float(rows["Retraining"][2]) > 0
    assert "<svg" in (tmp_path / "compared.svg").read_text()


def test_a_method_that_only_one_comparison_has_is_said_to_be_not_run(wanted: CompareSettings, tmp_path: Path) -> None:
    row = {"method": "newton", "title": "Newton", "settings": "", "seed": 0, "draw": 1, "model": "resnet18"}
    row |= {"device": "cuda", "n_forget": 9, "verdict": "erased", "seen": "", "remaining": 0.1, "cost": 0.5}
    row |= {"held_out_accuracy": 0.9, "reasons": json.dumps({})}
    keep_runs(pd.DataFrame([row]), tmp_path / "compare_cifar10.csv")
    keep_runs(pd.DataFrame([row | {"method": "ct", "title": "CT"}]), tmp_path / "compare_lfw.csv")
    lines = describe(read_runs(tmp_path))
    assert lines[-2] == "| Newton | 0.100 | 0.900 | 0.50 | 1 erased | not run |  |  |  |"
    assert lines[-1] == "| CT | not run |  |  |  | 0.100 | 0.900 | 0.50 | 1 erased |"
