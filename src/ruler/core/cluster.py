"""A Ray cluster to run on: found or started, and with room for a task."""

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

_QUIET = {"log_to_driver": False, "logging_level": logging.ERROR}
CONNECT_TIMEOUT_S = 10.0
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The preface of a client and an empty settings frame (type 4); a server answers with such a frame (RFC 9113, 3.4)."""


@dataclass(frozen=True)
class ClusterSettings:
    """What a task takes of a Ray cluster; nothing here changes a number.

    ``RAY_ADDRESS`` names a running cluster. Without it one is started on this machine for the run.

    Args:
        job_cpus: Cores per task. The protocol engine computes on one of them whatever it is given.
        job_gpus: Share of a GPU per task, if it runs on one.

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
    """Connect Ray to the cluster that RAY_ADDRESS names, or to one of ``n_cpus`` cores that ends with the run."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else Ray warns on every task without a GPU
    ray = load_optional("ray", "the executor ray")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        ray.init(address="local", num_cpus=n_cpus, include_dashboard=False, **_QUIET)
    else:
        try:
            _check_answer(address)
            ray.init(address=address, **_QUIET)
        except (ConnectionError, OSError, OverflowError, RuntimeError, ValueError) as error:
            raise InputError(
                f"RAY_ADDRESS must name a running Ray cluster as HOST:PORT; got {address!r} ({error}). Start one with "
                "`ray start --head`, or unset RAY_ADDRESS. From outside a cluster, use `ray job submit`."
            ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answer(address: str) -> None:
    """Raise OSError or ValueError if no Ray answers: Ray itself would try a wrong address for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host:
        raise ValueError("not HOST:PORT")
    with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S) as connection:
        if os.environ.get("RAY_USE_TLS", "0") != "0":
            return  # what it says is encrypted
        connection.sendall(_HTTP2_GREETING)
        with connection.makefile("rb") as answer:
            header = answer.read(9)
    if len(header) < 9 or header[3] != _HTTP2_GREETING[-6]:
        raise ValueError("something else answers there")


def list_needs(settings: ClusterSettings, device: str) -> dict[str, float]:
    """What a task on this device takes of a node, by Ray's names.

    Example:
        >>> list_needs(ClusterSettings(job_cpus=2), "cuda")
        {'CPU': 2, 'GPU': 0.25}
    """
    return {"CPU": settings.job_cpus} | ({"GPU": settings.job_gpus} if device == "cuda" else {})


def check_fit(needs: Mapping[str, float], nodes: Sequence[Mapping[str, float]]) -> None:
    """Check that some node has all that a task needs: Ray would wait forever for one."""
    if any(all(node.get(kind, 0) >= needed for kind, needed in needs.items()) for node in nodes):
        return
    wanted = " and ".join(f"{needed:g} {kind}" for kind, needed in needs.items())
    offers = "; ".join(f"{node.get('CPU', 0):g} CPU, {node.get('GPU', 0):g} GPU" for node in nodes)
    raise InputError(
        f"the cluster must have a node with {wanted} for a job; got nodes with {offers}. "
        "Add such a node, or lower --job-cpus or --job-gpus."
    )


def worker_variables(n_threads: int) -> dict[str, str]:
    """Environment variables that a worker process must find set before its libraries load.

    Example:
        >>> worker_variables(2)["OMP_NUM_THREADS"]
        '2'
    """
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(n_threads)),
        # glibc: keep freed blocks, instead of fetching zeroed pages anew for the tensors of every step
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
    }
