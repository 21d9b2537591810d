"""Block-by-block search on a Ray cluster: a pair of blocks is a task, and its matrices travel once per node."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ruler.core.cluster import ClusterSettings, check_fit, connect, list_needs, worker_variables
from ruler.core.errors import ClusterError, InputError, RulerError
from ruler.neighbors.blocks import BlockBest, BlockPair, Run, Workers, find_neighbors_by_blocks
from ruler.neighbors.search import Searcher

MOST_RETRIES = 10  # of a task whose worker or node was lost; it can be done again anywhere
_TASKS_PER_WORKER = 2  # under way: enough to keep workers busy, few enough to keep results from piling up

Work = Callable[[BlockPair], list[BlockBest]]


@contextmanager
def search_on_cluster(cluster: ClusterSettings, device: str) -> Iterator[Searcher]:
    """Connect to a cluster and yield a search by its workers, on a device of theirs."""
    needs = list_needs(cluster, device)
    with connect(max(os.cpu_count() or 1, cluster.job_cpus)) as ray:
        yield partial(find_neighbors_by_blocks, run=run_on_ray(ray, needs), workers=find_workers(ray, needs))


def find_workers(ray: Any, needs: Mapping[str, float]) -> Workers:
    """How many tasks with these needs the cluster's nodes do at once now.

    Args:
        ray: The connected module.
        needs: As `list_needs` gives them.

    Raises:
        InputError: No node has room for a task.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    check_fit(needs, nodes)
    n_workers = sum(min(int(node.get(kind, 0) / needed) for kind, needed in needs.items()) for node in nodes)
    return Workers(n_workers, "cuda" if "GPU" in needs else None)


def run_on_ray(ray: Any, needs: Mapping[str, float]) -> Run:
    """A ``run`` for `find_neighbors_by_blocks`: tasks on the cluster that ``ray`` is connected to.

    Arrays are put into the object store once. Memory maps, and `StackedRows` of them, travel by the name of their file,
    which every node must see.

    Args:
        ray: The connected module.
        needs: Of a task, as `list_needs` gives them; its cores are its threads.
    """

    def run(work: Work, pairs: Iterable[BlockPair]) -> Iterator[list[BlockBest]]:
        n_threads = int(needs["CPU"])
        task = ray.remote(do_pair).options(
            num_cpus=n_threads,
            num_gpus=needs.get("GPU", 0),
            max_retries=MOST_RETRIES,
            name="search a pair of blocks",
            runtime_env={"env_vars": worker_variables(n_threads)},
        )
        n_at_once = _TASKS_PER_WORKER * find_workers(ray, needs).n_workers
        stored: dict[int, tuple[Any, Any]] = {}  # holds each matrix too: Python gives the id of a lost one again
        under_way: set[Any] = set()
        for pair in pairs:
            matrices = [pair.queries] if pair.queries is pair.base else [pair.queries, pair.base]
            for matrix in matrices:
                if id(matrix) not in stored:
                    stored[id(matrix)] = matrix, ray.put(matrix)
            references = [stored[id(matrix)][1] for matrix in matrices]
            under_way.add(task.remote(work, replace(pair, queries=None, base=None), n_threads, *references))
            if len(under_way) >= n_at_once:
                yield from _collect(ray, under_way)
        while under_way:
            yield from _collect(ray, under_way)

    return run


def do_pair(work: Work, pair: BlockPair, n_threads: int, queries: Any, base: Any = None) -> list[BlockBest]:
    """Do one task in a worker of the cluster."""
    import torch

    torch.set_num_threads(n_threads)
    return work(replace(pair, queries=queries, base=queries if base is None else base))


def _collect(ray: Any, under_way: set[Any]) -> Iterator[list[BlockBest]]:
    """Results of the tasks that are done, at least one."""
    for reference in ray.wait(list(under_way), num_returns=1)[0]:
        under_way.remove(reference)
        try:
            yield ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise _explain(error) from error
        except ray.exceptions.RayError as error:
            raise _report_loss(error) from error


def _explain(error: Any) -> Exception:
    """What the task itself raised: ours as it was, without Ray's account of it."""
    cause: Exception = error.cause
    if isinstance(cause, FileNotFoundError):
        return InputError(
            f"embeddings must be files that every node of the cluster sees; got {cause}. "
            "Put the shards on a disk that the nodes share."
        )
    if isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError":  # torch's, of a GPU
        return _report_loss(cause)
    return cause if isinstance(cause, RulerError) else error


def _report_loss(error: Exception) -> ClusterError:
    said = next(iter(str(error).splitlines()), "").strip()
    return ClusterError(
        f"a task must end within {MOST_RETRIES} retries and the memory it has; got {type(error).__name__}: {said} "
        "Let fewer tasks share a node's memory, with a larger --job-cpus or --job-gpus, or audit fewer rows."
    )
