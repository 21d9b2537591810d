"""What the coordinator asks of Ray, and what it makes of what comes back, told by a stand-in for Ray."""

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
from ruler.core.errors import InputError
from ruler.experiment.cell import Outcome, Workplace
from ruler.experiment.executors import ray as module
from ruler.experiment.executors.parcels import Parcel
from ruler.experiment.executors.ray import run_ray
from ruler.experiment.grid import Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import Provenance, ResultStore, load_results
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
    def run(ray: Ray, study: StudySettings = STUDY, device: str = "cpu", **options: Any) -> dict[str, str]:
        """Do the study's jobs; returns its failures."""

        @contextmanager
        def connect(n_cpus: int) -> Iterator[Ray]:
            yield ray

        monkeypatch.setattr(module, "connect", connect)
        with ResultStore(tmp_path / "results.sqlite") as store:
            settings = ClusterSettings(job_cpus=2, job_gpus=0.5)
            jobs, workplace = group_jobs(list_cells(study)), Workplace(device=device)
            run_ray(jobs, workplace, store, settings=settings, n_cores=1, **options)
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
        run(ray, study, "cuda")
        assert {asked["num_gpus"] for asked in ray.asked} == {expected}


@pytest.mark.parametrize(("n_at_once", "expected"), [(1, 1), (2, 2), (None, 2)])
def test_no_more_jobs_at_once_than_allowed(
    run: Callable[..., dict[str, str]], n_at_once: int | None, expected: int
) -> None:
    ray = Ray()
    run(ray, n_at_once=n_at_once)
    assert ray.most_at_once == expected


@pytest.mark.parametrize("error", [NodeDiedError("lost"), RayError("killed")])
def test_what_was_reported_is_not_done_again(
    run: Callable[..., dict[str, str]], tmp_path: Path, error: Exception
) -> None:
    ray = Ray(lambda job: [*done(job, 1), error])
    assert run(ray, n_at_once=1) == {}
    assert [len(job.cells) for job in ray.sent] == [2, 1, 2]
    assert ray.sent[1].cells == ray.sent[0].cells[1:]
    assert len(load_results(tmp_path)) == 4


def test_a_job_that_cannot_begin_fails_with_its_error_and_the_others_are_done(
    run: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    failures = run(Ray(lambda job: [RayTaskError(ImportError("No module named 'torch'"))]), n_at_once=1)
    assert list(failures.values()) == ["ImportError: No module named 'torch'"] * 2
    assert set(load_results(tmp_path).seed) == {1}


def test_a_job_that_cannot_load_is_sent_once_and_fails_with_its_error(
    run: Callable[..., dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace = Workplace(language_model=str(tmp_path / "nowhere"))
    monkeypatch.setattr(module, "load_optional", lambda name, needed_for: SimpleNamespace(get=None))
    ray = Ray(lambda job: list(module._do_job(job, workplace, Parcel({}), n_threads=1)))
    (study,) = shrink_studies(choose_studies("clinical"))
    failures = run(ray, replace(study, datasets=("mtsamples",), methods=(), forget_fractions=(0.05,)))
    assert len(ray.sent) == 1
    assert len(failures) == 2
    for error in failures.values():
        assert error.startswith(f"FileFormatError: {workplace.language_model} must be a folder with a config.json")


def test_nodes_that_are_lost_again_and_again_are_recorded(run: Callable[..., dict[str, str]]) -> None:
    failures = run(Ray(*[lambda job: [NodeDiedError("lost")]] * module.MOST_LOST_NODES), n_at_once=1)
    assert set(failures.values()) == {"WorkerDied: 10 nodes in a row were lost under this job"}


def test_a_node_of_another_version_ends_the_run(run: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ruler must be version .* on every node; got 0.0.1 on a node with a node"):
        run(Ray(lambda job: [replace(MADE_BY, ruler_version="0.0.1"), *done(job)[1:]]), n_at_once=1)
    assert len(load_results(tmp_path)) == 0
