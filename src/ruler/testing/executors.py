"""What every executor must do, ours and yours: the same rows, whoever runs the jobs.

Write in your own tests::

    from ruler.testing.executors import check_executor

    def test_contract(tmp_path):
        check_executor(MyExecutor(), tmp_path)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ruler.core.optional import load_optional
from ruler.experiment.cell import Workplace
from ruler.experiment.executors import Executor, InlineExecutor
from ruler.experiment.grid import Cell, Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import ResultStore, load_results

_STUDY = StudySettings("contract", ("breast_cancer",), ("gradient_ascent",), (0.05,), (0, 1), has_reference_rows=True)
_DIVERGING = Cell("contract", "breast_cancer", "scrub", 0.05, 0, learning_rate=1e9)


class _StopError(Exception):
    pass


@dataclass(frozen=True)
class InProcessExecutor(InlineExecutor):
    """Runs jobs in this process with one thread: what every executor is compared with.

    It is also the quickest for tests of your own, since no worker has to load torch.
    """

    n_threads: int | None = 1


def check_executor(executor: Executor, folder: Path) -> None:
    """Run every check on an executor; takes about 10 seconds.

    Args:
        executor: Ready to run on this machine's CPU.
        folder: Empty; gets results and trained models.

    Raises:
        AssertionError: The executor breaks the contract.
    """
    workplace = Workplace(models=folder / "models")
    first, second = group_jobs(list_cells(_STUDY))
    jobs = (Job((_DIVERGING, *first.cells)), second)
    with ResultStore(folder / "rows.sqlite") as store:
        check_stop(executor, jobs, workplace, store)
        check_rows(executor, jobs, workplace, store, folder)


def check_stop(executor: Executor, jobs: Sequence[Job], workplace: Workplace, store: ResultStore) -> None:
    """Without jobs there are no rows; what on_tick raises ends the run and is passed on."""

    def stop() -> None:
        raise _StopError

    executor.run((), workplace, store, on_tick=lambda: None)
    assert not store.list_finished(), "rows appeared without a job"
    try:
        executor.run(jobs, workplace, store, on_tick=stop)
    except _StopError:
        pass
    else:
        raise AssertionError("what on_tick raises must be passed on")


def check_rows(executor: Executor, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, folder: Path) -> None:
    """A second run does what is left: then every cell has the row that this process makes, to the bit, or its error."""
    ticks: list[None] = []
    left = [cell for job in jobs for cell in job.cells if cell.key not in store.list_finished()]
    executor.run(group_jobs(left), workplace, store, on_tick=lambda: ticks.append(None))
    assert ticks, "on_tick must be called while jobs run"
    with ResultStore(folder / "expected.sqlite") as expected:
        InProcessExecutor().run(jobs, workplace, expected, on_tick=lambda: None)
        assert store.list_finished() == expected.list_finished(), "each cell must have a row"
        errors, wanted_errors = store.list_failures(), expected.list_failures()
    assert errors == wanted_errors, f"a failed cell must be recorded with its error {wanted_errors}; got {errors}"
    where = ["elapsed_s", "finished_at", "ruler_version", "commit", "torch_version", "machine"]
    rows, wanted = (load_results(folder / f"{name}.sqlite").drop(columns=where) for name in ("rows", "expected"))
    load_optional("pandas", "comparing rows").testing.assert_frame_equal(rows, wanted, check_exact=True)
