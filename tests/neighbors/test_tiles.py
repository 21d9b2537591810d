"""Products of tiles: every arithmetic gives the same answer."""

import numpy as np
import pytest

from ruler.neighbors import cpu, first_pass
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.engines import Request
from ruler.neighbors.tiles import NumpyArithmetic, TorchArithmetic
from ruler.testing.engines import KINDS

torch = pytest.importorskip("torch")


def all_arithmetics():
    return [NumpyArithmetic(np.float32), NumpyArithmetic(np.float64)] + [
        TorchArithmetic(torch, dtype) for dtype in ("bfloat16", "float32", "float64")
    ]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("k", [1, 3])
def test_every_arithmetic_gives_the_same_answer(kind, k, random, monkeypatch):
    for module in (first_pass, cpu):
        monkeypatch.setattr(module, "TILE_ROWS", 256)
    rows = KINDS[kind](random, 640, 12)
    expected = CpuEngine(NumpyArithmetic(np.float64)).search(Request(rows, rows, k=k, exclude_self=True))
    for arithmetic in all_arithmetics():
        for base in (rows, rows.copy()):  # by symmetry, and block by block
            found = CpuEngine(arithmetic).search(Request(rows, base, k=k, exclude_self=True))
            np.testing.assert_array_equal(found.similarity, expected.similarity, err_msg=arithmetic.name)
            np.testing.assert_array_equal(found.index, expected.index, err_msg=arithmetic.name)
