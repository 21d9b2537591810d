"""Retries are counted by cell and by node, and a cluster that cannot do the jobs is refused."""

import importlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ruler.core.errors import InputError, MissingPackageError
from ruler.core.version import __version__
from ruler.experiment.cell import Workplace
from ruler.experiment.executors import cluster
from ruler.experiment.executors.cluster import ClusterSettings, check_room, connect
from ruler.experiment.executors.ray import MOST_LOST_NODES, Trip, check_version, run_ray
from ruler.experiment.executors.worker import MOST_DEATHS
from ruler.experiment.grid import Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import Provenance

STUDY = StudySettings("own", ("breast_cancer",), ("gradient_ascent", "scrub", "fine_tuning"), (0.05,), (0,))
GPU_STUDY = StudySettings("own", ("breast_cancer",), ("scrub",), (0.05,), (0,), engine="ensemble")


@pytest.fixture
def trip() -> Trip:
    (job,) = group_jobs(list_cells(STUDY))
    return Trip(job)


def test_a_cell_is_given_up_after_three_deaths_and_the_rest_of_its_job_gets_another_chance(trip: Trip) -> None:
    first, second, third = trip.job.cells
    assert [trip.give_up(is_node_lost=False) for _ in range(MOST_DEATHS)] == [(), (), (first,)]
    assert trip.job.cells == (second, third)
    trip.tick_off(second)
    assert [trip.give_up(is_node_lost=False) for _ in range(MOST_DEATHS)] == [(), (), (third,)]
    assert trip.job.cells == ()


def test_a_job_that_kills_whoever_touches_it_is_given_up_whole(trip: Trip) -> None:
    cells = trip.job.cells
    given_up = [trip.give_up(is_node_lost=False) for _ in range(MOST_DEATHS + 1)]
    assert given_up[-2:] == [cells[:1], cells[1:]]
    assert trip.job.cells == ()


def test_lost_nodes_are_not_held_against_a_job_for_long(trip: Trip) -> None:
    cells = trip.job.cells
    for _ in range(3):
        for _ in range(MOST_LOST_NODES - 1):
            assert trip.give_up(is_node_lost=True) == ()
        trip.tick_off(trip.job.cells[0])
        trip.job = Job(cells)
    for _ in range(MOST_LOST_NODES - 1):
        trip.give_up(is_node_lost=True)
    assert trip.give_up(is_node_lost=True) == cells


def test_jobs_must_fit_on_a_node() -> None:
    jobs, gpu_jobs = group_jobs(list_cells(STUDY)), group_jobs(list_cells(GPU_STUDY))
    small, large = {"CPU": 2.0}, {"CPU": 16.0, "GPU": 1.0}
    check_room(jobs, "cuda", ClusterSettings(job_cpus=2), [small])  # the protocol needs no GPU
    check_room(gpu_jobs, "cuda", ClusterSettings(), [small, large])
    with pytest.raises(InputError, match="must have a node with 3 CPU for a job; got nodes with 2 CPU, 0 GPU"):
        check_room(jobs, "cpu", ClusterSettings(job_cpus=3), [small])
    with pytest.raises(InputError, match=r"must have a node with 1 CPU and 0.25 GPU for a job"):
        check_room(gpu_jobs, "cuda", ClusterSettings(), [small])


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="job-cpus must be a whole number of at least 1; got 0"):
        ClusterSettings(job_cpus=0)
    for share in (0.0, 2.0, float("nan")):
        with pytest.raises(InputError, match="job-gpus must be above 0 and at most 1"):
            ClusterSettings(job_gpus=share)


def test_all_nodes_must_have_the_same_version() -> None:
    made_by = Provenance(device="cpu", ruler_version=__version__, commit=None, torch_version="2", machine="this")
    assert check_version(made_by) is made_by
    with pytest.raises(InputError, match=f"ruler must be version {__version__} on every node; got 0.0.1 on a node"):
        check_version(Provenance("cpu", "0.0.1", None, "2", "that"))


def test_without_ray_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", find_none)
    with pytest.raises(MissingPackageError, match=r'executor ray needs .* pip install "ruler-audit\[cluster\]"'):
        run_ray((), Workplace(), None, settings=ClusterSettings(), n_cores=1)  # type: ignore[arg-type]


class Ray(SimpleNamespace):
    """Stands in for Ray before it is connected."""

    def __init__(self, *, error: Exception | None = None, is_initialized: bool = False) -> None:
        super().__init__(is_initialized=lambda: is_initialized, shutdown=lambda: self.calls.append("shutdown"))
        self.calls: list[Any] = []
        self.error = error

    def init(self, **options: Any) -> None:
        self.calls.append(options)
        if self.error is not None:
            raise self.error


def connect_to(ray: Ray, monkeypatch: pytest.MonkeyPatch, address: str = "") -> list[Any]:
    monkeypatch.setattr(cluster, "load_optional", lambda module, needed_for: ray)
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with connect(3) as found:
        assert found is ray
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        ray.calls.append("work")
    return ray.calls


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """The address of somebody who says the same to everyone."""

    def serve() -> None:
        with suppress(OSError):  # closed
            while True:
                caller, _ = server.accept()
                with caller:
                    caller.recv(100)
                    caller.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


GRPC = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def test_a_cluster_is_found_or_started_and_left_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started, *rest = connect_to(Ray(), monkeypatch)
    assert (started["address"], started["num_cpus"], started["include_dashboard"]) == ("local", 3, False)
    assert rest == ["work", "shutdown"]
    with listening(GRPC) as address:
        found, *rest = connect_to(Ray(), monkeypatch, address)
    assert found["address"] == address
    assert "num_cpus" not in found
    assert rest == ["work", "shutdown"]
    assert connect_to(Ray(is_initialized=True), monkeypatch) == ["work"]  # the caller's connection stays


def test_an_address_without_a_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    no_answer = Ray(error=ConnectionError("no answer"))
    with (
        listening(GRPC) as address,
        pytest.raises(InputError, match=r"must name a running Ray cluster; got '127.*no answer"),
    ):
        connect_to(no_answer, monkeypatch, address)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(InputError, match=r"must name a running Ray cluster; got '127.*Start one with `ray start"):
        connect_to(Ray(), monkeypatch, address)
    for address in ("ray://head:10001", "head", "head:port"):
        with pytest.raises(InputError, match="RAY_ADDRESS must be HOST:PORT of a cluster that this machine is part of"):
            connect_to(Ray(), monkeypatch, address)
    with pytest.raises(InputError, match="must name a running Ray cluster; got 'auto'"):
        connect_to(Ray(error=ConnectionError("none here")), monkeypatch, "auto")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", GRPC[:5]])
def test_a_port_where_something_else_answers_is_refused(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with listening(answer) as address:
        with pytest.raises(InputError, match=r"must name a running Ray cluster; got '127.*\(something else answers"):
            connect_to(Ray(), monkeypatch, address)
        monkeypatch.setenv("RAY_USE_TLS", "1")  # what it says is then not ours to read
        assert connect_to(Ray(), monkeypatch, address)[0]["address"] == address


def test_a_port_that_never_answers_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(InputError, match=r"must name a running Ray cluster; got '127.*\(timed out\)"),
    ):
        connect_to(Ray(), monkeypatch, f"127.0.0.1:{server.getsockname()[1]}")
