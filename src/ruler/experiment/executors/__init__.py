"""Ways to run jobs: every executor takes jobs and leaves their rows in the store."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ruler.core.registry import Registry
from ruler.experiment.cell import Workplace
from ruler.experiment.executors.local import InlineExecutor, LocalExecutor
from ruler.experiment.executors.ray import RayExecutor
from ruler.experiment.grid import Job
from ruler.experiment.store import ResultStore

__all__ = ["EXECUTORS", "Executor", "InlineExecutor", "LocalExecutor", "RayExecutor"]


class Executor(Protocol):
    """Runs jobs somewhere; `ruler.testing.executors` checks an executor of your own against this contract."""

    def run(
        self, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, *, on_tick: Callable[[], None]
    ) -> None:
        """Do all jobs, with `run_job`; return when every cell has a row or a recorded failure in the store.

        Args:
            jobs: What to do, the longest first.
            workplace: Where models come from and where they run.
            store: Open here; workers that share this disk may open ``store.path`` themselves.
            on_tick: Called about twice a second, in this process. What it raises stops all workers and is passed on.
        """


EXECUTORS: Registry[Callable[..., Executor]] = Registry(
    "executor", {"local": LocalExecutor, "ray": RayExecutor}, group="ruler.executors"
)
"""Executors by name, each called with ``n_jobs``; other packages add theirs by an entry point of this group."""
