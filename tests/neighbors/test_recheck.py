"""Candidates are compared again in float64, so that the answer is the definition."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.neighbors.reference import row_sets

from ruler.neighbors import find_neighbors
from ruler.testing.engines import search_by_definition


@given(rows=row_sets(max_rows=120), k=st.integers(1, 4))
@settings(max_examples=60)
def test_answer_is_the_definition_to_the_last_bit(rows, k):
    k = min(k, len(rows) - 1)
    expected = search_by_definition(rows, rows, k=k, exclude_self=True)
    found = find_neighbors(rows, rows, k=k, exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


def test_ties_stand_by_smallest_index():
    rows = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    found = find_neighbors(rows, rows, k=4, exclude_self=True)
    assert found.index[0].tolist() == [1, 3, 2, 4]
    assert found.index[4].tolist() == [0, 1, 2, 3]
    assert found.similarity[4].tolist() == [0.0] * 4
    assert find_neighbors(rows, rows, k=2).index[3].tolist() == [0, 1]
