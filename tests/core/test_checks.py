import numpy as np
import pytest

from ruler.core.arithmetic import norm_rows
from ruler.core.checks import (
    as_matrix,
    cached_rows_for,
    check_number,
    check_same_shape,
    is_on_cuda,
    measure_norms,
)
from ruler.core.errors import InputError


def test_memory_maps_are_not_copied(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert np.shares_memory(as_matrix(mapped, "rows"), mapped)


def test_masked_numbers_are_refused_since_what_lies_under_the_mask_would_count():
    rows = np.ma.masked_array(np.ones((3, 2)))
    assert as_matrix(rows, "rows").shape == (3, 2)
    rows[1, 0] = np.ma.masked
    with pytest.raises(InputError, match="rows must have no masked numbers; got 1"):
        as_matrix(rows, "rows")


def test_faults_are_counted_over_the_whole_matrix():
    width = 64
    rows = np.ones((3 * cached_rows_for(width), width), dtype=np.float32)
    rows[[0, len(rows) // 2, -1], 5] = np.nan
    with pytest.raises(InputError, match="rows must be finite; got NaN or inf in 3 rows"):
        measure_norms(rows, "rows")


@pytest.mark.parametrize("n_threads", ["1", "3"])
def test_norms_do_not_depend_on_blocks_or_threads(n_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
    rows = np.random.default_rng(0).normal(size=(3 * cached_rows_for(7) + 5, 7)).astype(np.float32)
    expected = norm_rows(rows.astype(np.float64))
    np.testing.assert_array_equal(measure_norms(rows, "rows"), expected)
    rows[[5, cached_rows_for(7) + 3, -1], [2, 0, 6]] = np.inf
    with pytest.raises(InputError, match="NaN or inf in 3 rows, the first is row 5"):
        measure_norms(rows, "rows", is_whole=True)


def test_all_zero_rows_are_legal_and_tiny_ones_are_not():
    assert measure_norms(np.zeros((2, 3)), "rows").tolist() == [0.0, 0.0]
    with pytest.raises(InputError, match="underflow in 1 rows"):
        measure_norms(np.array([[0.0, 0.0], [1e-170, 0.0]]), "rows")


def test_shapes_that_differ_are_named():
    with pytest.raises(InputError, match=r"a and b must have the same shape.*got \(1, 2\) and \(2, 1\)"):
        check_same_shape((1, 2), (2, 1), ("a", "b"))


class OnDevice:
    """An array of another library that lies on a device."""

    def __init__(self, kind):
        self.kind = kind

    def __dlpack_device__(self):
        return (self.kind, 0)

    def __dlpack__(self, **options):
        raise BufferError("nothing to see")


def test_cuda_arrays_of_any_library_are_recognised():
    assert is_on_cuda(OnDevice(2))
    assert not is_on_cuda(OnDevice(1))
    assert not is_on_cuda(np.ones(2))


@pytest.mark.parametrize("number", [2**53, 2**64, 10**400, 10**5000, -(10**5000)], ids=int.bit_length)
def test_numbers_that_no_other_format_holds_are_refused(number):
    for is_whole in (True, False):
        with pytest.raises(InputError, match=r"^seed must be under 2\*\*53, .{1,80}$"):
            check_number(number, "seed", minimum=0, is_whole=is_whole)


def test_the_largest_numbers_are_allowed():
    check_number(2**53 - 1, "seed", minimum=0, is_whole=True)
    check_number(1e300, "rate", minimum=0, is_strict=True)
