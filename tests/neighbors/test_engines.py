"""What may be asked of an engine, and who answers."""

import numpy as np
import pytest

from ruler.neighbors import find_neighbors
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.cuda.engine import CudaEngine

torch = pytest.importorskip("torch")


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
        (GOOD, GOOD, {"k": 1.5}, "k must be from 1 to the 4 rows .* got 1.5"),
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
