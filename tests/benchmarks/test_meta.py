import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.meta import KINDS, N_DRAWS, WORLDS, list_planned
from benchmarks.meta_tables import (
    OURS,
    judge_metric,
    keep_rows,
    read_rows,
    tabulate_metrics,
    tabulate_verdicts,
    write_tables,
)
from benchmarks.worlds import make_world
from ruler.training.settings import TrainingSettings

ROOT = Path(__file__).parents[2]
KNOWING = {"with": 2.0, "faint": 2.0, "without": 1.0, "alike": 1.0, "longer": 1.5}


def test_the_pool_is_balanced() -> None:
    pool = [planned for draw in range(N_DRAWS) for planned in list_planned(draw)]
    assert len({planned.name for planned in pool}) == len({planned.seed for planned in pool}) == len(pool)
    counts = Counter(planned.kind for planned in pool)
    assert {counts[kind] for kind in KINDS} == {3 * N_DRAWS}
    assert 2 * 3 * N_DRAWS * len(WORLDS) >= 30  # knowing models, and as many others
    variants = Counter(planned.variant for planned in pool if planned.kind in ("faint", "alike"))
    assert set(variants.values()) == {3}


def test_the_page_shows_what_was_measured() -> None:
    table, page = read_rows(ROOT / "docs" / "bench" / "which_metric.csv"), ROOT / "docs" / "which_metric.md"
    for lines in (tabulate_metrics(table), tabulate_verdicts(table)):
        assert "\n".join(lines) in page.read_text()


def write_rows(folder: Path, values: dict[str, dict[str, float]]) -> Path:
    folder.mkdir(parents=True)
    lines = []
    for world in ("a-true", "b-planted"):
        for draw in range(N_DRAWS):
            for planned in list_planned(draw):
                found = {name: by_kind[planned.kind] for name, by_kind in values.items()} | {"retain_accuracy": 1.0}
                facts = {"part": "pool", "kind": planned.kind, "variant": planned.variant or None}
                verdict = "residual" if planned.kind in ("with", "faint") else "erased"
                row: dict[str, Any] = {"world": world, "draw": draw, "seed": planned.seed, **facts, "values": found}
                lines.append(json.dumps(row | {"verdict_1": verdict, "verdict_5": "inconclusive"}))
        for method, state, value in (
            *(("oracle", "plain", 1.0), ("oracle", "relearned", 1.25), ("oracle", "longer", 1.0)),
            *(("scrub", "plain", 1.0), ("scrub", "relearned", 1.5), ("scrub", "longer", 1.2)),
        ):
            found = {name: -value if name == "forget_loss" else value for name in values} | {"retain_accuracy": 1.0}
            facts = {"part": "attacks", "kind": method, "variant": state}
            lines.append(json.dumps({"world": world, "draw": 0, **facts, "verdict_1": "erased", "values": found}))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    keep_rows(folder, folder / "rows.csv")
    return folder / "rows.csv"


def test_tables_have_the_numbers_of_the_plan(tmp_path: Path) -> None:
    lowered = {kind: -value for kind, value in KNOWING.items()}
    source = write_rows(tmp_path / "run", {"forget_accuracy": KNOWING, "forget_loss": lowered, "mia": lowered})
    table = read_rows(source)
    for name in ("forget_accuracy", "forget_loss"):
        found = judge_metric(table, name, OURS[name])
        assert found["auc"] == found["low"] == found["high"] == found["easy"] == found["longer"] == 1.0
        assert found["relearning"] == pytest.approx(0.5)  # the oracle learns 0.25, the other regains 0.5
        assert found["more_training"] == pytest.approx(0.8)  # a fifth of the way back to "with"
        assert found["missing"] == 0.0
    assert judge_metric(table, "mia", OURS["mia"])["auc"] == 0.0  # its sign is fixed beforehand
    assert judge_metric(table, "mia", OURS["mia"])["wrong_side"] == 0.0
    assert judge_metric(table, "verdict_1", OURS["verdict_1"])["auc"] == 1.0
    page = tmp_path / "page.md"
    marks = [f"<!-- measured: {mark} -->\nold\n<!-- end -->\n" for mark in ("metrics", "verdicts")]
    page.write_text("# Title\n" + "".join(marks))
    write_tables(source, page)
    assert "old" not in page.read_text()
    assert "| retain and forget records | 1 | 12 | 0 | 0 | 12 | 0 | 0 | 0 |" in page.read_text()


def test_a_world_keeps_its_sides_apart_and_plants_wrong_labels() -> None:
    sizes = {"forget": 40, "retain": 100, "held_out": 60, "test": 50}
    settings = TrainingSettings(epochs=2, learning_rate=1e-2)
    true, planted = (make_world("breast_cancer", memory, 3, sizes, settings) for memory in ("true", "planted"))
    assert sorted(np.concatenate(list(true.sides.values()))) == list(range(250))
    moved = true.labels != planted.labels
    assert all(moved[true.sides[side]].all() for side in ("forget", "held_out"))
    assert not any(moved[true.sides[side]].any() for side in ("retain", "test"))
    assert np.abs(true.inputs[true.sides["retain"]].mean(axis=0)).max() < 1e-5
    reading = true.read(true.train(true.both, 0))
    assert [len(side) for side in true.gather(reading)] == [40, 100, 60]
    assert true.measure_skill(reading)["retain_accuracy"] > 0.8
