import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.core.errors import InputError
from ruler.core.types import Partition
from ruler.data import find_duplicates, load_tabular, partition_rows, split


def _partition(n_forget, n_rows):
    return Partition(np.arange(n_forget), np.arange(n_forget, n_rows))


@given(values=st.lists(st.integers(0, 6), min_size=2, max_size=40), share=st.floats(0.1, 0.9))
def test_agrees_with_comparing_every_pair(values, share):
    partition = _partition(max(1, int(share * len(values))), len(values))
    features = np.array(values, dtype=np.float32)[:, None] * np.array([1, 0.5], dtype=np.float32)
    found = find_duplicates(features, partition)
    pairs = [(f, r) for f in partition.forget for r in partition.retain if values[f] == values[r]]
    assert found.n_twins.sum() == len(pairs)
    assert set(map(tuple, found.rows.tolist())) <= set(pairs)
    assert found.rows[:, 0].tolist() == sorted({int(f) for f, _ in pairs})


def test_report_names_the_records():
    features = np.array([[1.0, 0.0], [2.0, 2.0], [1.0, -0.0], [1.0, 0.0]])
    found = find_duplicates(features, _partition(2, 4), ids=["ann", "bob", "cy", "dan"])
    assert found.ids.tolist() == [["ann", "cy"]]
    assert (found.rows.tolist(), found.n_twins.tolist(), len(found)) == ([[0, 2]], [2], 1)
    assert str(found) == "1 of 2 forget records have an identical record in the retain set"


def test_none_found_keeps_its_shape():
    found = find_duplicates(np.eye(4), _partition(2, 4))
    assert (found.rows.shape, found.ids.shape, len(found)) == ((0, 2), (0, 2), 0)


def test_texts_and_images():
    texts = np.array(["fever", "cough", "fever"], dtype=object)
    assert find_duplicates(texts, _partition(1, 3)).rows.tolist() == [[0, 2]]
    images = np.zeros((3, 2, 2, 3), dtype=np.uint8)
    images[1, 1, 1, 2] = 1
    assert find_duplicates(images, _partition(1, 3)).rows.tolist() == [[0, 2]]


def test_wine_quality_is_known_for_them(real_data):
    parts = split(load_tabular("wine_quality", root=real_data))
    partition = partition_rows(len(parts.train_target), 0.05)
    found = find_duplicates(parts.train_features, partition, ids=parts.train_ids)
    assert 10 <= len(found) <= 30
    raw = load_tabular("wine_quality", root=real_data).features
    np.testing.assert_array_equal(raw[found.ids[:, 0]], raw[found.ids[:, 1]])


def test_records_missing_from_the_features():
    with pytest.raises(InputError, match="must be one entry a record of the partition, 4; got 3 and 3"):
        find_duplicates(np.eye(3), _partition(2, 4))
