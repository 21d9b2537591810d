"""Searches of an audit on a Ray cluster: a pair of blocks is a task, and its matrices travel once a node."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ruler.core.errors import InputError
from ruler.experiment.executors.worker import choose_variables
from ruler.neighbors.sharded import BlockBest, BlockPair, Run

_MOST_RETRIES = 10  # of a task whose worker or node was lost; it can be done again anywhere
_TASKS_A_CORE = 2  # under way: enough to keep workers busy, few enough to keep results from piling up

Work = Callable[[BlockPair], list[BlockBest]]


def search_on_ray(ray: Any, *, task_cpus: int = 1) -> Run:
    """A ``run`` for `searching_by_blocks`: tasks on the cluster that ``ray`` is connected to.

    Arrays are put into the object store once. Memory maps, and `StackedRows` of them, travel by the name of their file,
    which every node must see.

    Args:
        ray: The connected module.
        task_cpus: Cores, and threads, of a task.
    """

    def run(work: Work, pairs: Iterable[BlockPair]) -> Iterator[list[BlockBest]]:
        task = ray.remote(_do_pair).options(
            num_cpus=task_cpus,
            max_retries=_MOST_RETRIES,
            name="search a pair of blocks",
            runtime_env={"env_vars": choose_variables(task_cpus)},
        )
        n_at_once = max(1, int(_TASKS_A_CORE * ray.cluster_resources().get("CPU", 1) // task_cpus))
        put = _Once(ray.put)
        under_way: set[Any] = set()
        for pair in pairs:
            matrices = [put(pair.queries)] if pair.queries is pair.base else [put(pair.queries), put(pair.base)]
            under_way.add(task.remote(work, replace(pair, queries=None, base=None), task_cpus, *matrices))
            if len(under_way) >= n_at_once:
                yield from _collect(ray, under_way)
        while under_way:
            yield from _collect(ray, under_way)

    return run


class _Once:
    """Puts each matrix into the store when it is first met, and keeps it: Python gives the id of a lost one again."""

    def __init__(self, put: Callable[[Any], Any]) -> None:
        self._put = put
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, matrix: Any) -> Any:
        if id(matrix) not in self._known:
            self._known[id(matrix)] = matrix, self._put(matrix)
        return self._known[id(matrix)][1]


def _collect(ray: Any, under_way: set[Any]) -> Iterator[list[BlockBest]]:
    """Results of the tasks that are done, at least one."""
    for reference in ray.wait(list(under_way), num_returns=1)[0]:
        under_way.remove(reference)
        try:
            yield ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, FileNotFoundError):
                raise InputError(
                    f"embeddings must be files that every node of the cluster sees; got {error.cause}. "
                    "Put the shards on a disk that the nodes share."
                ) from error
            raise


def _do_pair(work: Work, pair: BlockPair, n_threads: int, queries: Any, base: Any = None) -> list[BlockBest]:
    import torch

    torch.set_num_threads(n_threads)
    return work(replace(pair, queries=queries, base=queries if base is None else base))
