"""Who does the work of a command: processes of this machine, or a Ray cluster."""

from typing import Any

from ruler.core.cluster import ClusterSettings
from ruler.core.errors import InputError
from ruler.core.registry import Registry

EXECUTORS = Registry("executor", {"local": "processes", "ray": "cluster"})


def choose_cluster(executor: str, **needs: float | None) -> ClusterSettings | None:
    """What a job takes of a cluster; None for this machine.

    Args:
        executor: A name of `EXECUTORS`.
        needs: Options of `ClusterSettings`, None where the user gave none.

    Raises:
        InputError: An option of a cluster without one, or a value that it cannot have.

    Example:
        >>> choose_cluster("ray", job_cpus=2, job_gpus=None).job_cpus
        2
    """
    given: dict[str, Any] = {name: value for name, value in needs.items() if value is not None}
    if EXECUTORS[executor] == "cluster":
        return ClusterSettings(**given)
    if given:
        name = next(iter(given)).replace("_", "-")
        raise InputError(f"--{name} must be used with --executor ray; got --executor {executor}. Leave it out.")
    return None
