"""Reading records on a Ray cluster: a shard is a task, and the model travels once per node."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ruler.core.cluster import check_fit, worker_variables
from ruler.core.errors import ClusterError, InputError, RulerError, shorten
from ruler.core.types import Embeddings
from ruler.embeddings.shards import Reading, Run, Shard, open_model, read_shard

MOST_RETRIES = 10  # of a task whose worker or node was lost; it can be done again anywhere
_TASKS_PER_WORKER = 2  # under way: enough to keep workers busy, few enough to keep results from piling up

_held: dict[str, Any] = {}
"""The model of the reading that this worker process does, by its key."""


def reading_on_ray(ray: Any, needs: Mapping[str, float]) -> Run:
    """A ``run`` for `embed_shards`: tasks on the cluster that ``ray`` is connected to.

    The process that calls writes the shards; nodes need to share no disk, unless the model is named by its folder. A
    worker keeps the model for its next shards. A task that is lost with its worker or node is done again elsewhere.

    Args:
        ray: The connected module, as `ruler.core.cluster.connect` gives it.
        needs: Of a task, as `ruler.core.cluster.list_needs` gives them: cores, which should be ``n_threads``, and the
            share of a GPU, for ``device="cuda"``.
    """

    def run(reading: Reading, model: Any, shards: Iterable[Shard]) -> Iterator[tuple[int, Embeddings]]:
        if ("GPU" in needs) != (str(reading.device).partition(":")[0] == "cuda"):
            raise InputError(
                f"device must be 'cuda' with a share of a GPU, and only then; got {reading.device!r}. Choose one."
            )
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        check_fit(needs, nodes)
        n_workers = sum(min(int(node.get(kind, 0) / needed) for kind, needed in needs.items()) for node in nodes)
        task = ray.remote(do_shard).options(
            num_cpus=needs["CPU"],
            num_gpus=needs.get("GPU", 0),
            max_retries=MOST_RETRIES,
            name="read a shard",
            runtime_env={"env_vars": worker_variables(reading.n_threads)},
        )
        stored = [model if isinstance(model, str) else ray.put(model)]  # in a list, so that a task may leave it there
        under_way: dict[Any, int] = {}
        for shard in shards:
            under_way[task.remote(reading, stored, shard)] = shard.number
            if len(under_way) >= _TASKS_PER_WORKER * n_workers:
                yield _collect(ray, under_way)
        while under_way:
            yield _collect(ray, under_way)

    return run


def do_shard(reading: Reading, stored: list[Any], shard: Shard) -> Embeddings:
    """Read one shard in a worker of the cluster."""
    if reading.key not in _held:
        import ray

        _held.clear()
        model = open_model(stored[0] if isinstance(stored[0], str) else ray.get(stored[0]))
        _held[reading.key] = model if reading.device is None else model.to(reading.device)
    return read_shard(reading, _held[reading.key], shard)


def _collect(ray: Any, under_way: dict[Any, int]) -> tuple[int, Embeddings]:
    """The result of a task that is done."""
    (reference,), _ = ray.wait(list(under_way), num_returns=1)
    number = under_way.pop(reference)
    try:
        return number, ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, RulerError) else error) from error
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"a shard must be read within {MOST_RETRIES} retries and the memory there is; got {type(error).__name__}: "
            f"{shorten(error, takes_all=False)} Take a smaller shard_size, or let fewer tasks share a node."
        ) from error
