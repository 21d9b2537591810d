import json
import re
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.faithfulness import list_planned
from benchmarks.faithfulness_table import add_rows, flatten, list_robustness, list_tables, tabulate_sets, tell_apart

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "docs" / "bench" / "faithfulness.csv"


def test_the_page_shows_what_was_measured():
    page = (ROOT / "docs" / "tofu.md").read_text()
    shown = dict(re.findall(r"<!-- measured: (\w+) -->\n(.*?)\n<!-- end -->", page, flags=re.DOTALL))
    shown.pop("study")  # of other rows
    assert shown == {name: "\n".join(lines) for name, lines in list_tables(MODELS).items()}


def test_every_planned_model_was_measured_as_planned():
    pool = pd.read_csv(MODELS).query("part == 'pool'").set_index("name")
    planned = {model.name: model for model in list_planned()}
    assert set(pool.index) == set(planned)
    for name, model in planned.items():
        assert tuple(pool.loc[name, ["forget", "seed", "learning_rate", "epochs"]]) == (
            model.forget,
            model.seed,
            pytest.approx(model.learning_rate),
            model.epochs,
        )


def test_direction_does_not_matter_and_ties_count_half():
    pool = pd.DataFrame({"up": [0.0, 1.0, 1.0, 2.0], "down": [0.0, -1.0, -1.0, -2.0]})
    positive = pd.Series([False, False, True, True])
    assert tell_apart(pool, "up", positive)[0] == tell_apart(pool, "down", positive)[0] == 0.875


def test_rows_are_flat_and_sorted(tmp_path):
    file = tmp_path / "models.jsonl"
    file.write_text(
        '{"name": "b", "part": "pool", "guards": ["one", "two"], "peers": {"uds": 0.5, "zrf": null}, "reason": "x"}\n'
        '{"name": "a", "part": "pool", "guards": [], "peers": {}, "layers": {"block": 0.25}, "read_s": 3.0}\n'
    )
    table = flatten(file)
    assert list(table) == ["name", "part", "guards", "uds", "layers:block"]
    assert table["name"].tolist() == ["a", "b"]
    assert table["guards"].tolist() == ["", "one two"]


def test_rows_replace_those_of_the_same_models(tmp_path):
    csv, file = tmp_path / "models.csv", tmp_path / "models.jsonl"
    rows = [{"name": name, "part": "pool", "data": "tofu", "fraction": 0.1, "verdict": "erased"} for name in "ab"]
    file.write_text("\n".join(map(json.dumps, rows)))
    add_rows(csv, flatten(file))
    file.write_text(json.dumps(rows[0] | {"verdict": "residual"}))
    add_rows(csv, flatten(file))
    assert pd.read_csv(csv)[["name", "verdict"]].values.tolist() == [["a", "residual"], ["b", "erased"]]
    add_rows(csv, flatten(file), run=2)
    assert pd.read_csv(csv)["name"].tolist() == ["a", "b", "a"]


def test_robustness_compares_with_the_oracle_of_the_same_run():
    def attacked(method, run, skill, *values):
        names = ("plain", "quantized", "relearned")[: len(values)]
        shared = {"part": "attacks", "method": method, "rate": 0.0, "run": run, "retain_accuracy": skill}
        return [shared | {"attack": name, "score": value} for name, value in zip(names, values, strict=True)]

    rows = [
        *attacked("oracle", 1, 1.0, 0.1, 0.1, 0.2),
        *attacked("npo", 1, 0.8, 0.2, 0.1, 0.6),
        *attacked("broken", 1, 0.79, 0.0, 0.0, 0.0),
        *attacked("oracle", 2, 1.0, 0.1, 0.1, 0.4),
        *attacked("npo", 2, 1.0, 0.2, 0.4, 0.4),
        *attacked("rmu", 2, 1.0, 0.9, 0.9),
        *attacked("oracle", 3, 1.0, 0.1, 0.1, 0.4),
        *attacked("rmu", 3, 1.0, 0.9, 0.9),
    ]
    shares = list_robustness(pd.DataFrame(rows), "score", lambda value: value)
    assert shares == [
        {"kept": 0.5, "back": 1.0, "relearned": pytest.approx(0.25)},
        {"kept": 1.0, "back": 0.5, "relearned": 1.0},
        {"kept": 1.0, "back": 1.0},
    ]


def test_verdicts_are_counted_by_set_and_kind():
    shared = {"data": "lume", "fraction": 0.1, "verdict": "inconclusive", "verdict_by_one": "erased"}
    oracle = {"part": "references", "name": "oracle-0"} | shared
    original = {"part": "references", "name": "original"} | shared | {"verdict_by_one": "residual"}
    clean = {"part": "verdicts", "name": "none-0", "forget": "none"} | shared
    other = clean | {"data": "tofu", "fraction": 0.01, "verdict": "erased"}
    assert tabulate_sets(pd.DataFrame([oracle, clean, original, other]))[2:] == [
        "| LUME, 10% | the original | 1 | 1 residual | 1 inconclusive |",
        "| LUME, 10% | the oracles, each against the others | 1 | 1 erased | 1 inconclusive |",
        "| LUME, 10% | trained on nothing of theirs | 1 | 1 erased | 1 inconclusive |",
        "| TOFU, 1% | trained on nothing of theirs | 1 | 1 erased | 1 erased |",
    ]
