import mmap
import pickle

import numpy as np
import pytest

from ruler.core import stacked as stacked_module
from ruler.core.checks import as_matrix, measure_norms
from ruler.core.errors import InputError
from ruler.core.stacked import StackedRows, release_pages
from ruler.core.types import Embeddings

JOINED = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)


def make(cuts=(4, 5, 17)):
    return StackedRows(np.split(JOINED, cuts))


@pytest.mark.parametrize(
    "key",
    [
        slice(None),
        slice(2, 3),
        slice(3, 6),
        slice(4, 5),
        slice(5, 17),
        slice(16, 40),
        slice(9, 9),
        slice(23, None),
        slice(8, 2),
        slice(-3, None),
        slice(20, 2, -3),
        np.array([22, 0, 4, 4, 5, -1]),
        np.array([], dtype=np.int64),
        np.arange(23) % 3 == 0,
        [1, 16],
        7,
    ],
    ids=str,
)
def test_rows_are_those_of_the_joined_array(key):
    expected = JOINED[key]
    found = make()[key]
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_it_is_like_the_joined_array_and_passes_where_one_does():
    rows = make()
    assert (rows.shape, len(rows), rows.ndim, rows.dtype, rows.nbytes) == ((23, 3), 23, 2, np.float32, JOINED.nbytes)
    np.testing.assert_array_equal(np.asarray(rows), JOINED)
    np.testing.assert_array_equal(np.asarray(rows, dtype=np.float64), JOINED.astype(np.float64))
    np.testing.assert_array_equal(np.asarray(Embeddings(rows)), JOINED)
    assert as_matrix(rows, "rows") is rows
    assert as_matrix(Embeddings(rows), "rows") is rows
    np.testing.assert_array_equal(measure_norms(rows, "rows"), measure_norms(JOINED, "rows"))


def test_parts_of_different_precision_meet_in_the_finer():
    rows = StackedRows([np.ones((1, 2), np.float16), np.full((1, 2), 0.1)])
    assert rows[:].dtype == rows[:1].dtype == rows[[0]].dtype == np.float64
    np.testing.assert_array_equal(rows[:], [[1, 1], [0.1, 0.1]])


def test_mapped_pages_are_let_go_of(tmp_path, monkeypatch):
    if not hasattr(mmap, "MADV_DONTNEED"):
        pytest.skip("this system cannot let go of mapped pages")
    monkeypatch.setattr(stacked_module, "_MOST_MAPPED_BYTES", 1 << 20)
    np.save(tmp_path / "rows.npy", np.ones((1 << 13, 1 << 10), np.float32))  # 32 MiB
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    resident = []
    rows = StackedRows([mapped])
    for start in range(0, len(rows), 256):
        rows[start : start + 256].sum()
        resident.append(_resident_kib(mapped))
    assert 0 < max(resident) < 8 << 10


def test_changes_to_a_private_map_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(stacked_module, "_MOST_MAPPED_BYTES", 1)
    np.save(tmp_path / "rows.npy", np.ones((4, 1 << 12)))
    private = np.load(tmp_path / "rows.npy", mmap_mode="c")
    private[:] = 2.0
    rows = StackedRows([private])
    assert [rows[i].sum() for i in range(4)] == [2.0 * (1 << 12)] * 4


def test_released_pages_are_read_again_when_asked_for(tmp_path):
    if not hasattr(mmap, "MADV_DONTNEED"):
        pytest.skip("this system cannot let go of mapped pages")
    for name in ("rows", "own"):
        np.save(tmp_path / f"{name}.npy", np.ones((1 << 9, 1 << 10)))
    mapped, private = (
        np.load(tmp_path / f"{name}.npy", mmap_mode=mode) for name, mode in (("rows", "r"), ("own", "c"))
    )
    private[0] = 2.0
    assert mapped.sum() == 1 << 19
    assert _resident_kib(mapped) > 0
    for rows in (mapped, private, np.ones((2, 2))):
        release_pages(rows)
    assert _resident_kib(mapped) == 0
    assert mapped.sum() == 1 << 19
    assert private[0, 0] == 2.0


def _resident_kib(mapped):
    """How much of a map lies in this process's memory, by the kernel's own count."""
    with open("/proc/self/smaps") as lines:
        for line in lines:
            if str(mapped.filename) in line:
                return next(int(entry.split()[1]) for entry in lines if entry.startswith("Rss:"))
    return 0


def test_rows_out_of_range_are_refused():
    with pytest.raises(IndexError, match="rows must be within the 23 of the matrix; got 0 to 23"):
        make()[[0, 23]]


def test_parts_must_fit_together():
    with pytest.raises(InputError, match="parts must be at least one matrix; got none"):
        StackedRows([])
    with pytest.raises(InputError, match=r"part 1 must be 2-D with at least one row; got shape \(0, 2\)"):
        StackedRows([np.eye(2), np.empty((0, 2))])
    with pytest.raises(InputError, match="b must be as wide as a; got 3 and 2 columns"):
        StackedRows([np.eye(2), np.eye(3)], ["a", "b"])
    with pytest.raises(InputError, match="part 0 must hold real numbers; got dtype <U1"):
        StackedRows([np.full((1, 1), "x")])


def test_rows_are_located_in_parts_that_have_names():
    parts, names = [np.zeros((2, 1)), np.zeros((3, 1))], ["a", "b"]
    rows = StackedRows(parts, names)
    assert [rows.locate(row) for row in (0, 1, 2, 4)] == ["row 0 of a", "row 1 of a", "row 0 of b", "row 2 of b"]
    assert pickle.loads(pickle.dumps(rows)).locate(2) == "row 0 of b"
    assert StackedRows(parts).locate(4) == "row 4"


def test_the_first_faulty_row_of_each_kind_is_located():
    rows = np.ones((6, 2))
    rows[1], rows[4] = 1e-170, np.inf
    with pytest.raises(InputError, match=r"NaN or inf in 1 rows, the first is row 1 of b\. Drop"):
        measure_norms(StackedRows(np.split(rows, [3]), ["a", "b"]), "rows")
    with pytest.raises(InputError, match=r"underflow in 1 rows, the first is row 1 of a\. Rescale"):
        measure_norms(StackedRows([rows[:3]], ["a"]), "rows")


def test_maps_in_column_order_travel_as_they_are(tmp_path):
    np.save(tmp_path / "rows.npy", np.asfortranarray(JOINED))
    rows = StackedRows([np.load(tmp_path / "rows.npy", mmap_mode="r")])
    content = pickle.dumps(rows)
    assert str(tmp_path).encode() in content
    np.testing.assert_array_equal(pickle.loads(content)[:], JOINED)
