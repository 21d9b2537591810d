"""Options of the executor ray, for the verbs that have them."""

from collections.abc import Iterable
from typing import Any

from ruler.core.cluster import ClusterSettings
from ruler.core.errors import InputError
from ruler.core.registry import Registry


def choose_cluster(
    executor: str, known: Iterable[str] = ("local", "ray"), **needs: float | None
) -> ClusterSettings | None:
    """What a job takes of a cluster; None for an executor without one.

    Args:
        executor: Its name.
        known: Names that the verb takes.
        needs: Options of `ClusterSettings`, None where the user gave none.

    Raises:
        InputError: An unknown name, an option of a cluster without one, or a value that it cannot have.

    Example:
        >>> choose_cluster("ray", job_cpus=2, job_gpus=None).job_cpus
        2
    """
    given: dict[str, Any] = {name: value for name, value in needs.items() if value is not None}
    Registry("executor", dict.fromkeys(known))[executor]
    if executor == "ray":
        return ClusterSettings(**given)
    if given:
        name = next(iter(given)).replace("_", "-")
        raise InputError(f"--{name} must be used with --executor ray; got --executor {executor}. Omit it.")
    return None
