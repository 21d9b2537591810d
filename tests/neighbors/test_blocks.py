import multiprocessing
import pickle
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.neighbors.reference import row_sets

from ruler.core.errors import InputError
from ruler.core.stacked import StackedRows
from ruler.embeddings import load_embeddings
from ruler.neighbors import find_neighbors
from ruler.neighbors.blocks import Workers, count_tasks, find_neighbors_by_blocks, over_devices, search_pair

torch = pytest.importorskip("torch")


def assert_same(found, expected):
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


def shuffled(work, tasks):
    results = [work(task) for task in tasks]
    random.Random(0).shuffle(results)
    return results


@given(rows=row_sets(), k=st.integers(1, 4), exclude_self=st.booleans(), n_shards=st.integers(1, 5))
@settings(max_examples=40)
def test_shards_give_the_answer_of_the_joined_array(rows, k, exclude_self, n_shards):
    k = min(k, len(rows) - exclude_self)
    stacked = StackedRows([part for part in np.array_split(rows, n_shards) if len(part)])
    expected = find_neighbors(rows, rows, k=k, exclude_self=exclude_self)
    assert_same(find_neighbors(stacked, stacked, k=k, exclude_self=exclude_self), expected)


@given(rows=row_sets(), k=st.integers(1, 4), exclude_self=st.booleans(), block_rows=st.integers(40, 200))
@settings(max_examples=30)
def test_blocks_in_any_order_give_the_answer_of_the_whole(rows, k, exclude_self, block_rows):
    k = min(k, len(rows) - exclude_self)
    expected = find_neighbors(rows, rows, k=k, exclude_self=exclude_self)
    options = {"k": k, "exclude_self": exclude_self, "block_rows": block_rows, "run": shuffled}
    assert_same(find_neighbors_by_blocks(rows, rows, **options), expected)
    assert_same(find_neighbors_by_blocks(rows, rows.copy(), **options), expected)


def test_each_pair_of_blocks_is_a_task_once():
    rows, seen = np.random.default_rng(0).normal(size=(30, 2)), []

    def watch(work, tasks):
        for task in tasks:
            seen.append((task.rows[0], task.columns[0], task.is_mirrored))
            yield work(task)

    find_neighbors_by_blocks(rows, rows, block_rows=10, run=watch)
    assert seen == [(0, 0, False), (0, 10, True), (0, 20, True), (10, 10, False), (10, 20, True), (20, 20, False)]


def test_tasks_travel_by_file_name(tmp_path):
    rows = np.random.default_rng(0).normal(size=(3000, 64)).astype(np.float32)
    for i, part in enumerate(np.array_split(rows, 3)):
        np.save(tmp_path / f"{i}.npy", part)
    stacked, sizes = load_embeddings(tmp_path).values, []

    def elsewhere(work, tasks):
        for task in tasks:
            sent = pickle.dumps(task)
            sizes.append(len(sent))
            yield pickle.loads(pickle.dumps(work(pickle.loads(sent))))

    found = find_neighbors_by_blocks(stacked, stacked, exclude_self=True, block_rows=700, run=elsewhere)
    assert_same(found, find_neighbors(rows, rows, exclude_self=True))
    assert max(sizes) < 3000


def test_bfloat16_shards_travel_by_file_name_too(tmp_path):
    from safetensors.torch import save_file

    values = torch.randn(50, 8).bfloat16()
    save_file({"values": values}, tmp_path / "a.safetensors")
    sent = pickle.dumps(load_embeddings(tmp_path).values)
    assert len(sent) < 600
    np.testing.assert_array_equal(pickle.loads(sent)[:], values.float())


@pytest.mark.slow
def test_a_pool_of_processes_gives_the_same(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20_000, 32)).astype(np.float32)
    np.save(tmp_path / "0.npy", rows)
    stacked = load_embeddings(tmp_path).values
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = find_neighbors_by_blocks(stacked, stacked, exclude_self=True, block_rows=6000, run=pool.imap_unordered)
    assert_same(found, find_neighbors(rows, rows, exclude_self=True))


def test_devices_take_tasks_as_they_become_free():
    rows = np.random.default_rng(0).normal(size=(300, 5))
    run, used = over_devices(["cpu", "cpu:0"]), set()

    def watch(pair):
        used.add(pair.device)
        return search_pair(pair)

    found = find_neighbors_by_blocks(
        rows, rows, block_rows=50, exclude_self=True, run=lambda _, tasks: run(watch, tasks)
    )
    assert_same(found, find_neighbors(rows, rows, exclude_self=True))
    assert used == {"cpu", "cpu:0"}
    with pytest.raises(InputError, match="devices must be at least one; got none"):
        over_devices([])


@pytest.mark.gpu
def test_devices_give_the_answer_of_the_processor():
    rows = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32)
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    found = find_neighbors_by_blocks(rows, rows, k=2, block_rows=9000, exclude_self=True, run=over_devices(devices))
    assert_same(found, find_neighbors(rows, rows, k=2, exclude_self=True, device="cpu"))


@pytest.mark.parametrize("is_self", [True, False])
@pytest.mark.parametrize("n_rows", [5_000, 262_144, 3_000_000])
@pytest.mark.parametrize(("device", "most"), [(None, 1 << 18), ("cuda", 1 << 20)])
def test_every_worker_gets_several_tasks_none_tiny(n_rows, is_self, device, most):
    for n_workers in (1, 2, 8, 64, 1000):
        rows = Workers(n_workers, device=device).choose_block_rows(10_000, n_rows, is_self=is_self)
        assert most // 16 <= rows <= most
        if rows > most // 16:
            assert count_tasks(10_000, n_rows, rows, is_self=is_self) >= 4 * n_workers
        if rows < most:
            assert count_tasks(10_000, n_rows, 2 * rows, is_self=is_self) < 4 * n_workers


def test_arguments_are_those_of_find_neighbors():
    rows = np.eye(3)
    with pytest.raises(InputError, match="k must be from 1 to the 2 rows of base"):
        find_neighbors_by_blocks(rows, rows, k=3, exclude_self=True)
    with pytest.raises(InputError, match="block_rows must be a whole number of at least 2; got 1"):
        find_neighbors_by_blocks(rows, rows, block_rows=1)


@pytest.mark.parametrize("side", ["queries", "base"])
def test_faults_are_counted_over_all_blocks(side):
    good = np.random.default_rng(0).normal(size=(40, 3))
    bad = good.copy()
    bad[[7, 30, 31]] = np.nan
    stacked = StackedRows(np.array_split(bad, 2), ["a.npy", "b.npy"])
    for held in (bad, stacked):
        rows = {"queries": good, "base": good, side: held}
        messages = []
        for search in (find_neighbors, partial(find_neighbors_by_blocks, block_rows=4)):
            with pytest.raises(InputError) as caught:
                search(**rows)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert "3 rows" in messages[0]
