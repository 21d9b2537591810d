import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.frontier import CHECKPOINTS, PUBLISHED, SETUPS, SHARES, Run, run_models
from benchmarks.frontier_tables import keep_rows, show_measured, summarize, tabulate, write_page
from benchmarks.measure import read_rows
from ruler.training.settings import TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread")


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["frontier", "frontier_cifar10", "frontier_lfw"])
def test_the_page_shows_what_was_measured(name: str) -> None:
    path, page = ROOT / "docs" / "bench" / f"{name}.csv", (ROOT / "docs" / "frontier.md").read_text()
    shown = "\n".join(["", f"<!-- measured: {name.replace('_', ' ')} -->", *show_measured(path), "<!-- end -->", ""])
    assert shown in page
    assert path.is_file() == (f"]({name}.svg)" in page) == (ROOT / "docs" / f"{name}.svg").is_file()


def make_rows() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for memory in ("true", "planted"):
        for draw in range(3):
            run = {"data": "adult", "memory": memory, "draw": draw, "m2_auc": 0.5, "m4_auc": 0.5, "norm_auc": 0.5}
            run |= {"retain_accuracy": 0.9, "damage_skill": 1.0, "damage_similarity": 1.0, "reason": "none"}
            retrain = {"model": "retrain", "cost": 1.0, "loss_auc": 0.5, "test_accuracy": 0.8, "is_clear": True}
            short = {"model": "fresh-0.1", "cost": 0.1, "loss_auc": 0.46, "test_accuracy": 0.79, "is_clear": True}
            rows.append(run | retrain | {"verdict": "erased" if draw else "inconclusive"})
            rows.append(run | short | {"verdict": ("erased", "erased", "damaged")[draw]})
    return rows


def test_a_model_is_asked_only_where_retraining_is_erased(tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in make_rows()]
    (tmp_path / "adult.jsonl").write_text("\n".join(lines) + "\n")
    keep_rows(tmp_path, tmp_path / "frontier_one.csv")
    table = pd.read_csv(tmp_path / "frontier_one.csv")
    found = summarize(table[table["memory"] == "true"]).set_index("model")
    assert list(found.index) == ["fresh-0.1", "retrain"]  # the cheapest first
    short = found.loc["fresh-0.1"]
    assert (short["n"], short["n_asked"], short["n_erased"], short["n_clear"], short["n_damaged"]) == (3, 2, 1, 3, 1)
    assert short["lost"] == pytest.approx(0.01)
    page = tmp_path / "page.md"
    page.write_text("<!-- measured: frontier one -->\n<!-- end -->\n")
    write_page(tmp_path / "frontier_one.csv", page)
    line = "| `fresh-0.1` | 0.10 | 1 of 2 | 1 of 2 | 6 of 6 | 0 of 6 | 2 of 6 "
    line += "| 0.460 ± 0.000 | 0.460 ± 0.000 | 1.0 ± 0.0 |"
    assert line in page.read_text()
    assert "<svg" in (tmp_path / "frontier_one.svg").read_text()


def test_a_run_that_was_cut_short_has_a_table_too() -> None:
    rows = [row for row in make_rows() if row["memory"] == "planted" and row["draw"] == 0]
    lines = tabulate(pd.DataFrame(rows))
    assert lines[2] == "| `fresh-0.1` | 0.10 | 0 of 0 | 0 of 0 | 1 of 1 | 0 of 1 | 0 of 1 |  | 0.460 | 1.0 |"
    assert len(tabulate(pd.DataFrame(rows[1:]))) == 3  # retraining is not there yet


def test_models_of_images_are_made_and_audited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (420, 8, 8, 3), dtype=np.uint8), rng.integers(0, 3, 420)
    monkeypatch.setattr("benchmarks.worlds._load", lambda dataset, shrink: (images.transpose(0, 3, 1, 2), labels, 3))
    sizes = {"forget": 40, "retain": 160, "held_out": 80, "validation": 40, "test": 80}
    quick = replace(SETUPS["cifar10"].settings, epochs=2, batch_size=64, precision="float32")
    monkeypatch.setitem(
        SETUPS, "cifar10", replace(SETUPS["cifar10"], sizes=sizes, settings=quick, architecture="small_cnn")
    )
    assert run_models("cifar10", "true", 0, "cpu", tmp_path, math.inf)
    table = pd.DataFrame(read_rows(tmp_path / "cifar10-true-0.jsonl"))
    assert {"fresh-0.15", "rewound-0.5", "tested", "filtered", "salun"} <= set(table["model"])
    assert run_models("cifar10", "true", 0, "cpu", tmp_path, 0.0)  # whole, so nothing is run again


def test_every_model_is_made_and_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"forget": 30, "retain": 120, "held_out": 60, "validation": 30, "test": 60}
    quick = TrainingSettings(epochs=10, learning_rate=3e-3, batch_size=32)
    usual = SETUPS["electricity"]
    monkeypatch.setitem(SETUPS, "breast_cancer", type(usual)(sizes, quick, 2.0))
    run = Run("breast_cancer", "planted", 0, "cpu")
    models = run.list_models()
    assert len(models) == 2 + len(SHARES) + len(CHECKPOINTS) + 3 + len(PUBLISHED)
    for name in ("original", "fresh-0.2", "rewound-0.5", "tested", "filtered"):
        row = run.measure(name, models[name])
        assert {"verdict", "cost", "test_accuracy", "loss_auc", "is_clear"} <= row.keys()
        assert 0 <= row["test_accuracy"] <= 1
