"""Jobs on a Ray cluster: each is a task that streams its outcomes to the coordinator, which alone has the store."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ruler.core import __version__
from ruler.core.cluster import ClusterSettings, check_fit, connect, list_needs, worker_variables
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.experiment.cell import Outcome, Workplace
from ruler.experiment.executors.parcels import Parcel, pack, unpack
from ruler.experiment.executors.worker import MOST_DEATHS, choose_device, do_cells
from ruler.experiment.grid import Cell, Job
from ruler.experiment.provenance import describe_run, tell_time
from ruler.experiment.store import Provenance, ResultStore

MOST_LOST_NODES = 10
"""A job is given up when this many nodes in a row were lost under it: nodes come and go without the job's fault."""

_TICK_S = 0.5


@dataclass(eq=False)
class Trip:
    """A job on its way, and what has happened to it since a cell was last reported."""

    job: Job
    n_deaths: int = 0
    n_lost_nodes: int = 0
    made_by: Provenance | None = None

    def tick_off(self, cell: Cell) -> None:
        """A cell was reported: it is never done again, and the job has proved to be alive."""
        self.job = Job(tuple(other for other in self.job.cells if other != cell))
        self.n_deaths = self.n_lost_nodes = 0

    def give_up(self, *, is_node_lost: bool) -> tuple[Cell, ...]:
        """The worker is gone: the cells to give up, which leave the job; the others are to be done again.

        A cell over which three workers died in a row is given up. One worker more that dies without reporting a
        cell takes the rest of the job with it.
        """
        if is_node_lost:
            self.n_lost_nodes += 1
            n_given_up = len(self.job.cells) if self.n_lost_nodes >= MOST_LOST_NODES else 0
        else:
            self.n_deaths += 1
            n_given_up = (self.n_deaths == MOST_DEATHS) if self.n_deaths <= MOST_DEATHS else len(self.job.cells)
        given_up, self.job = self.job.cells[:n_given_up], Job(self.job.cells[n_given_up:])
        return given_up


def run_ray(
    jobs: Sequence[Job],
    workplace: Workplace,
    store: ResultStore,
    *,
    settings: ClusterSettings,
    n_cores: int,
    n_at_once: int | None = None,
    on_tick: Callable[[], None] = lambda: None,
) -> None:
    """Do all jobs on a Ray cluster; returns when every cell has a row or a recorded failure.

    Rows are written as cells are reported, so a dead coordinator costs no more than the cells under way. Workers and
    nodes may die and nodes may join: what was not reported is done again, by whoever is there.

    Args:
        n_cores: Of this machine, for a cluster that is started here.
        n_at_once: Most jobs at a time; None leaves that to the cluster.
        on_tick: Called about twice a second.

    Raises:
        InputError: No such cluster, none of its nodes has room for a job, or one has another version of RULER.
        MissingPackageError: Ray is not installed.
    """
    n_cpus = max(n_cores, (n_at_once or 1) * settings.job_cpus)
    with connect(n_cpus) as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for job in jobs:
            check_fit(list_needs(settings, choose_device(job, workplace.device)), nodes)
        coordinator = _Coordinator(ray, workplace, store, settings)
        coordinator.run(jobs, n_at_once or len(jobs), on_tick)


class _Coordinator:
    """Hands jobs out, and brings what comes back into the store."""

    def __init__(self, ray: Any, workplace: Workplace, store: ResultStore, settings: ClusterSettings) -> None:
        self._ray, self._workplace, self._store, self._settings = ray, workplace, store, settings
        self._task = ray.remote(_do_job)
        self._pack = cache(lambda dataset: pack(dataset, workplace, ray.put))
        self._under_way: dict[Any, Trip] = {}

    def run(self, jobs: Sequence[Job], n_at_once: int, on_tick: Callable[[], None]) -> None:
        waiting = deque(Trip(job) for job in jobs)
        while waiting or self._under_way:
            while waiting and len(self._under_way) < n_at_once:
                trip = waiting.popleft()
                self._under_way[self._send(trip)] = trip
            for stream in self._ray.wait(list(self._under_way), timeout=_TICK_S)[0]:
                if not self._receive(stream):
                    trip = self._under_way.pop(stream)
                    if trip.job.cells:
                        waiting.appendleft(trip)
            on_tick()

    def _send(self, trip: Trip) -> Any:
        """Start the job's task, as a stream of what it reports."""
        needs = list_needs(self._settings, choose_device(trip.job, self._workplace.device))
        task = self._task.options(
            name=trip.job.name,
            num_returns="streaming",
            num_cpus=needs["CPU"],
            num_gpus=needs.get("GPU", 0),
            max_retries=0,  # Ray would do reported cells again; we send what is left
            runtime_env={"env_vars": worker_variables(self._settings.job_cpus)},
        )
        return task.remote(
            trip.job, self._workplace, self._pack(trip.job.cells[0].dataset), n_threads=self._settings.job_cpus
        )

    def _receive(self, stream: Any) -> bool:
        """Take in one report; False when there will be no other."""
        trip, errors = self._under_way[stream], self._ray.exceptions
        try:
            news = self._ray.get(next(stream))
        except StopIteration:
            return False
        except errors.RayTaskError as error:  # not a cell's fault but the job's: the same again would end the same
            self._fail(trip.job.cells, f"{type(error.cause).__name__}: {error.cause}", str(error))
            trip.job = Job(())
            return False
        except errors.RayError as error:
            lost = isinstance(error, errors.NodeDiedError)
            self._fail(trip.give_up(is_node_lost=lost), f"WorkerDied: {_tell_losses(trip)}", str(error))
            return False
        if isinstance(news, Provenance):
            trip.made_by = check_version(news)
        else:
            assert trip.made_by is not None  # a worker introduces itself first
            self._store.add(news, trip.made_by, tell_time())
            trip.tick_off(news.cell)
        return True

    def _fail(self, cells: Sequence[Cell], error: str, details: str) -> None:
        for cell in cells:
            self._store.add_failure(cell, error, details, tell_time())


def _tell_losses(trip: Trip) -> str:
    if trip.n_lost_nodes >= MOST_LOST_NODES:
        return f"{trip.n_lost_nodes} nodes in a row were lost under this job"
    return f"{trip.n_deaths} worker processes died over this cell and those after it (killed, or out of memory)"


def check_version(made_by: Provenance) -> Provenance:
    """Whether a worker runs the coordinator's version: a row must not depend on who made it.

    Raises:
        InputError: Another version.
    """
    if made_by.ruler_version != __version__:
        raise InputError(
            f"ruler must be version {__version__} on every node; got {made_by.ruler_version} on a node with "
            f"{made_by.machine}. Install the same version there."
        )
    return made_by


def _do_job(job: Job, workplace: Workplace, parcel: Parcel, *, n_threads: int) -> Iterator[Provenance | Outcome]:
    """A worker's part: say who it is, then report each cell as it ends."""
    yield describe_run(choose_device(job, workplace.device))
    ready = unpack(parcel, workplace, load_optional("ray", "the executor ray").get)
    yield from do_cells(job, ready, n_threads)
