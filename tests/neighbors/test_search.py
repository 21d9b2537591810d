import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from tests.neighbors.reference import row_sets, search_plainly

from ruler.core.errors import InputError
from ruler.core.types import Embeddings
from ruler.metrics import m4
from ruler.neighbors import cpu, find_neighbors, first_pass, recheck
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.cuda.engine import CudaEngine
from ruler.neighbors.engines import Request
from ruler.neighbors.tiles import NumpyArithmetic, TorchArithmetic
from ruler.testing.engines import KINDS, search_by_definition

torch = pytest.importorskip("torch")


def all_arithmetics():
    return [NumpyArithmetic(np.float32), NumpyArithmetic(np.float64)] + [
        TorchArithmetic(torch, dtype) for dtype in ("bfloat16", "float32", "float64")
    ]


@given(rows=row_sets(), k=st.integers(1, 5), exclude_self=st.booleans())
@settings(max_examples=60)
def test_similarities_equal_a_plain_float64_search(rows, k, exclude_self):
    k = min(k, len(rows) - exclude_self)
    found = find_neighbors(rows, rows, k=k, exclude_self=exclude_self)
    np.testing.assert_allclose(found.similarity, search_plainly(rows, rows, k, exclude_self), rtol=0, atol=1e-12)
    assert found.similarity.dtype == np.float64
    assert (np.diff(found.similarity, axis=1) <= 0).all()


@given(rows=row_sets(max_rows=120), k=st.integers(1, 4))
@settings(max_examples=60)
def test_answer_is_the_definition_to_the_last_bit(rows, k):
    k = min(k, len(rows) - 1)
    expected = search_by_definition(rows, rows, k=k, exclude_self=True)
    found = find_neighbors(rows, rows, k=k, exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@given(queries=row_sets(), base=row_sets(), k=st.integers(1, 4))
@settings(max_examples=40)
def test_search_in_another_set(queries, base, k):
    width, k = min(queries.shape[1], base.shape[1]), min(k, len(base))
    queries, base = queries[:, :width], base[:, :width]
    found = find_neighbors(queries, base, k=k)
    np.testing.assert_allclose(found.similarity, search_plainly(queries, base, k, False), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("k", [1, 3])
def test_every_arithmetic_gives_the_same_answer(kind, k, random):
    rows = KINDS[kind](random, 2500, 12)
    expected = CpuEngine(NumpyArithmetic(np.float64)).search(Request(rows, rows, k=k, exclude_self=True))
    for arithmetic in all_arithmetics():
        for base in (rows, rows.copy()):  # by symmetry, and block by block
            found = CpuEngine(arithmetic).search(Request(rows, base, k=k, exclude_self=True))
            np.testing.assert_array_equal(found.similarity, expected.similarity, err_msg=arithmetic.name)
            np.testing.assert_array_equal(found.index, expected.index, err_msg=arithmetic.name)


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


@given(rows=row_sets(max_rows=200), seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_row_order_changes_nothing(rows, seed):
    order = np.random.default_rng(seed).permutation(len(rows))
    expected = find_neighbors(rows, rows, exclude_self=True)
    shuffled = rows[order]
    found = find_neighbors(shuffled, shuffled, exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity[order])


def test_agrees_with_scikit_learn(random):
    rows = random.normal(size=(500, 20))
    distance, index = NearestNeighbors(n_neighbors=3, algorithm="brute", metric="cosine").fit(rows).kneighbors()
    found = find_neighbors(rows, rows, k=3, exclude_self=True)
    np.testing.assert_allclose(found.similarity, 1 - distance, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.index, index)


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


def test_ties_stand_by_smallest_index():
    rows = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    found = find_neighbors(rows, rows, k=4, exclude_self=True)
    assert found.index[0].tolist() == [1, 3, 2, 4]
    assert found.index[4].tolist() == [0, 1, 2, 3]
    assert found.similarity[4].tolist() == [0.0] * 4
    assert find_neighbors(rows, rows, k=2).index[3].tolist() == [0, 1]


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


GOOD = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    ("queries", "base", "options", "message"),
    [
        (GOOD[None], GOOD, {}, "queries must be 2-D.*got 3-D"),
        (GOOD, GOOD[0], {}, "base must be 2-D"),
        (GOOD[:0], GOOD, {}, "queries must not be empty"),
        (GOOD, GOOD[:, :2], {}, "queries and base must have the same number of columns; got 3 and 2"),
        (np.where(GOOD == 4, np.nan, GOOD), GOOD, {}, "queries must be finite; got NaN or inf in 1 rows"),
        (GOOD, np.where(GOOD > 4, np.inf, GOOD), {}, "base must be finite; got NaN or inf in 3 rows"),
        (GOOD * 1e200, GOOD, {}, "queries must have norms that float64 can hold; got overflow in 4 rows"),
        (GOOD * 1e-200, GOOD, {}, "queries must have norms that float64 can hold; got underflow in 4 rows"),
        (GOOD, GOOD, {"k": 5}, "k must be from 1 to the 4 rows"),
        (GOOD, GOOD, {"k": 4, "exclude_self": True}, "k must be from 1 to the 3 rows"),
        (GOOD, GOOD, {"k": 0}, "k must be from 1"),
        (GOOD[:2], GOOD, {"exclude_self": True}, "queries must be the rows of base"),
        (GOOD.astype(complex), GOOD, {}, "queries must hold real numbers; got dtype complex128"),
        ([[1.0], [1.0, 2.0]], GOOD, {}, "queries must be an array of numbers"),
    ],
)
def test_bad_input_is_named(queries, base, options, message):
    with pytest.raises(ValueError, match=message):
        find_neighbors(queries, base, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_a_missing_device_is_named():
    with pytest.raises(ValueError, match="device must be one that torch can use; got 'cuda'"):
        find_neighbors(GOOD, GOOD, device="cuda")


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
    run_python(
        "import sys, numpy as np, ruler; x = np.eye(50); ruler.find_neighbors(x, x, exclude_self=True); "
        "assert 'torch' not in sys.modules"
    )


def test_rows_of_another_layer_or_of_other_columns_are_no_neighbours():
    rows = np.random.default_rng(0).normal(size=(6, 3))
    here = Embeddings(rows, layer="fc:input", columns=("a", "b", "c"))
    find_neighbors(here, rows)
    with pytest.raises(InputError, match="queries and base must be read at the same layer; got 'fc:input' and 'conv'"):
        find_neighbors(here, Embeddings(rows, layer="conv"))
    with pytest.raises(InputError, match="forget and retain must have the same columns in the same order; got 'b' and"):
        m4(here, Embeddings(rows, columns=("a", "c", "b")))


def test_the_named_device_is_asked_for(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(9, 3))
    asked = []

    def search_there(self, request):
        asked.append((request.is_self, request.k, request.exclude_self, request.device))
        return CpuEngine().search(request)

    monkeypatch.setattr(CudaEngine, "search", search_there)
    found = find_neighbors(rows, rows, k=2, exclude_self=True, device="cuda:1")
    find_neighbors(rows, rows[:4], device="cpu")
    find_neighbors(rows, rows)
    assert asked == [(True, 2, True, "cuda:1")]
    np.testing.assert_array_equal(found.index, find_neighbors(rows, rows, k=2, exclude_self=True).index)
