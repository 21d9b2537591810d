"""Studies -> results on disk: grid minus store, handed to an executor, with progress and failures."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ruler.core.checks import check_number
from ruler.core.cluster import ClusterSettings
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.experiment.cell import Workplace
from ruler.experiment.executors.local import Task, run_local
from ruler.experiment.executors.ray import run_ray
from ruler.experiment.executors.worker import MOST_DEATHS, choose_workers, measure_gpu
from ruler.experiment.grid import Cell, Job, group_jobs, list_cells, subtract
from ruler.experiment.inputs import gather_inputs, holds_texts, name_language_model
from ruler.experiment.provenance import describe_run, tell_time
from ruler.experiment.settings import DEVICES, PAPER_FORGET_SEED, StudySettings
from ruler.experiment.store import ResultStore
from ruler.experiment.study_file import format_studies, read_studies

RESULTS_FILE, STUDY_FILE = "results.sqlite", "study.toml"


@dataclass(frozen=True)
class RunSettings:
    """How and where studies are run; nothing here changes a number.

    Args:
        out: Folder for the results; made if it is not there.
        n_jobs: Worker processes; None takes one a core, or up to 8 on a GPU, or all that a cluster has room for.
        device: ``cpu`` or ``cuda``.
        models: Folder of trained models; None takes the cache.
        checkpoints: Folder of published checkpoints, for studies of imported models.
        language_model: Folder or hub name of the clinical study's pretrained model; None looks for one.
        cluster: Run on a Ray cluster; None runs on this machine alone, without Ray.
    """

    out: Path
    n_jobs: int | None = None
    device: str = "cpu"
    models: Path | None = None
    checkpoints: Path | None = None
    language_model: str | None = None
    cluster: ClusterSettings | None = None

    def __post_init__(self) -> None:
        if self.n_jobs is not None:
            check_number(self.n_jobs, "jobs", minimum=1, is_whole=True)
        DEVICES[self.device]
        if self.checkpoints is not None and not self.checkpoints.is_dir():
            raise InputError(f"checkpoints must be a folder; got {self.checkpoints}, which is none. Name another.")


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Args:
        share: Of the expected work of this run, from 0 to 1.
        left_s: Expected seconds to its end; None while nothing is known.
    """

    n_done: int
    n_cells: int
    share: float
    elapsed_s: float
    left_s: float | None


@dataclass(frozen=True)
class Summary:
    """What a run leaves behind.

    Args:
        n_cells: Cells of the studies.
        n_done: Of these, with a row now.
        n_new: Of these, done by this run.
        failures: Cells without a row, and the latest error of each.
    """

    n_cells: int
    n_done: int
    n_new: int
    failures: dict[Cell, str]
    elapsed_s: float


