"""Workers that die are replaced, and a job that kills every worker is given up."""

import multiprocessing
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ruler.experiment.cell import Workplace
from ruler.experiment.executors.local import MOST_DEATHS, LocalExecutor, count_cores
from ruler.experiment.grid import group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import ResultStore
from ruler.experiment.studies import choose_studies, shrink_studies

STUDY = StudySettings("own", ("breast_cancer",), ("gradient_ascent",), (0.05,), (0, 1, 2))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(tmp_path / "results.sqlite") as store:
        yield store


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "models")


def test_a_job_that_no_worker_survives_is_given_up_and_the_others_are_done(
    store: ResultStore, workplace: Workplace
) -> None:
    jobs = group_jobs(list_cells(STUDY))
    n_killed = 0

    def kill_the_first_job() -> None:
        nonlocal n_killed
        workers = multiprocessing.active_children()
        if n_killed < MOST_DEATHS and workers:
            workers[0].kill()
            workers[0].join()
            n_killed += 1

    LocalExecutor(1).run(jobs, workplace, store, on_tick=kill_the_first_job)
    failures = store.list_failures()
    assert failures.keys() == {cell.key for cell in jobs[0].cells}
    assert set(failures.values()) == {
        f"WorkerDied: {MOST_DEATHS} worker processes died over this job (killed, or out of memory)"
    }
    assert store.list_finished() == {cell.key for job in jobs[1:] for cell in job.cells}
    assert not multiprocessing.active_children()


def test_a_job_that_cannot_load_is_tried_once_by_a_worker_that_lives_on(
    store: ResultStore, workplace: Workplace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sound = group_jobs(list_cells(replace(STUDY, seeds=(0,))))
    (study,) = shrink_studies(choose_studies("clinical"))
    faulty = group_jobs(list_cells(replace(study, datasets=("mtsamples",), methods=("scrub",), precision="float32")))
    workers = set[int | None]()

    def look() -> None:
        workers.update(worker.pid for worker in multiprocessing.active_children())

    without_model = replace(workplace, language_model=str(tmp_path / "none"))
    LocalExecutor(1).run([*faulty, *sound], without_model, store, on_tick=look)
    assert len(workers) == 1
    assert "Traceback" not in capfd.readouterr().err
    assert store.list_finished() == {cell.key for job in sound for cell in job.cells}
    with closing(sqlite3.connect(store.path)) as connection:
        failures = connection.execute("SELECT key, error FROM failures").fetchall()
    assert sorted(key for key, _ in failures) == sorted(cell.key for job in faulty for cell in job.cells)
    assert all(error.startswith(f"FileFormatError: {tmp_path / 'none'} must be a folder") for _, error in failures)


def test_workers_end_when_the_run_is_interrupted(store: ResultStore, workplace: Workplace) -> None:
    def interrupt() -> None:
        if multiprocessing.active_children():
            raise KeyboardInterrupt

    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        LocalExecutor(2).run(group_jobs(list_cells(STUDY)), workplace, store, on_tick=interrupt)
    assert not multiprocessing.active_children()
    assert time.monotonic() - started_s < 20


@pytest.mark.parametrize(("asked", "most"), [("7", 7), ("1,4", 1), ("many", 10_000)])
def test_workers_take_no_more_threads_than_asked_for_and_the_environment_here_is_left_alone(
    store: ResultStore, workplace: Workplace, monkeypatch: pytest.MonkeyPatch, asked: str, most: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    given = []

    def interrupt() -> None:
        paths = [Path(f"/proc/{worker.pid}/environ") for worker in multiprocessing.active_children()]
        given.extend(path.read_text().split("\0") for path in paths if path.is_file())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalExecutor(1).run(group_jobs(list_cells(STUDY)), workplace, store, on_tick=interrupt)
    assert given or not Path("/proc/self/environ").is_file()
    assert all(f"OMP_NUM_THREADS={min(most, count_cores())}" in variables for variables in given)
    assert os.environ["OMP_NUM_THREADS"] == asked
    assert "MKL_NUM_THREADS" not in os.environ
