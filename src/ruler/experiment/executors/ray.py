"""Jobs on a Ray cluster: each is a task that streams its outcomes to the coordinator, which alone has the store."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ruler.core import __version__
from ruler.core.checks import check_number
from ruler.core.cluster import ClusterSettings, check_fit, connect, list_needs, worker_variables
from ruler.core.errors import InputError
from ruler.core.files import cache_folder, data_folder, write_atomically
from ruler.core.optional import load_optional
from ruler.data import DATASETS, locate
from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.executors.local import MOST_DEATHS, count_cores
from ruler.experiment.grid import Cell, Job
from ruler.experiment.rows import Provenance, describe_process
from ruler.experiment.store import ResultStore

MOST_LOST_NODES = 10
"""A job is given up when this many nodes in a row were lost under it: nodes come and go without the job's fault."""

_TICK_S = 0.5


@dataclass(eq=False)
class RunningJob:
    """A job that was sent, and what has happened to it since a cell was last reported."""

    job: Job
    n_deaths: int = 0
    n_lost_nodes: int = 0
    made_by: Provenance | None = None

    def tick_off(self, cell: Cell) -> None:
        """Note that a cell was reported: it is never done again, and the job has proved to be alive."""
        self.job = Job(tuple(other for other in self.job.cells if other != cell))
        self.n_deaths = self.n_lost_nodes = 0

    def give_up(self, *, is_node_lost: bool) -> tuple[Cell, ...]:
        """Note that the worker is gone; return the cells to give up, which leave the job. The others are done again.

        A cell over which three workers died in a row is given up. If the next worker dies too before it reports a cell,
        the rest of the job is given up.
        """
        if is_node_lost:
            self.n_lost_nodes += 1
            n_given_up = len(self.job.cells) if self.n_lost_nodes >= MOST_LOST_NODES else 0
        else:
            self.n_deaths += 1
            n_given_up = (self.n_deaths == MOST_DEATHS) if self.n_deaths <= MOST_DEATHS else len(self.job.cells)
        given_up, self.job = self.job.cells[:n_given_up], Job(self.job.cells[n_given_up:])
        return given_up


@dataclass(frozen=True)
class RayExecutor:
    """Runs jobs as tasks of a Ray cluster.

    Rows are written as cells are reported, so a dead coordinator costs no more than the cells under way. Workers and
    nodes may die and nodes may join: what was not reported is done again, by whoever is there.

    Args:
        n_jobs: Most jobs at a time; None leaves that to the cluster.
        cluster: What a job takes of it.
    """

    n_jobs: int | None = None
    cluster: ClusterSettings = field(default_factory=ClusterSettings)

    def __post_init__(self) -> None:
        if self.n_jobs is not None:
            check_number(self.n_jobs, "jobs", minimum=1, is_whole=True)

    def run(
        self, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, *, on_tick: Callable[[], None]
    ) -> None:
        """Do all jobs; see `Executor`.

        Raises:
            InputError: No such cluster, none of its nodes has room for a job, or one has another version of RULER.
            MissingPackageError: Ray is not installed.
        """
        n_cpus = max(count_cores(), (self.n_jobs or 1) * self.cluster.job_cpus)
        with connect(n_cpus) as ray:
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            for job in jobs:
                check_fit(self._list_needs(job, workplace), nodes)
            send = cache(lambda dataset: send_files(dataset, workplace, ray.put))
            remote = ray.remote(_run_job)
            waiting = deque(RunningJob(job) for job in jobs)
            under_way: dict[Any, RunningJob] = {}
            while waiting or under_way:
                while waiting and len(under_way) < (self.n_jobs or len(jobs)):
                    running = waiting.popleft()
                    task = remote.options(**self._choose_options(running.job, workplace))
                    files = send(running.job.cells[0].dataset)
                    stream = task.remote(running.job, workplace, files, n_threads=self.cluster.job_cpus)
                    under_way[stream] = running
                for stream in ray.wait(list(under_way), timeout=_TICK_S)[0]:
                    if not _receive(ray, stream, under_way[stream], store):
                        running = under_way.pop(stream)
                        if running.job.cells:
                            waiting.appendleft(running)
                on_tick()

    def _list_needs(self, job: Job, workplace: Workplace) -> dict[str, float]:
        return list_needs(self.cluster, job.device_for(workplace.device))

    def _choose_options(self, job: Job, workplace: Workplace) -> dict[str, Any]:
        needs = self._list_needs(job, workplace)
        return {
            "name": job.name,
            "num_returns": "streaming",
            "num_cpus": needs["CPU"],
            "num_gpus": needs.get("GPU", 0),
            "max_retries": 0,  # Ray would do reported cells again; we send what is left
            "runtime_env": {"env_vars": worker_variables(self.cluster.job_cpus)},
        }


