"""Pairs of blocks on a cluster: each matrix is put once, results come as they are done."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.experiment.executors.blocks import search_on_ray
from ruler.neighbors import find_neighbors
from ruler.neighbors.sharded import searching_by_blocks


class TaskError(Exception):
    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class FakeRay:
    """Does tasks at once, and counts what is put."""

    def __init__(self, *, failure: Exception | None = None) -> None:
        self.n_put, self.most_under_way, self._failure = 0, 0, failure
        self.exceptions = SimpleNamespace(RayTaskError=TaskError)

    def put(self, value: Any) -> tuple[str, Any]:
        self.n_put += 1
        return ("put", value)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, function: Any) -> Any:
        def start(*arguments: Any) -> Any:
            opened = [part[1] if isinstance(part, tuple) and part[:1] == ("put",) else part for part in arguments]
            return partial(function, *opened)

        task = SimpleNamespace(remote=start)
        task.options = lambda **options: task
        return task

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        self.most_under_way = max(self.most_under_way, len(references))
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> Any:
        if self._failure is not None:
            raise TaskError(self._failure)
        return reference()


def test_answers_are_those_of_one_process_whatever_the_order() -> None:
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(90, 4)), rng.normal(size=(30, 4))
    ray = FakeRay()
    with searching_by_blocks(search_on_ray(ray), block_rows=16):
        own, other = find_neighbors(rows, rows, k=2, exclude_self=True), find_neighbors(queries, rows)
    for found, expected in (
        (own, find_neighbors(rows, rows, k=2, exclude_self=True)),
        (other, find_neighbors(queries, rows)),
    ):
        assert (found.index == expected.index).all()
        assert (found.similarity == expected.similarity).all()
    assert ray.n_put == 3  # the rows once a search, the queries once
    assert ray.most_under_way == 4


def test_shards_that_a_node_does_not_see_are_named() -> None:
    rows = np.eye(6)
    run = search_on_ray(FakeRay(failure=FileNotFoundError("retain/a.npy")))
    with (
        searching_by_blocks(run, block_rows=4),
        pytest.raises(InputError, match=r"files that every node of the cluster sees; got retain/a\.npy"),
    ):
        find_neighbors(rows, rows, exclude_self=True)


def test_other_faults_of_a_task_are_passed_on() -> None:
    rows = np.eye(6)
    with searching_by_blocks(search_on_ray(FakeRay(failure=ValueError("odd"))), block_rows=4), pytest.raises(TaskError):
        find_neighbors(rows, rows, exclude_self=True)
