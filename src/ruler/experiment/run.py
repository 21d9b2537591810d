"""Studies -> results on disk: the cells without a row are handed to an executor, with progress and failures."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ruler.core.errors import InputError, WriteError
from ruler.core.files import writing_safely
from ruler.core.optional import load_optional
from ruler.core.progress import show_progress
from ruler.data import DATASETS, FaceSet, check_gender, fetch_dataset, locate
from ruler.experiment.cell import Workplace
from ruler.experiment.executors import Executor, LocalExecutor
from ruler.experiment.grid import Cell, Job, group_jobs, list_cells, subtract
from ruler.experiment.settings import DEVICES, PAPER_FORGET_SEED, StudySettings, add_studies
from ruler.experiment.store import ResultStore

if TYPE_CHECKING:
    from ruler.models.language_models import LanguageModel

RESULTS_FILE, STUDY_FILE, LOCK_FILE = "results.sqlite", "study.toml", ".running.lock"
_LOOK_EVERY_S = 1.0
_RESOLVERS = {"text": "language_models:resolve_language_model", "prompts": "language_models:resolve_causal_model"}
"""Kinds of data that a pretrained model reads, and what finds it: ``module:function`` of `ruler.models`."""


@dataclass(frozen=True)
class RunSettings:
    """How and where studies are run; nothing here changes a number.

    Args:
        out: Folder for the results; created if it is absent.
        executor: Runs the jobs; by default on this machine alone.

    All others are those of `Workplace`.
    """

    out: Path
    executor: Executor = field(default_factory=LocalExecutor)
    device: str = "cpu"
    models: Path | None = None
    checkpoints: Path | None = None
    language_model: str | None = None
    table: Path | None = None
    reports: Path | None = None
    code: Path | None = None

    def __post_init__(self) -> None:
        DEVICES[self.device]
        if self.checkpoints is not None and not self.checkpoints.is_dir():
            raise InputError(f"checkpoints must be a folder; got {self.checkpoints}, which is not one. Name another.")

    @property
    def workplace(self) -> Workplace:
        """What workers need to know of these settings."""
        return Workplace(**{entry.name: getattr(self, entry.name) for entry in fields(Workplace)})


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Args:
        share: Of the expected work of all cells, from 0 to 1; a resumed run begins above 0.
    """

    n_done: int
    n_cells: int
    share: float


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
        on_progress: Called at most once per second, and at the end.

    Returns:
        A summary; the rows are in ``settings.out / "results.sqlite"``.

    Raises:
        InputError: No CUDA device, or results of another variant or language model in the folder.
        DownloadError: A dataset or a language model that is not here and cannot be fetched.
        FileFormatError: A folder that is not that of a masked language model, or a results file that is broken.
        WriteError: The disk is full or read-only, or another run is using the folder; finished cells have their rows.
    """
    cells = tuple(cell for study in studies for cell in list_cells(study))
    if settings.language_model is not None and not any(DATASETS[cell.dataset].kind in _RESOLVERS for cell in cells):
        raise InputError(
            "language_model must be omitted for studies without texts; got one. Only clinical and tofu read it."
        )

    def prepare(store: ResultStore, pending: Sequence[Cell]) -> None:
        asked = pending if settings.language_model is None else cells
        for kind in sorted(_RESOLVERS.keys() & {DATASETS[cell.dataset].kind for cell in asked}):
            of_kind = sorted({cell.dataset for cell in asked if DATASETS[cell.dataset].kind == kind})
            store.check_language_model(resolve_model(kind, settings.language_model).description, of_kind)
        gather_inputs({cell.dataset for cell in pending}, settings.language_model)
        add_studies(studies, settings.out / STUDY_FILE)

    return run_cells(cells, settings, prepare=prepare, on_progress=on_progress)


def run_cells(
    cells: Sequence[Cell],
    settings: RunSettings,
    *,
    prepare: Callable[[ResultStore, Sequence[Cell]], None] = lambda store, pending: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Measure those of the cells that have no row yet; see `run_studies`.

    Args:
        cells: What to run.
        settings: Where and how.
        prepare: Called with the store and the cells to do before the first of them: fetches what they read.
        on_progress: Called at most once per second, and at the end.
    """
    started_s = time.monotonic()
    with _holding(settings.out), ResultStore(settings.out / RESULTS_FILE) as store:
        store.check_variant(cells)
        pending = subtract(cells, store.list_finished())
        jobs = group_jobs(pending, device=settings.device)
        prepare(store, pending)
        watch = _Watch(store, group_jobs(cells, device=settings.device), on_progress=on_progress)
        if jobs:
            watch.look()  # a resumed run begins where the last one ended
            settings.executor.run(jobs, settings.workplace, store, on_tick=watch.look)
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


