"""A cluster is found or started, and one that cannot do the work is refused."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from ruler.core import cluster
from ruler.core.cluster import ClusterSettings, check_fit, connect, list_needs
from ruler.core.errors import InputError


def test_tasks_must_fit_on_a_node() -> None:
    small, large = {"CPU": 2.0}, {"CPU": 16.0, "GPU": 1.0}
    check_fit(list_needs(ClusterSettings(job_cpus=2), "cpu"), [small])
    check_fit(list_needs(ClusterSettings(), "cuda"), [small, large])
    with pytest.raises(InputError, match="must have a node with 3 CPU for a job; got nodes with 2 CPU, 0 GPU"):
        check_fit(list_needs(ClusterSettings(job_cpus=3), "cpu"), [small])
    with pytest.raises(InputError, match=r"must have a node with 1 CPU and 0.25 GPU for a job"):
        check_fit(list_needs(ClusterSettings(), "cuda"), [small])


def test_settings_are_checked() -> None:
    with pytest.raises(InputError, match="job-cpus must be a whole number of at least 1; got 0"):
        ClusterSettings(job_cpus=0)
    for share in (0.0, 2.0, float("nan")):
        with pytest.raises(InputError, match="job-gpus must be above 0 and at most 1"):
            ClusterSettings(job_gpus=share)


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
        pytest.raises(InputError, match=r"must name a running Ray cluster as HOST:PORT; got '127.*no answer"),
    ):
        connect_to(no_answer, monkeypatch, address)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(InputError, match=r"name a running Ray cluster as HOST:PORT; got .127.*Start one with"):
        connect_to(Ray(), monkeypatch, address)
    for address in ("ray://head:10001", "head", "head:port"):
        with pytest.raises(InputError, match="RAY_ADDRESS must name a running Ray cluster as HOST:PORT"):
            connect_to(Ray(), monkeypatch, address)
    with pytest.raises(InputError, match="must name a running Ray cluster as HOST:PORT; got 'auto'"):
        connect_to(Ray(error=ConnectionError("none here")), monkeypatch, "auto")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", GRPC[:5]])
def test_a_port_where_something_else_answers_is_refused(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with listening(answer) as address:
        with pytest.raises(
            InputError, match=r"name a running Ray cluster as HOST:PORT; got .*\(something else answers"
        ):
            connect_to(Ray(), monkeypatch, address)
        monkeypatch.setenv("RAY_USE_TLS", "1")  # what it says is then not ours to read
        assert connect_to(Ray(), monkeypatch, address)[0]["address"] == address


def test_a_port_that_never_answers_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_TIMEOUT_S", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(InputError, match=r"must name a running Ray cluster as HOST:PORT; got '127.*\(timed out\)"),
    ):
        connect_to(Ray(), monkeypatch, f"127.0.0.1:{server.getsockname()[1]}")
