import re
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.faithfulness import list_planned
from benchmarks.faithfulness_table import add_rows, flatten, list_tables, tabulate_verdicts, tell_apart

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
    file.write_text('{"name": "a", "part": "pool", "verdict": "erased"}\n{"name": "b", "part": "pool"}\n')
    add_rows(csv, flatten(file))
    file.write_text('{"name": "a", "part": "pool", "verdict": "residual"}\n')
    add_rows(csv, flatten(file))
    assert pd.read_csv(csv)["name"].tolist() == ["a", "b"]
    assert pd.read_csv(csv)["verdict"].tolist()[0] == "residual"


def test_clean_models_have_a_table_of_their_own(tmp_path):
    oracle = {"part": "references", "name": "oracle-0", "verdict": "erased", "verdict_by_one": "inconclusive"}
    clean = {"part": "clean", "name": "none-0", "forget": "none", "verdict": "erased", "verdict_by_one": "erased"}
    assert tabulate_verdicts(pd.DataFrame([oracle, clean]))[2:] == [
        "| trained on nothing of theirs | 1 | 1 erased | 1 erased |",
        "| the oracles, each against the others | 1 | 1 inconclusive | 1 erased |",
    ]