@contextmanager
def show_run() -> Iterator[Callable[[Progress], None]]:
    """Yield an ``on_progress`` that shows on stderr how far a run is; what was done before it does not count."""
    with ExitStack() as stack:
        done, advance = 0.0, None

        def show(now: Progress) -> None:
            nonlocal done, advance
            if advance is None:
                done, advance = now.share, stack.enter_context(show_progress("running", total=1.0 - now.share))
            advance(now.share - done, f"{now.n_done:,} of {now.n_cells:,} cells")
            done = now.share

        yield show


@contextmanager
def _holding(folder: Path) -> Iterator[None]:
    """Make the folder and keep other runs out of it: both would do the same cells. A killed run holds nothing."""
    filelock = load_optional("filelock", "running studies")
    with writing_safely(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = filelock.FileLock(folder / LOCK_FILE).acquire(timeout=0)
        except filelock.Timeout:
            raise WriteError(
                f"{folder} must be used by one run at a time; got another that is using it now. "
                "Wait until it has ended, or name another folder with --out."
            ) from None
    with held:
        yield


def gather_inputs(datasets: Iterable[str], language_model: str | None = None) -> None:
    """Check the language model if texts are read, and download the datasets that are absent.

    Args:
        datasets: Keys of the datasets that are about to be read.
        language_model: Folder or hub name of the model for texts; None looks for one.

    Raises:
        DownloadError: Something is not here and cannot be fetched.
        FileFormatError: A folder that is not that of a masked language model.
        CheckpointError: A model whose weights do not fit, or that lacks some below its head.
        InputError: Faces without gender, which no home publishes.
    """
    wanted = [DATASETS[key] for key in sorted(set(datasets))]
    kinds = {entry.kind for entry in wanted}
    if "text" in kinds:
        from ruler.models.language_models import check_language_model

        check_language_model(language_model)
    if "prompts" in kinds:
        from ruler.models.language_models import load_causal_language_model

        load_causal_language_model(resolve_model("prompts", language_model).folder)
    for entry in wanted:
        if isinstance(entry, FaceSet):
            check_gender(entry)
        elif locate(entry).place == "to download":
            fetch_dataset(entry.key, progress=True)


def resolve_model(kind: str, name: str | None) -> "LanguageModel":
    """The pretrained model for a kind of data, text or prompts: where it lies, and its name for the results."""
    module, _, function = _RESOLVERS[kind].partition(":")
    found: LanguageModel = getattr(import_module(f"ruler.models.{module}"), function)(name)  # needs transformers
    return found


class _Watch:
    """Reads progress off the store; cells count by the expected work of their jobs."""

    def __init__(self, store: ResultStore, jobs: Sequence[Job], *, on_progress: Callable[[Progress], None]) -> None:
        self._store, self._on_progress = store, on_progress
        self._cost = {cell.key: job.cost / len(job.cells) for job in jobs for cell in job.cells}
        self._next_s = 0.0

    def look(self, *, is_last: bool = False) -> None:
        """Tell how far the run is, at most once per second."""
        now_s = time.monotonic()
        if now_s < self._next_s and not is_last:
            return
        self._next_s = now_s + _LOOK_EVERY_S
        done = self._store.list_finished() & self._cost.keys()
        left = sum(self._cost[key] for key in self._cost.keys() - done)
        share = 1 - left / sum(self._cost.values()) if left else 1.0
        self._on_progress(Progress(len(done), len(self._cost), share))


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
            "forget sets; got a study without any. Run the study primary on the CPU with --engine protocol."
        )
    return cells


def export_models(studies: Sequence[StudySettings], settings: RunSettings, folder: Path) -> int:
    """Write the originals and oracles of the studies under the authors' file names; return how many cells had some.

    Raises:
        InputError: No study has such models, see `list_exported`.
    """
    from ruler.experiment.tabular.engines import ProtocolEngine

    cells = list_exported(studies)
    for job in group_jobs(cells):
        engine = ProtocolEngine(job, settings.workplace)
        for cell in job.cells:
            engine.export(cell, folder)
    return len(cells)
