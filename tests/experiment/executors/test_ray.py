"""What the coordinator asks of Ray, and what it makes of what comes back, told by a stand-in for Ray."""

import importlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ruler.core import __version__
from ruler.core.cluster import ClusterSettings
from ruler.core.errors import InputError, MissingPackageError
from ruler.experiment.cell import Outcome, Workplace
from ruler.experiment.executors import ray as module
from ruler.experiment.executors.local import MOST_DEATHS
from ruler.experiment.executors.ray import (
    MOST_LOST_NODES,
    RayExecutor,
    RunningJob,
    SentFiles,
    receive_files,
    send_files,
)
from ruler.experiment.grid import Job, group_jobs, list_cells
from ruler.experiment.rows import Provenance
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import ResultStore, load_results
from ruler.experiment.studies import choose_studies, shrink_studies

STUDY = StudySettings("own", ("breast_cancer",), ("gradient_ascent", "scrub"), (0.05,), (0, 1))
MADE_BY = Provenance(device="cpu", ruler_version=__version__, commit=None, torch_version="2", machine="a node")


class RayError(Exception):
    pass


class NodeDiedError(RayError):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(f"traceback of {cause}")
        self.cause = cause


class Ray:
    """Tasks end at once; ``reports`` says what the next one streams, given its job."""

    exceptions = SimpleNamespace(RayError=RayError, NodeDiedError=NodeDiedError, RayTaskError=RayTaskError)

    def __init__(self, *reports: Callable[[Job], list[Any]]) -> None:
        self.reports = deque(reports)
        self.asked: list[dict[str, Any]] = []
        self.sent: list[Job] = []
        self.most_at_once = 0

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}}, {"Alive": False, "Resources": {}}]

    def put(self, value: object) -> object:
        return value

    def remote(self, function: Any) -> "Ray":
        self.function = function  # what a worker would do
        return self

    def options(self, **options: Any) -> Any:
        self.asked.append(options)
        return SimpleNamespace(remote=self._start)

    def _start(self, job: Job, *others: Any, n_threads: int) -> Iterator[Any]:
        self.sent.append(job)
        report = self.reports.popleft() if self.reports else do_all
        return iter(report(job))

    def wait(self, streams: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        self.most_at_once = max(self.most_at_once, len(streams))
        return streams[:1], streams[1:]

    def get(self, value: Any) -> Any:
        if isinstance(value, Exception):
            raise value
        return value


def done(job: Job, n_cells: int | None = None) -> list[Any]:
    return [MADE_BY, *(Outcome(cell, {"n_forget": 22}, 1.0) for cell in job.cells[:n_cells])]


def do_all(job: Job) -> list[Any]:
    return done(job)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    def run(
        ray: Ray, study: StudySettings = STUDY, workplace: Workplace | None = None, n_jobs: int | None = None
    ) -> dict[str, str]:
        """Do the study's jobs; returns its failures."""

        @contextmanager
        def connect(n_cpus: int) -> Iterator[Ray]:
            yield ray

        monkeypatch.setattr(module, "connect", connect)
        with ResultStore(tmp_path / "results.sqlite") as store:
            executor = RayExecutor(n_jobs, ClusterSettings(job_cpus=2, job_gpus=0.5))
            executor.run(group_jobs(list_cells(study)), workplace or Workplace(), store, on_tick=lambda: None)
            return store.list_failures()

    return run


def test_jobs_are_tasks_with_what_they_need(run: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    ray = Ray()
    assert run(ray) == {}
    assert [asked["name"] for asked in ray.asked] == ["own breast_cancer seed 0", "own breast_cancer seed 1"]
    assert {(asked["num_cpus"], asked["num_gpus"]) for asked in ray.asked} == {(2, 0)}
    assert ray.asked[0]["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "2"
    assert set(load_results(tmp_path).machine) == {"a node"}
    assert len(load_results(tmp_path)) == 4


def test_only_jobs_on_a_gpu_take_a_share_of_one(run: Callable[..., dict[str, str]]) -> None:
    for study, expected in ((STUDY, 0), (replace(STUDY, name="many", engine="ensemble"), 0.5)):
        ray = Ray()
        run(ray, study, Workplace(device="cuda"))
        assert {asked["num_gpus"] for asked in ray.asked} == {expected}


@pytest.mark.parametrize(("n_jobs", "expected"), [(1, 1), (2, 2), (None, 2)])
def test_no_more_jobs_at_once_than_allowed(
    run: Callable[..., dict[str, str]], n_jobs: int | None, expected: int
) -> None:
    ray = Ray()
    run(ray, n_jobs=n_jobs)
    assert ray.most_at_once == expected


@pytest.mark.parametrize("error", [NodeDiedError("lost"), RayError("killed")])
def test_what_was_reported_is_not_done_again(
    run: Callable[..., dict[str, str]], tmp_path: Path, error: Exception
) -> None:
    ray = Ray(lambda job: [*done(job, 1), error])
    assert run(ray, n_jobs=1) == {}
    assert [len(job.cells) for job in ray.sent] == [2, 1, 2]
    assert ray.sent[1].cells == ray.sent[0].cells[1:]
    assert len(load_results(tmp_path)) == 4


def test_a_job_that_cannot_begin_fails_with_its_error_and_the_others_are_done(
    run: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    failures = run(Ray(lambda job: [RayTaskError(ImportError("No module named 'torch'"))]), n_jobs=1)
    assert list(failures.values()) == ["ImportError: No module named 'torch'"] * 2
    assert set(load_results(tmp_path).seed) == {1}


def test_a_job_that_cannot_load_is_sent_once_and_fails_with_its_error(
    run: Callable[..., dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace = Workplace(language_model=str(tmp_path / "nowhere"))
    monkeypatch.setattr(module, "load_optional", lambda name, needed_for: SimpleNamespace(get=None))
    ray = Ray(lambda job: list(ray.function(job, workplace, SentFiles({}), n_threads=1)))
    (study,) = shrink_studies(choose_studies("clinical"))
    failures = run(ray, replace(study, datasets=("mtsamples",), methods=(), forget_fractions=(0.05,)))
    assert len(ray.sent) == 1
    assert len(failures) == 2
    for error in failures.values():
        assert error.startswith(f"FileFormatError: {workplace.language_model} must be a folder with a config.json")


def test_nodes_that_are_lost_again_and_again_are_recorded(run: Callable[..., dict[str, str]]) -> None:
    failures = run(Ray(*[lambda job: [NodeDiedError("lost")]] * MOST_LOST_NODES), n_jobs=1)
    assert set(failures.values()) == {"WorkerDied: 10 nodes in a row were lost under this job"}


def test_a_node_of_another_version_ends_the_run(run: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ruler must be version .* on every node; got 0.0.1 on a node with a node"):
        run(Ray(lambda job: [replace(MADE_BY, ruler_version="0.0.1"), *done(job)[1:]]), n_jobs=1)
    assert len(load_results(tmp_path)) == 0


@pytest.fixture
def running() -> RunningJob:
    (job,) = group_jobs(list_cells(replace(STUDY, methods=("gradient_ascent", "scrub", "fine_tuning"), seeds=(0,))))
    return RunningJob(job)


def test_a_cell_is_given_up_after_three_deaths_and_the_rest_of_its_job_gets_another_chance(running: RunningJob) -> None:
    first, second, third = running.job.cells
    assert [running.give_up(is_node_lost=False) for _ in range(MOST_DEATHS)] == [(), (), (first,)]
    assert running.job.cells == (second, third)
    running.tick_off(second)
    assert [running.give_up(is_node_lost=False) for _ in range(MOST_DEATHS)] == [(), (), (third,)]
    assert running.job.cells == ()


def test_a_job_that_kills_whoever_touches_it_is_given_up_whole(running: RunningJob) -> None:
    cells = running.job.cells
    given_up = [running.give_up(is_node_lost=False) for _ in range(MOST_DEATHS + 1)]
    assert given_up[-2:] == [cells[:1], cells[1:]]
    assert running.job.cells == ()


def test_lost_nodes_are_not_held_against_a_job_for_long(running: RunningJob) -> None:
    cells = running.job.cells
    for _ in range(3):
        for _ in range(MOST_LOST_NODES - 1):
            assert running.give_up(is_node_lost=True) == ()
        running.tick_off(running.job.cells[0])
        running.job = Job(cells)
    for _ in range(MOST_LOST_NODES - 1):
        running.give_up(is_node_lost=True)
    assert running.give_up(is_node_lost=True) == cells


def test_without_ray_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", find_none)
    with pytest.raises(MissingPackageError, match=r'executor ray needs .* pip install "ruler-audit\[cluster\]"'):
        RayExecutor().run((), Workplace(), None, on_tick=lambda: None)  # type: ignore[arg-type]


class Shelf:
    """Stands in for the object store, and counts what is fetched."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.n_fetched = 0

    def put(self, content: bytes) -> int:
        self.held.append(content)
        return len(self.held) - 1

    def get(self, reference: int) -> bytes:
        self.n_fetched += 1
        return self.held[reference]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The coordinator's machine: a data folder with one set and a folder of published models."""
    (tmp_path / "data" / "tabular").mkdir(parents=True)
    (tmp_path / "data" / "tabular" / "adult.csv.gz").write_bytes(b"a table")
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "adult_seed0_orig.pt").write_bytes(b"a model")
    (tmp_path / "published" / "magic_seed0_orig.pt").write_bytes(b"of another dataset")
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def move_to(folder: Path, monkeypatch: pytest.MonkeyPatch, *, data: str | None = None) -> None:
    monkeypatch.setenv("RULER_CACHE", str(folder))
    monkeypatch.delenv("RULER_DATA") if data is None else monkeypatch.setenv("RULER_DATA", data)


def test_a_bare_node_gets_the_data_once(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = send_files("adult", Workplace(), shelf.put)
    move_to(tmp_path / "node", monkeypatch, data="/nowhere")
    for _ in range(2):
        assert receive_files(sent, Workplace(), shelf.get) == Workplace()
    assert (tmp_path / "node" / "tabular" / "adult.csv.gz").read_bytes() == b"a table"
    assert shelf.n_fetched == 1


def test_a_node_that_sees_the_coordinators_folder_reads_it_there(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = send_files("adult", Workplace(checkpoints=source / "published"), shelf.put)
    move_to(tmp_path / "node", monkeypatch)
    workplace = Workplace(checkpoints=source / "published")
    assert receive_files(sent, workplace, shelf.get) == workplace
    assert shelf.n_fetched == 0
    assert not (tmp_path / "node").exists()


def test_published_models_of_the_dataset_come_along(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = send_files("adult", Workplace(checkpoints=source / "published"), shelf.put)
    move_to(tmp_path / "node", monkeypatch, data=str(source / "data"))
    there = receive_files(sent, Workplace(checkpoints=Path("/nowhere/published")), shelf.get).checkpoints
    assert there is not None
    assert there.is_relative_to(tmp_path / "node")
    assert there.name == "published"
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {"adult_seed0_orig.pt": b"a model"}


def test_a_named_language_model_comes_along_with_texts(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "own-bert").mkdir()
    (source / "own-bert" / "config.json").write_bytes(b"{}")
    workplace = Workplace(language_model=str(source / "own-bert"))
    assert send_files("adult", workplace, shelf.put).folders == {}
    assert send_files("mtsamples", Workplace(language_model="hub/name"), shelf.put).folders == {}
    sent = send_files("mtsamples_rows", workplace, shelf.put)
    (source / "own-bert").rename(source / "elsewhere")  # the node does not see it
    move_to(tmp_path / "node", monkeypatch)
    there = receive_files(sent, workplace, shelf.get).language_model
    assert there is not None
    assert Path(there).name == "own-bert"  # rows name the model by its folder
    assert (Path(there) / "config.json").read_bytes() == b"{}"
    assert receive_files(SentFiles({}), Workplace(language_model="hub/name"), shelf.get).language_model == "hub/name"


def test_models_of_another_content_never_share_a_folder(source: Path, shelf: Shelf) -> None:
    workplace = Workplace(checkpoints=source / "published")
    before = send_files("adult", workplace, shelf.put).folders["checkpoints"]
    (source / "published" / "adult_seed0_orig.pt").write_bytes(b"a better model")
    after = send_files("adult", workplace, shelf.put).folders["checkpoints"]
    assert before.place != after.place


def test_a_set_that_comes_with_scikit_learn_needs_no_file(source: Path, shelf: Shelf) -> None:
    assert send_files("breast_cancer", Workplace(), shelf.put) == SentFiles({}, data_root=str(source / "data"))


@pytest.mark.parametrize(
    ("dataset", "place"), [("cifar10", "images/cifar10.npz"), ("mtsamples_rows", "text/mtsamples.csv.gz")]
)
def test_every_kind_of_dataset_travels(source: Path, shelf: Shelf, dataset: str, place: str) -> None:
    (source / "data" / place).parent.mkdir()
    (source / "data" / place).write_bytes(b"images or text")
    assert send_files(dataset, Workplace(), shelf.put).data == {place: 0}
