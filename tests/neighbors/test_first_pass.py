import itertools
import tracemalloc

import numpy as np
import pytest

from ruler.neighbors import first_pass
from ruler.neighbors.first_pass import Shortlist
from ruler.neighbors.tiles import Maxima


def make_maxima(values):
    return Maxima(upper=values + 0.01, lower=values - 0.01)


def test_what_is_taken_out_is_what_the_bounds_leave(random, monkeypatch):
    monkeypatch.setattr(first_pass, "FIRST_ROOM", 4)
    values = random.uniform(size=(20, 50, 8))  # queries 50 by 50, in 20 steps of 8 sub-blocks
    shortlist = Shortlist(50, 2)
    for step, maxima in enumerate(values):
        shortlist.add(0, 8 * step, make_maxima(maxima))
    found = shortlist.take()
    everything = values.transpose(1, 0, 2).reshape(50, 160)
    floor = np.sort(everything - 0.01, axis=1)[:, -2]
    expected = np.argwhere(everything + 0.01 >= floor[:, None])
    order = np.lexsort((found.blocks, found.rows))
    np.testing.assert_array_equal(np.stack([found.rows, found.blocks], 1)[order], expected)
    np.testing.assert_allclose(found.upper, everything[found.rows, found.blocks] + 0.01)
    assert len(shortlist.take()) == 0


def test_steps_that_leave_nothing_take_no_memory():
    shortlist = Shortlist(10, 1)
    shortlist.add(0, 0, make_maxima(np.ones((10, 4))))
    nothing = make_maxima(np.zeros((10, 4)))
    tracemalloc.start()
    for step in range(2000):
        shortlist.add(0, step, nothing)
    n_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_bytes < 20_000
    assert len(shortlist.take()) == 40


def test_much_room_is_given_back(monkeypatch):
    monkeypatch.setattr(first_pass, "MOST_HELD", 100)
    monkeypatch.setattr(first_pass, "FIRST_ROOM", 16)
    shortlist = Shortlist(50, 1)
    shortlist.add(0, 0, make_maxima(np.ones((50, 10))))
    assert shortlist.is_full
    assert len(shortlist.take()) == 500
    assert len(shortlist.held) == 16


@pytest.mark.parametrize(
    ("n_queries", "n_base", "is_self"), [(5, 5, True), (9, 9, True), (3, 11, False), (11, 3, False)]
)
@pytest.mark.parametrize("n_resident", [1, 2, 4, 64])
def test_each_pair_of_tiles_is_multiplied_once(n_queries, n_base, is_self, n_resident, monkeypatch):
    monkeypatch.setattr(first_pass, "PANEL_TILES", 2)
    panels = first_pass.list_panels(n_queries, n_base, is_self, n_resident)
    pairs = sorted(itertools.chain.from_iterable(panels))
    every = itertools.product(range(n_queries), range(n_base))
    assert pairs == [(i, j) for i, j in every if i <= j or not is_self]
