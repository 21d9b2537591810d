import json
import sys

import pytest

from benchmarks import studies
from benchmarks.studies import TABULAR, StudyTiming, time_studies
from ruler.core.errors import InputError, RulerError
from ruler.experiment.store import load_results


@pytest.fixture
def anything_is_there(monkeypatch):
    monkeypatch.setattr("benchmarks.studies.load_tabular", lambda name: None)


@pytest.mark.usefixtures("anything_is_there")
def test_a_study_is_timed_without_the_models_of_earlier_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "models").mkdir(parents=True)
    (tmp_path / "cache" / "data").mkdir()
    few = ("--datasets", "breast_cancer", "--seeds", "1", "--forget-fractions", "0.05", "--jobs", "1")
    few += ("--methods", "gradient_ascent")
    (timing,) = time_studies(["primary"], "cpu", tmp_path, few)
    assert timing.n_cells == len(load_results(tmp_path / "primary")) == 3
    assert timing.device == "cpu"
    assert timing.elapsed_s > 0
    assert not list((tmp_path / "cache" / "models").iterdir())  # the run had a cache of its own


@pytest.mark.usefixtures("anything_is_there")
def test_a_study_that_fails_is_not_timed(tmp_path):
    with pytest.raises(RulerError, match=r"study primary must end well to be timed; it said: .*no-such-set"):
        list(time_studies(["primary"], "cpu", tmp_path, ("--datasets", "no-such-set")))


@pytest.mark.usefixtures("anything_is_there")
def test_a_finished_study_is_not_timed_again(tmp_path):
    (tmp_path / "primary").mkdir()
    with pytest.raises(InputError, match="out must not hold primary yet"):
        list(time_studies(["primary"], "cpu", tmp_path))


def test_a_study_beyond_the_tables_is_refused(tmp_path):
    with pytest.raises(RulerError, match="images"):
        list(time_studies(["images"], "cpu", tmp_path))


def test_the_studies_on_tables_are_six():
    assert tuple(TABULAR) == ("primary", "bad-teacher", "oracle-null", "minibatch", "learning-rate", "forget-seeds")


def test_numbers_are_written_study_by_study(tmp_path, monkeypatch, capsys):
    asked = []

    def time_some(names, device, out):
        asked.append((names, device))
        yield StudyTiming(names[0], device, 5, 1.5)
        assert json.loads((tmp_path / "times.json").read_text())["studies"][0]["elapsed_s"] == 1.5

    monkeypatch.setattr(studies, "time_studies", time_some)
    words = ["studies", "--studies", "primary", "minibatch", "--device", "cpu", "--json", str(tmp_path / "times.json")]
    monkeypatch.setattr(sys, "argv", words)
    studies.main()
    assert asked == [(["primary", "minibatch"], "cpu")]
    assert json.loads(capsys.readouterr().out)["n_cells"] == 5
