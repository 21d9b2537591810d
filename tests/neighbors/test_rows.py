"""Rows and their copies."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.neighbors.reference import row_sets

from ruler.core.stacked import StackedRows
from ruler.neighbors import find_neighbors, first_pass
from ruler.neighbors.blocks import find_neighbors_by_blocks
from ruler.testing.engines import KINDS


@given(rows=row_sets(max_rows=200), seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_row_order_changes_nothing(rows, seed):
    order = np.random.default_rng(seed).permutation(len(rows))
    expected = find_neighbors(rows, rows, exclude_self=True)
    shuffled = rows[order]
    found = find_neighbors(shuffled, shuffled, exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity[order])


def test_identical_rows_are_equally_similar_to_everything(random):
    rows = KINDS["duplicated"](random, 400, 7)
    found = find_neighbors(rows, rows, k=3, exclude_self=True)
    _, group = np.unique(rows, axis=0, return_inverse=True)
    for members in (np.flatnonzero(group == g) for g in np.unique(group)):
        if len(members) > 4:  # enough twins that leaving one out changes nothing
            assert (found.similarity[members] == 1.0).all()
    base = random.normal(size=(300, 7))
    to_base = find_neighbors(rows, base).similarity[:, 0]
    for g in np.unique(group):
        assert len(np.unique(to_base[group == g])) == 1


def assert_same(found, expected):
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize("width", [4, 32])
def test_many_tiles_with_twins_across_blocks(width, monkeypatch):
    monkeypatch.setattr(first_pass, "MOST_RESIDENT_TILES", 2)
    monkeypatch.setattr(first_pass, "PANEL_TILES", 1)
    monkeypatch.setattr(first_pass, "MOST_HELD", 1000)  # shortlists are emptied often
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, width)).astype(np.float32)
    rows[rng.integers(0, 5000, 700)] = rows[rng.integers(0, 5000, 700)]
    expected = find_neighbors(rows, rows, k=3, exclude_self=True)
    stacked = StackedRows(np.split(rows, [1, 1500, 1501, 4100]))
    assert_same(find_neighbors(stacked, stacked, k=3, exclude_self=True), expected)
    assert_same(find_neighbors_by_blocks(stacked, stacked, k=3, exclude_self=True, block_rows=2222), expected)
    assert_same(
        find_neighbors_by_blocks(stacked[:1300], stacked, k=3, block_rows=999), find_neighbors(rows[:1300], rows, k=3)
    )
