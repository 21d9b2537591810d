import numpy as np
import pytest

from ruler.neighbors import find_neighbors
from ruler.neighbors.cuda import engine, scan
from ruler.neighbors.cuda.engine import CudaEngine
from ruler.neighbors.engines import Request
from ruler.testing.engines import KINDS

torch = pytest.importorskip("torch")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(("k", "exclude_self"), [(1, True), (3, True), (2, False)])
def test_answer_is_that_of_the_cpu_engines(device, kind, k, exclude_self, random, monkeypatch):
    monkeypatch.setattr(scan, "LARGEST_BLOCK", 512)
    rows = KINDS[kind](random, 650, 11)
    expected = find_neighbors(rows, rows, k=k, exclude_self=exclude_self)
    for base in (rows, rows.copy()):
        found = CudaEngine().search(Request(rows, base, k=k, exclude_self=exclude_self, device=device))
        np.testing.assert_array_equal(found.similarity, expected.similarity)
        np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize("device", DEVICES)
def test_files_that_are_open_for_reading_are_searched_without_a_warning(device, random, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "rows_for", lambda width: 100)
    np.save(tmp_path / "rows.npy", random.normal(size=(650, 11)).astype(np.float32))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    found = CudaEngine().search(Request(rows, rows, exclude_self=True, device=device))
    expected = find_neighbors(np.array(rows), np.array(rows), exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_the_first_pass_can_be_named(dtype, random):
    rows = KINDS["clustered"](random, 500, 6)
    found = CudaEngine(dtype).search(Request(rows, rows, k=2, exclude_self=True, device="cpu"))
    expected = find_neighbors(rows, rows, k=2, exclude_self=True)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.full((3, 2), np.nan), "queries must be finite; got NaN or inf in 3 rows"),
        (np.full((3, 2), 1e200), "queries must have norms that float64 can hold; got overflow"),
        (np.ones(3), "queries must be 2-D"),
    ],
)
def test_bad_input_is_named(rows, message):
    with pytest.raises(ValueError, match=message):
        CudaEngine().search(Request(rows, np.ones((3, 2)), device="cpu"))


@pytest.mark.gpu
def test_data_on_the_device_is_searched_there(random):
    rows = random.normal(size=(5000, 32)).astype(np.float32)
    tensor = torch.from_numpy(rows).cuda()
    np.testing.assert_array_equal(
        find_neighbors(tensor, tensor, exclude_self=True).index, find_neighbors(rows, rows, exclude_self=True).index
    )


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["heavy_tailed", "clustered", "low_rank", "quantised", "rounded", "rectified"])
def test_large_sets_of_every_kind_get_the_answer_of_the_processor(kind, random):
    rows = KINDS[kind](random, 40_000, 96).astype(np.float32)
    expected = find_neighbors(rows, rows, exclude_self=True)
    found = find_neighbors(rows, rows, exclude_self=True, device="cuda")
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


def test_a_caller_who_trades_precision_for_speed_still_gets_the_exact_answer(random):
    rows = random.normal(size=(3000, 40))
    expected = find_neighbors(rows, rows, exclude_self=True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = find_neighbors(rows, rows, exclude_self=True)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(found.similarity, expected.similarity)
