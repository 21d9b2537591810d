import csv
import json

import pytest

from benchmarks import pipelines
from benchmarks.pipelines import run_whole, save_pipelines
from benchmarks.protocol import PlainRow
from ruler.core.errors import RulerError


@pytest.fixture
def few(monkeypatch):
    """One small dataset and seed, which processes of their own do not hear of."""
    monkeypatch.setattr(pipelines, "DATASETS", ("breast_cancer",))
    monkeypatch.setattr(pipelines, "N_SEEDS", 1)


@pytest.mark.usefixtures("few")
def test_the_plain_pipeline_leaves_a_row_per_model_and_means(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.protocol.FRACTIONS", (0.05,))
    run_whole(str(tmp_path))
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert [row["method"] for row in rows[:2]] == ["oracle", "original"]
    assert len(rows) == 6
    means = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert tuple(means[0]) == ("method", "fraction", *PlainRow._fields[3:])
    assert float(means[0]["m4"]) == float(rows[0]["m4"])


@pytest.mark.usefixtures("few")
def test_ratios_are_of_medians_over_turns(tmp_path, monkeypatch):
    turns = iter([(8.0, 9.0), (4.0, 3.0), (2.0, 3.0), (12.0, 9.0), (4.0, 3.0), (3.0, 3.0)])
    monkeypatch.setattr(pipelines, "_measure", lambda name, n_cores: pipelines.Measured(*next(turns), 500.0))
    save_pipelines(2, 2, tmp_path / "numbers.json")
    protocol, ensemble = json.loads((tmp_path / "numbers.json").read_text())["pipelines"]
    assert (protocol["engine"], ensemble["engine"]) == ("protocol", "ensemble")
    assert protocol["study"] == "breast_cancer, 1 seeds"
    assert (protocol["speedup"], protocol["lowest"], protocol["highest"]) == (2.5, 2.0, 3.0)
    assert (ensemble["speedup"], ensemble["cpu_speedup"], ensemble["ruler_mb"]) == (4.0, 3.0, 500.0)


@pytest.mark.usefixtures("few")
def test_a_pipeline_that_fails_is_not_timed(monkeypatch):
    monkeypatch.setattr(pipelines, "DATASETS", ("no-such-set",))
    with pytest.raises(RulerError, match=r"ensemble must end well to be timed; it said: .*no-such-set"):
        pipelines._measure("ensemble", 1)
