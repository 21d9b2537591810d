"""What every executor must do, ours and yours: the same rows, whoever runs the jobs.

Write in your own tests::

    from ruler.testing.executors import check_executor

    def test_contract(tmp_path):
        check_executor(MyExecutor(), tmp_path)
"""

from pathlib import Path

from ruler.core.optional import load_optional
from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.executors import Executor
from ruler.experiment.grid import Cell, Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import ResultStore, load_results

_STUDY = StudySettings("contract", ("breast_cancer",), ("gradient_ascent",), (0.05,), (0, 1), has_reference_rows=True)
_DIVERGING = Cell("contract", "breast_cancer", "scrub", 0.05, 0, learning_rate=1e9)


class _StopError(Exception):
    pass


def check_executor(executor: Executor, folder: Path) -> None:
    """Run every check on an executor; takes about half a minute.

    Args:
        executor: Ready to run on this machine's CPU.
        folder: Empty; gets results and trained models.

    Raises:
        AssertionError: The executor breaks the contract.
    """
    workplace = Workplace(models=folder / "models")
    jobs = group_jobs(list_cells(_STUDY))
    check_rows(executor, jobs, workplace, folder / "rows.sqlite")
    check_failures(executor, jobs, workplace, folder / "failures.sqlite")
    check_stop(executor, jobs, workplace, folder / "stop.sqlite")


def check_rows(executor: Executor, jobs: tuple[Job, ...], workplace: Workplace, path: Path) -> None:
    """Every cell gets the row that `run_job` makes in this process, to the bit; none without jobs."""
    ticks: list[None] = []
    with ResultStore(path) as store:
        executor.run((), workplace, store, on_tick=lambda: None)
        assert not store.list_finished(), "rows appeared without a job"
        executor.run(jobs, workplace, store, on_tick=lambda: ticks.append(None))
        assert store.list_finished() == {cell.key for job in jobs for cell in job.cells}, "each cell must have a row"
    assert ticks, "on_tick must be called while jobs run"
    rows = {(row["method"], row["seed"]): row for row in load_results(path).to_dict("records")}
    assert {row["device"] for row in rows.values()} == {"cpu"}, "rows must name the device that they were made on"
    for outcome in _run_here(jobs, workplace):
        assert outcome.scores is not None, outcome.details
        row = rows[outcome.cell.method, outcome.cell.seed]
        for name, value in outcome.scores.items():
            assert row[name] == value, f"{name} of {outcome.cell} must be {value!r}; got {row[name]!r}"


def check_failures(executor: Executor, jobs: tuple[Job, ...], workplace: Workplace, path: Path) -> None:
    """A cell that fails is recorded with its error, and the other cells of its job get their rows."""
    job = Job((_DIVERGING, *jobs[0].cells))
    with ResultStore(path) as store:
        executor.run((job,), workplace, store, on_tick=lambda: None)
        (error,) = store.list_failures().values()
        assert error.startswith("DivergedError: "), f"a failure must be recorded with its error; got {error!r}"
        assert store.list_finished() == {cell.key for cell in jobs[0].cells}, "the other cells must have rows"


def check_stop(executor: Executor, jobs: tuple[Job, ...], workplace: Workplace, path: Path) -> None:
    """What on_tick raises ends the run and is passed on; the next run does what is left."""

    def stop() -> None:
        raise _StopError

    with ResultStore(path) as store:
        try:
            executor.run(jobs, workplace, store, on_tick=stop)
        except _StopError:
            pass
        else:
            raise AssertionError("what on_tick raises must be passed on")
        left = [cell for job in jobs for cell in job.cells if cell.key not in store.list_finished()]
        executor.run(group_jobs(left), workplace, store, on_tick=lambda: None)
        assert len(store.list_finished()) == sum(len(job.cells) for job in jobs), "a second run must finish the rest"


def _run_here(jobs: tuple[Job, ...], workplace: Workplace) -> list[Outcome]:
    torch = load_optional("torch", "running models")
    n_threads = torch.get_num_threads()
    try:
        return [outcome for job in jobs for outcome in run_job(job, workplace, n_threads=1)]
    finally:
        torch.set_num_threads(n_threads)
