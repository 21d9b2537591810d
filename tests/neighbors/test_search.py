import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from tests.neighbors.reference import row_sets, search_plainly

from ruler.core.errors import InputError
from ruler.core.types import Embeddings
from ruler.metrics import m4
from ruler.neighbors import find_neighbors

torch = pytest.importorskip("torch")


@given(rows=row_sets(), k=st.integers(1, 5), exclude_self=st.booleans())
@settings(max_examples=60)
def test_similarities_equal_a_plain_float64_search(rows, k, exclude_self):
    k = min(k, len(rows) - exclude_self)
    found = find_neighbors(rows, rows, k=k, exclude_self=exclude_self)
    np.testing.assert_allclose(found.similarity, search_plainly(rows, rows, k, exclude_self), rtol=0, atol=1e-12)
    assert found.similarity.dtype == np.float64
    assert (np.diff(found.similarity, axis=1) <= 0).all()


@given(queries=row_sets(), base=row_sets(), k=st.integers(1, 4))
@settings(max_examples=40)
def test_search_in_another_set(queries, base, k):
    width, k = min(queries.shape[1], base.shape[1]), min(k, len(base))
    queries, base = queries[:, :width], base[:, :width]
    found = find_neighbors(queries, base, k=k)
    np.testing.assert_allclose(found.similarity, search_plainly(queries, base, k, False), rtol=0, atol=1e-12)


def test_agrees_with_scikit_learn(random):
    rows = random.normal(size=(500, 20))
    distance, index = NearestNeighbors(n_neighbors=3, algorithm="brute", metric="cosine").fit(rows).kneighbors()
    found = find_neighbors(rows, rows, k=3, exclude_self=True)
    np.testing.assert_allclose(found.similarity, 1 - distance, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.index, index)


def test_memory_map_is_searched_without_being_loaded(tmp_path, random):
    rows = random.normal(size=(3000, 16)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = find_neighbors(rows, rows, exclude_self=True)
    found = find_neighbors(mapped, mapped, exclude_self=True)
    np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize("kind", ["float16", "float32", "bfloat16 tensor", "tensor with gradient", "list", "integers"])
def test_takes_any_array(kind, random):
    rows = random.integers(-8, 9, size=(20, 6)) + 0.5 * (kind != "integers")
    given_rows = {
        "float16": lambda: rows.astype(np.float16),
        "float32": lambda: rows.astype(np.float32),
        "bfloat16 tensor": lambda: torch.tensor(rows).bfloat16(),
        "tensor with gradient": lambda: torch.tensor(rows, requires_grad=True),
        "list": lambda: rows.tolist(),
        "integers": lambda: rows.astype(int),
    }[kind]()
    found = find_neighbors(given_rows, given_rows, exclude_self=True)
    expected = find_neighbors(rows, rows, exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity)


def test_rows_of_another_layer_or_of_other_columns_are_no_neighbours():
    rows = np.random.default_rng(0).normal(size=(6, 3))
    here = Embeddings(rows, layer="fc:input", columns=("a", "b", "c"))
    find_neighbors(here, rows)
    with pytest.raises(InputError, match="queries and base must be read at the same layer; got 'fc:input' and 'conv'"):
        find_neighbors(here, Embeddings(rows, layer="conv"))
    with pytest.raises(InputError, match="forget and retain must have the same columns in the same order; got 'b' and"):
        m4(here, Embeddings(rows, columns=("a", "c", "b")))
