"""Workers that die are replaced, and a job that kills every worker is given up."""

import multiprocessing
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ruler.experiment.cell import Workplace
from ruler.experiment.executors.local import MOST_DEATHS, Task, run_local
from ruler.experiment.grid import Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import Provenance, ResultStore
from ruler.experiment.studies import choose_studies, shrink_studies

STUDY = StudySettings("own", ("breast_cancer",), ("gradient_ascent",), (0.05,), (0, 1, 2))
MADE_BY = Provenance(device="cpu", ruler_version="0", commit=None, torch_version="2", machine="this")


def make_task(folder: Path) -> Task:
    return Task(folder / "results.sqlite", Workplace(folder / "models"), MADE_BY, n_threads=1)


def test_a_job_that_no_worker_survives_is_given_up_and_the_others_are_done(tmp_path: Path) -> None:
    task = make_task(tmp_path)
    jobs = group_jobs(list_cells(STUDY))
    n_killed, given_up = 0, list[Job]()

    def kill_the_first_job() -> None:
        nonlocal n_killed
        workers = multiprocessing.active_children()
        if n_killed < MOST_DEATHS and workers:
            workers[0].kill()
            workers[0].join()
            n_killed += 1

    run_local(jobs, task, n_workers=1, on_tick=kill_the_first_job, on_given_up=given_up.append)
    assert given_up == [jobs[0]]
    with ResultStore(task.store) as store:
        assert store.list_finished() == {cell.key for job in jobs[1:] for cell in job.cells}
    assert not multiprocessing.active_children()


def test_a_job_that_cannot_load_is_tried_once_by_a_worker_that_lives_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = replace(make_task(tmp_path), workplace=Workplace(tmp_path / "models", language_model=str(tmp_path / "none")))
    sound = group_jobs(list_cells(replace(STUDY, seeds=(0,))))
    (study,) = shrink_studies(choose_studies("clinical"))
    faulty = group_jobs(list_cells(replace(study, datasets=("mtsamples",), methods=("scrub",), precision="float32")))
    given_up, workers = list[Job](), set[int | None]()

    def look() -> None:
        workers.update(worker.pid for worker in multiprocessing.active_children())

    run_local([*faulty, *sound], task, n_workers=1, on_tick=look, on_given_up=given_up.append)
    assert given_up == []
    assert len(workers) == 1
    assert "Traceback" not in capfd.readouterr().err
    with ResultStore(task.store) as store:
        assert store.list_finished() == {cell.key for job in sound for cell in job.cells}
    with closing(sqlite3.connect(task.store)) as connection:
        failures = connection.execute("SELECT key, error FROM failures").fetchall()
    assert sorted(key for key, _ in failures) == sorted(cell.key for job in faulty for cell in job.cells)
    assert all(error.startswith(f"FileFormatError: {tmp_path / 'none'} must be a folder") for _, error in failures)


def test_workers_end_when_the_run_is_interrupted(tmp_path: Path) -> None:
    def interrupt() -> None:
        if multiprocessing.active_children():
            raise KeyboardInterrupt

    started_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_local(group_jobs(list_cells(STUDY)), make_task(tmp_path), n_workers=2, on_tick=interrupt)
    assert not multiprocessing.active_children()
    assert time.monotonic() - started_s < 20


def test_the_environment_of_this_process_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_local(group_jobs(list_cells(STUDY)), make_task(tmp_path), n_workers=1, on_tick=interrupt)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
