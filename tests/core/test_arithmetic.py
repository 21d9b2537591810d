import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.core.arithmetic import iterate_blocks, norm_rows, similarity_of_unit_rows, sum_rows, unit_rows

torch = pytest.importorskip("torch")


@given(st.integers(1, 300), st.integers(0, 10_000))
def test_sum_is_accurate_and_does_not_depend_on_company(width, seed):
    rows = np.random.default_rng(seed).normal(size=(9, width))
    sums = sum_rows(rows)
    for i, row in enumerate(rows):
        assert sums[i] == pytest.approx(math.fsum(row), abs=1e-13 * width)
        assert sums[i] == sum_rows(rows[i : i + 1])[0]


@given(st.integers(1, 70), st.integers(0, 10_000))
def test_torch_gives_the_same_bits_as_numpy(width, seed):
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, 40, width))
    tensors = torch.from_numpy(a), torch.from_numpy(b)
    units = [unit_rows(rows, norm_rows(rows)) for rows in (a, b)]
    torch_units = [unit_rows(rows, norm_rows(rows)) for rows in tensors]
    for ours, theirs in zip(units, torch_units, strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())
    np.testing.assert_array_equal(similarity_of_unit_rows(*units), similarity_of_unit_rows(*torch_units).numpy())


@pytest.mark.parametrize(("n_rows", "block"), [(1, 1), (7, 3), (9, 3), (5, 100)])
def test_blocks_cover_every_row_once(n_rows, block):
    covered = [row for start, stop in iterate_blocks(n_rows, block) for row in range(start, stop)]
    assert covered == list(range(n_rows))