def _receive(ray: Any, stream: Any, running: RunningJob, store: ResultStore) -> bool:
    """Take in one report; False if there will be no other."""
    try:
        news = ray.get(next(stream))
    except StopIteration:
        return False
    except ray.exceptions.RayTaskError as error:  # not a cell's fault but the job's: the same again would end the same
        store.add_failures(running.job.cells, f"{type(error.cause).__name__}: {error.cause}", str(error))
        running.job = Job(())
        return False
    except ray.exceptions.RayError as error:
        given_up = running.give_up(is_node_lost=isinstance(error, ray.exceptions.NodeDiedError))
        if running.n_lost_nodes >= MOST_LOST_NODES:
            losses = f"{running.n_lost_nodes} nodes in a row were lost under this job"
        else:
            losses = f"{running.n_deaths} worker processes died over this cell and those after it"
            losses += " (killed, or out of memory)"
        store.add_failures(given_up, f"WorkerDied: {losses}", str(error))
        return False
    if isinstance(news, Provenance):
        if news.ruler_version != __version__:  # a row must not depend on who made it
            raise InputError(
                f"ruler must be version {__version__} on every node; got {news.ruler_version} on a node with "
                f"{news.machine}. Install the same version there."
            )
        running.made_by = news
    else:
        assert running.made_by is not None  # a worker introduces itself first
        store.add(news, running.made_by)
        running.tick_off(news.cell)
    return True


@dataclass(frozen=True)
class SentFolder:
    """Files of a folder, by reference.

    Args:
        place: Where a copy lies in a cache; another content never shares it.
        files: Name -> reference.
    """

    place: str
    files: dict[str, Any]


@dataclass(frozen=True)
class SentFiles:
    """Files that the jobs of a dataset read and a node may lack, by reference: who has them already never fetches them.

    Args:
        data: Place in a data folder -> reference.
        data_root: The coordinator's ``RULER_DATA``, for nodes that name none themselves but see the same disk.
        folders: Field of the workplace -> the folder that it names.
    """

    data: dict[str, Any]
    data_root: str | None = None
    folders: dict[str, SentFolder] = field(default_factory=dict)


def send_files(dataset: str, workplace: Workplace, put: Callable[[bytes], Any]) -> SentFiles:
    """Put the files that the jobs of a dataset need into the object store; Ray brings each to a node once.

    Example:
        >>> send_files("breast_cancer", Workplace(), put=len).data  # comes with scikit-learn
        {}
    """
    entry = DATASETS[dataset]
    path = locate(entry).path
    wanted = {"checkpoints": (workplace.checkpoints, f"{dataset}_seed*.pt")}
    if entry.kind == "text":
        wanted["language_model"] = (_find_folder(workplace.language_model), "*")
    folders = {}
    for name, (folder, pattern) in wanted.items():
        if folder is not None and folder.is_dir():
            digest, files = hashlib.sha256(), {}
            for file in sorted(file for file in folder.glob(pattern) if file.is_file()):
                content = file.read_bytes()
                digest.update(f"{file.name} {len(content)} ".encode() + content)
                files[file.name] = put(content)
            folders[name] = SentFolder(f"imported/{digest.hexdigest()}/{folder.name}", files)
    return SentFiles(
        data={} if path is None or entry.file is None else {entry.file: put(path.read_bytes())},
        data_root=os.environ.get("RULER_DATA"),
        folders=folders,
    )


def receive_files(sent: SentFiles, workplace: Workplace, get: Callable[[Any], bytes]) -> Workplace:
    """Write the files that this node lacks; return the workplace with folders that are on this node.

    A dataset ends up in the cache, where a download would have left it, and is verified in the same way when read.
    """
    if sent.data_root and Path(sent.data_root).is_dir():
        os.environ.setdefault("RULER_DATA", sent.data_root)
    for place, reference in sent.data.items():
        if not any((folder / place).is_file() for folder in (data_folder(), cache_folder())):
            write_atomically(cache_folder() / place, get(reference))
    for name, folder in sent.folders.items():
        here = _find_folder(getattr(workplace, name))
        if here is None or here.is_dir():
            continue
        copy = cache_folder() / folder.place
        copy.mkdir(parents=True, exist_ok=True)
        for file, reference in folder.files.items():
            if not (copy / file).is_file():
                write_atomically(copy / file, get(reference))
        found: dict[str, Any] = {name: copy if name == "checkpoints" else str(copy)}
        workplace = replace(workplace, **found)
    return workplace


def _find_folder(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name).expanduser()


def _run_job(job: Job, workplace: Workplace, sent: SentFiles, *, n_threads: int) -> Iterator[Provenance | Outcome]:
    """Run in a worker: say who it is, then report each cell as it ends."""
    yield describe_process(job.device_for(workplace.device))
    workplace = receive_files(sent, workplace, load_optional("ray", "the executor ray").get)
    yield from run_job(job, workplace, n_threads=n_threads)
