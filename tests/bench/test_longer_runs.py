import pytest

from ruler.bench.shards import time_shards
from ruler.bench.studies import TABULAR, time_studies
from ruler.core.errors import RulerError
from ruler.experiment.store import load_results


def test_an_audit_of_shards_is_planned_and_timed():
    timing = time_shards(3000, 8, n_reference=500, n_side=100)
    assert (timing.n_rows, timing.width, timing.n_side, timing.n_reference) == (3000, 8, 100, 500)
    assert timing.planned_s > 0
    assert timing.elapsed_s > 0
    assert timing.peak_mb > 50  # a process with NumPy in it holds more than that


def test_a_study_is_timed_and_its_results_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("ruler.bench.studies.load_tabular", lambda name: None)
    (timing,) = time_studies(["primary"], "cpu", tmp_path, ("--datasets", "breast_cancer", "--seeds", "1"))
    assert timing.n_cells == len(load_results(tmp_path / "primary")) == 18
    assert timing.elapsed_s > 0


def test_a_study_that_fails_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr("ruler.bench.studies.load_tabular", lambda name: None)
    with pytest.raises(RulerError, match=r"study primary must end well to be timed; it said: .*no-such-set"):
        list(time_studies(["primary"], "cpu", tmp_path, ("--datasets", "no-such-set")))


def test_a_study_without_its_data_is_left_out(tmp_path, monkeypatch):
    def miss(name):
        raise RulerError(f"{name} is not here")

    monkeypatch.setattr("ruler.bench.studies.load_tabular", miss)
    assert not list(time_studies(TABULAR, "cpu", tmp_path))


def test_the_studies_on_tables_are_six():
    assert TABULAR == ("primary", "bad-teacher", "oracle-null", "minibatch", "learning-rate", "forget-seeds")
