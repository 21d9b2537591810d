"""A Ray cluster to run on: found or started, and with room for a job."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.experiment.executors.worker import choose_device
from ruler.experiment.grid import Job

_QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
_PATIENCE_S = 10.0
_SETTINGS_FRAME = 4  # of HTTP/2


@dataclass(frozen=True)
class ClusterSettings:
    """What a job takes of a Ray cluster; nothing here changes a number.

    ``RAY_ADDRESS`` names a running cluster. Without it one is started on this machine for the run.

    Args:
        job_cpus: Cores of a job. The protocol computes on one of them whatever it is given.
        job_gpus: Share of a GPU that a job takes, if it runs on one.

    Example:
        >>> ClusterSettings(job_gpus=0.5).job_cpus
        1
    """

    job_cpus: int = 1
    job_gpus: float = 0.25

    def __post_init__(self) -> None:
        check_number(self.job_cpus, "job-cpus", minimum=1, is_whole=True)
        if not 0 < self.job_gpus <= 1:
            raise InputError(f"job-gpus must be above 0 and at most 1; got {self.job_gpus}. A job uses one GPU.")


@contextmanager
def connect(n_cpus: int) -> Iterator[Any]:
    """Ray, connected to the cluster that RAY_ADDRESS names, or to one of our own that ends with the run.

    Args:
        n_cpus: For a cluster of our own.

    Raises:
        InputError: No such cluster.
        MissingPackageError: Ray is not installed.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Ray would announce a change of its own with a warning on every task without a GPU.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray = load_optional("ray", "the executor ray")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        ray.init(address="local", num_cpus=n_cpus, include_dashboard=False, **_QUIET)
    else:
        _join(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def _join(ray: Any, address: str) -> None:
    if address != "auto":
        _knock(address)  # Ray itself would try a wrong address for minutes
    try:
        ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"RAY_ADDRESS must name a running Ray cluster; got {address!r} ({error}).") from error


def _knock(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise InputError(
            f"RAY_ADDRESS must be HOST:PORT of a cluster that this machine is part of; got {address!r}. "
            "Run the command on one of its nodes, or hand it to `ray job submit`."
        )
    try:
        with socket.create_connection((host, int(port)), timeout=_PATIENCE_S) as connection:
            is_answered = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(connection)
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error
    if not is_answered:
        raise _no_cluster(address, "something else answers there")


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether gRPC, so perhaps Ray, answers: both sides of HTTP/2 begin with a frame of settings (RFC 9113, 3.4)."""
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS_FRAME, 0, 0, 0, 0, 0)))
    with connection.makefile("rb") as answer:
        header = answer.read(9)
    return len(header) == 9 and header[3] == _SETTINGS_FRAME


def _no_cluster(address: str, reason: str) -> InputError:
    return InputError(
        f"RAY_ADDRESS must name a running Ray cluster; got {address!r} ({reason}). "
        "Start one with `ray start --head`, or unset RAY_ADDRESS."
    )


def list_needs(settings: ClusterSettings, device: str) -> dict[str, float]:
    """What a task takes of a node, by Ray's names.

    Example:
        >>> list_needs(ClusterSettings(job_cpus=2), "cuda")
        {'CPU': 2, 'GPU': 0.25}
    """
    return {"CPU": settings.job_cpus} | ({"GPU": settings.job_gpus} if device == "cuda" else {})


def count_needs(job: Job, device: str, settings: ClusterSettings) -> dict[str, float]:
    """What a job of a run on this device takes of a node.

    Example:
        >>> from ruler.experiment.grid import Cell
        >>> count_needs(Job((Cell("primary", "adult", "scrub", 0.05, 0, 5e-4),)), "cuda", ClusterSettings())
        {'CPU': 1}
    """
    return list_needs(settings, choose_device(job, device))


def check_room(jobs: Sequence[Job], device: str, settings: ClusterSettings, nodes: Sequence[dict[str, float]]) -> None:
    """Whether each job fits on some node: Ray would wait for ever for one on which it does.

    Args:
        nodes: The resources of each.

    Raises:
        InputError: A job fits nowhere.
    """
    for job in jobs:
        check_fit(count_needs(job, device, settings), nodes)


def check_fit(needs: Mapping[str, float], nodes: Sequence[dict[str, float]]) -> None:
    """Whether some node has all that a job needs.

    Raises:
        InputError: None has.
    """
    if any(all(node.get(kind, 0) >= needed for kind, needed in needs.items()) for node in nodes):
        return
    wanted = " and ".join(f"{needed:g} {kind}" for kind, needed in needs.items())
    offers = "; ".join(f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU" for node in nodes)
    raise InputError(
        f"the cluster must have a node with {wanted} for a job; got nodes with {offers}. "
        "Add such a node, or lower --job-cpus or --job-gpus."
    )