def run_studies(
    studies: Sequence[StudySettings],
    settings: RunSettings,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Measure every cell of the studies that has no row yet; running it again resumes.

    Args:
        studies: What to run.
        settings: Where and how.
        on_progress: Called now and then, and at the end.

    Returns:
        A summary; the rows are in ``settings.out / "results.sqlite"``.

    Raises:
        InputError: No CUDA device, or results of another variant or language model in the folder.
        DownloadError: A dataset or a language model that is not here and cannot be fetched.
        FileFormatError: A folder that is not that of a masked language model.
    """
    started_s = time.monotonic()
    is_here = settings.cluster is None  # a cluster's GPUs are where its nodes are
    if is_here and settings.device == "cuda" and not load_optional("torch", "training models").cuda.is_available():
        raise InputError("device must be cpu on this machine; got cuda, and torch finds no CUDA device.")
    cells = tuple(cell for study in studies for cell in list_cells(study))
    if settings.language_model is not None and not any(holds_texts(cell.dataset) for cell in cells):
        raise InputError("language_model must be left out for studies without texts; got one. Only clinical reads it.")
    settings.out.mkdir(parents=True, exist_ok=True)
    with ResultStore(settings.out / RESULTS_FILE) as store:
        store.check_variant(cells)
        pending = subtract(cells, store.list_finished())
        asked = pending if settings.language_model is None else cells
        if any(holds_texts(cell.dataset) for cell in asked):
            store.check_language_model(name_language_model(settings.language_model))
        jobs = group_jobs(pending)
        gather_inputs({job.cells[0].dataset for job in jobs}, settings.language_model)
        _write_study_file(studies, settings.out / STUDY_FILE)
        watch = _Watch(store, jobs, n_before=len(cells) - len(pending), on_progress=on_progress)
        if jobs:
            _execute(jobs, settings, store, watch)
        watch.look(is_last=True)
        left = {cell.key: cell for cell in subtract(pending, store.list_finished())}
        failures = {left[key]: error for key, error in store.list_failures().items() if key in left}
    return Summary(
        n_cells=len(cells),
        n_done=len(cells) - len(left),
        n_new=len(pending) - len(left),
        failures=failures,
        elapsed_s=time.monotonic() - started_s,
    )


def list_exported(studies: Sequence[StudySettings]) -> list[Cell]:
    """Cells of models that have a published name: of the paper's own forget sets, trained full batch by the protocol.

    Raises:
        InputError: No study has such models.
    """
    cells = [
        cell
        for study in studies
        for cell in list_cells(replace(study, methods=(), has_reference_rows=True, compares_oracles=False))
        if cell.method == "oracle" and cell.engine == "protocol" and cell.batch_size is None
        if cell.forget_seed == PAPER_FORGET_SEED
    ]
    if not cells:
        raise InputError(
            "export-checkpoints must be used with models of the engine protocol, trained full batch on the paper's "
            "forget sets; got a study without any. Run the study primary on the CPU."
        )
    return cells


def export_models(studies: Sequence[StudySettings], settings: RunSettings, folder: Path) -> int:
    """Write the originals and oracles of the studies under the authors' file names; returns how many cells had some.

    Raises:
        InputError: No study has such models, see `list_exported`.
    """
    from ruler.experiment.protocol import ProtocolBench

    cells = list_exported(studies)
    workplace = Workplace(settings.models, settings.checkpoints)
    for job in group_jobs(cells):
        bench = ProtocolBench(job.cells[0].dataset, workplace)
        for cell in job.cells:
            bench.export(cell, folder)
    return len(cells)


def _write_study_file(studies: Sequence[StudySettings], path: Path) -> None:
    """Keep the settings beside the results; studies that were run into the folder before stay listed."""
    known = {study.name: study for study in read_studies(path)} if path.is_file() else {}
    known |= {study.name: study for study in studies}
    aside = path.with_name(f".{os.getpid()}-{path.name}")
    aside.write_text(format_studies(tuple(known.values())), encoding="utf-8")
    os.replace(aside, path)


def _execute(jobs: Sequence[Job], settings: RunSettings, store: ResultStore, watch: "_Watch") -> None:
    n_cores = _count_cores()
    workplace = Workplace(settings.models, settings.checkpoints, settings.device, settings.language_model)
    if settings.cluster is not None:
        run_ray(
            jobs,
            workplace,
            store,
            settings=settings.cluster,
            n_cores=n_cores,
            n_at_once=settings.n_jobs,
            on_tick=watch.look,
        )
        return
    n_workers = min(settings.n_jobs or choose_workers(jobs, n_cores, measure_gpu(settings.device)), len(jobs))
    task = Task(
        store=settings.out / RESULTS_FILE,
        workplace=workplace,
        provenance=describe_run(settings.device),
        n_threads=max(1, n_cores // n_workers),
    )

    def give_up(job: Job) -> None:
        error = f"WorkerDied: {MOST_DEATHS} worker processes died over this job (killed, or out of memory)"
        for cell in subtract(job.cells, store.list_finished()):
            store.add_failure(cell, error, "", tell_time())

    run_local(jobs, task, n_workers=n_workers, on_tick=watch.look, on_given_up=give_up)


def _count_cores() -> int:
    """Cores that this process may use, which a container or a scheduler may have cut."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Watch:
    """Reads progress off the store; cells count by the expected work of their jobs."""

    _PAUSE_S = 1.0

    def __init__(
        self, store: ResultStore, jobs: Sequence[Job], *, n_before: int, on_progress: Callable[[Progress], None]
    ) -> None:
        self._store, self._n_before, self._on_progress = store, n_before, on_progress
        self._cost = {cell.key: job.cost / len(job.cells) for job in jobs for cell in job.cells}
        self._started_s, self._next_s = time.monotonic(), 0.0

    def look(self, *, is_last: bool = False) -> None:
        """Tell how far the run is, at most once a second."""
        now_s = time.monotonic()
        if now_s < self._next_s and not is_last:
            return
        self._next_s = now_s + self._PAUSE_S
        done = self._store.list_finished() & self._cost.keys()
        total = sum(self._cost.values())
        share = sum(self._cost[key] for key in done) / total if len(done) < len(self._cost) else 1.0
        elapsed_s = now_s - self._started_s
        left_s = elapsed_s * (1 - share) / share if share else None
        n_cells = self._n_before + len(self._cost)
        self._on_progress(Progress(self._n_before + len(done), n_cells, share, elapsed_s, left_s))
