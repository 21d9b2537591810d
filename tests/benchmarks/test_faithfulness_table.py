import re
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.faithfulness import list_planned
from benchmarks.faithfulness_table import flatten, list_tables, tell_apart

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
