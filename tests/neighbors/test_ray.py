"""Pairs of blocks on a cluster: each matrix is put once, results come as they are done."""

from functools import partial

import numpy as np
import pytest
from tests.neighbors.fake_ray import FakeRay, RayTaskError, WorkerCrashedError

from ruler.core.errors import ClusterError, DataMismatchError, InputError
from ruler.core.types import Neighbors
from ruler.neighbors import blocks, find_neighbors
from ruler.neighbors.blocks import Workers, find_neighbors_by_blocks
from ruler.neighbors.ray import find_workers, run_on_ray

ROWS = np.random.default_rng(0).normal(size=(90, 4))
CPU = {"CPU": 1.0}


def assert_same(found: Neighbors, expected: Neighbors) -> None:
    assert (found.index == expected.index).all()
    assert (found.similarity == expected.similarity).all()


def test_answers_are_those_of_one_process_whatever_the_order() -> None:
    queries = ROWS[:30] + 0.1
    ray = FakeRay()
    search = partial(find_neighbors_by_blocks, run=run_on_ray(ray, CPU), block_rows=16)
    own, other = search(ROWS, ROWS, k=2, exclude_self=True), search(queries, ROWS)
    assert_same(own, find_neighbors(ROWS, ROWS, k=2, exclude_self=True))
    assert_same(other, find_neighbors(queries, ROWS))
    assert ray.n_put == 3  # the rows once a search, the queries once
    assert ray.most_under_way == 4


def test_more_workers_get_more_tasks_and_give_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 64)
    expected, n_tasks = find_neighbors(ROWS, ROWS, k=2, exclude_self=True), []
    for n_workers in (1, 5, 100):
        ray = FakeRay({"CPU": n_workers})
        search = partial(find_neighbors_by_blocks, run=run_on_ray(ray, CPU), workers=find_workers(ray, CPU))
        assert_same(search(ROWS, ROWS, k=2, exclude_self=True), expected)
        n_tasks.append(len(ray.pairs))
    assert n_tasks == [6, 21, 276]  # blocks of 32, 16 and, though 400 tasks were wanted, 4 rows


def test_a_task_declares_its_cores_and_its_share_of_a_gpu() -> None:
    ray = FakeRay({"CPU": 8.0, "GPU": 1.0})
    for needs, device in (({"CPU": 2, "GPU": 0.25}, "cuda"), ({"CPU": 2}, None)):
        run, workers = run_on_ray(ray, needs), find_workers(ray, needs)
        find_neighbors_by_blocks(ROWS, ROWS, exclude_self=True, run=run, workers=workers)
        asked = ray.asked[-1]
        assert (asked["num_cpus"], asked["num_gpus"]) == (2, needs.get("GPU", 0))
        assert asked["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "2"
        assert ray.pairs[-1].device == device
    assert ray.n_threads == {2}


def test_workers_are_counted_on_each_node() -> None:
    ray = FakeRay({"CPU": 7.0, "GPU": 2.0}, {"CPU": 3.0}, {"CPU": 16.0, "GPU": 1.0})
    assert find_workers(ray, {"CPU": 2}) == Workers(3 + 1 + 8, None)
    assert find_workers(ray, {"CPU": 1, "GPU": 0.25}) == Workers(7 + 0 + 4, "cuda")
    with pytest.raises(
        InputError, match=r"must have a node with 8 CPU and 1 GPU for a job; got nodes with 7 CPU, 2 GPU"
    ):
        find_workers(FakeRay({"CPU": 7.0, "GPU": 2.0}), {"CPU": 8, "GPU": 1.0})


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (
            RayTaskError(FileNotFoundError("a.npy")),
            InputError,
            r"files that every node of the cluster sees; got a\.npy",
        ),
        (RayTaskError(DataMismatchError("rows must be")), DataMismatchError, "^rows must be$"),
        (RayTaskError(ValueError("odd")), RayTaskError, "traceback of odd"),
        (RayTaskError(MemoryError()), ClusterError, "and the memory it has; got MemoryError:  Let fewer tasks"),
        (
            WorkerCrashedError("The worker died.\nCheck logs."),
            ClusterError,
            r"within 10 retries .* got WorkerCrashedError: The worker died\. Let fewer .* larger --job-cpus",
        ),
    ],
)
def test_what_goes_wrong_is_told_in_our_words(failure: Exception, kind: type[Exception], message: str) -> None:
    run = run_on_ray(FakeRay(failure=failure), CPU)
    with pytest.raises(kind, match=message):
        find_neighbors_by_blocks(ROWS, ROWS, exclude_self=True, run=run, block_rows=4)
