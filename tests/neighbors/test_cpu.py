"""The engine of the processor: blocks, threads and memory change nothing."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.neighbors.reference import row_sets

from ruler.neighbors import cpu, find_neighbors, first_pass, recheck
from ruler.neighbors.cpu import search_both
from ruler.testing.engines import KINDS

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["random", "clustered", "discrete"])
@pytest.mark.parametrize(("tile", "held", "threads"), [(128, 10, 1), (256, 10**9, 3), (2048, 500, 2)])
def test_block_size_memory_and_threads_change_nothing(kind, tile, held, threads, random, monkeypatch):
    rows = KINDS[kind](random, 1500, 10)
    expected = find_neighbors(rows, rows, k=2, exclude_self=True)
    for module in (first_pass, cpu):
        monkeypatch.setattr(module, "TILE_ROWS", tile)
    monkeypatch.setattr(first_pass, "MOST_HELD", held)
    monkeypatch.setattr(first_pass, "WAVE_PANELS", 1)
    monkeypatch.setattr(recheck, "MOST_ROWS", 7)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = find_neighbors(rows, rows, k=2, exclude_self=True)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


def test_an_interrupt_ends_the_search_and_its_threads(random, monkeypatch):
    rows = random.normal(size=(6000, 8))
    calls = itertools.count()

    def interrupt(self, *args, **kwargs):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    original = first_pass.Shortlist.add
    monkeypatch.setattr(first_pass.Shortlist, "add", interrupt)
    n_threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        find_neighbors(rows, rows, exclude_self=True)
    assert threading.active_count() == n_threads


def test_small_work_does_not_import_torch(run_python):
    code = "import sys, numpy as np, ruler; x = np.eye(50); ruler.find_neighbors(x, x, exclude_self=True)"
    assert run_python(f"{code}; print('torch' in sys.modules)").strip() == "False"


def assert_same(found, expected):
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@given(queries=row_sets(), base=row_sets(), k=st.integers(1, 4))
@settings(max_examples=40)
def test_both_sides_are_two_searches(queries, base, k):
    base = np.resize(base, (len(base), queries.shape[1]))
    ours, theirs = search_both(queries, base, k=k)
    assert_same(ours, find_neighbors(queries, base, k=min(k, len(base))))
    assert_same(theirs, find_neighbors(base, queries, k=min(k, len(queries))))
