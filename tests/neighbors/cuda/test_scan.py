"""The search in plain torch, block by block."""

import numpy as np
import pytest

from ruler.neighbors import find_neighbors
from ruler.neighbors.cuda import scan
from ruler.neighbors.cuda.engine import CudaEngine
from ruler.neighbors.engines import Request

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_held_candidates_are_rechecked_in_between(device, random, monkeypatch):
    monkeypatch.setattr(scan, "LARGEST_BLOCK", 512)
    monkeypatch.setattr(scan, "MOST_HELD", 50)
    rows = random.normal(size=(1000, 6))
    found = CudaEngine().search(Request(rows, rows, k=2, exclude_self=True, device=device))
    np.testing.assert_array_equal(found.index, find_neighbors(rows, rows, k=2, exclude_self=True).index)
