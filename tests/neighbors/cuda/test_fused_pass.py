"""The fused search and its kernels (fused_kernels.py), in Triton's interpreter where there is no GPU."""

import os
from dataclasses import replace

import numpy as np
import pytest

from ruler.neighbors import find_neighbors
from ruler.neighbors.cuda import engine, fused_pass
from ruler.neighbors.cuda.engine import CudaEngine, load_rows
from ruler.neighbors.cuda.operands import Pilot
from ruler.neighbors.engines import Request
from ruler.testing.engines import KINDS

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton's own CPU interpreter runs the kernels where there is no GPU
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def small(monkeypatch):
    """Spans of 64 rows, so that a few hundred rows are many bands, and no problem too small."""
    pytest.importorskip("triton", reason="the kernels need Triton, which torch for CUDA brings")
    monkeypatch.setattr(fused_pass, "WORTH_FUSING", 0)
    monkeypatch.setattr(fused_pass, "FEWEST_ROWS", 65)
    monkeypatch.setattr(fused_pass, "SAMPLE_ROWS", 64)
    monkeypatch.setattr(fused_pass, "can_fuse", lambda torch, matrix: True)
    narrow = replace(fused_pass.NARROW, span=128, rows=64, columns=64)
    monkeypatch.setattr(fused_pass, "NARROW", narrow)
    monkeypatch.setattr(fused_pass, "WIDE", replace(fused_pass.WIDE, span=128, rows=64, columns=64))


def _search(queries, base, k, exclude_self):
    return CudaEngine().search(Request(queries, base, k=k, exclude_self=exclude_self, device=DEVICE))


def _assert_equal(found, expected):
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize(("kind", "k", "n_parts"), [*((kind, 1, 1) for kind in KINDS), ("random", 3, 3)])
def test_answer_is_that_of_the_cpu_engines(small, kind, k, n_parts, random, monkeypatch):
    monkeypatch.setattr(engine, "try_sample", lambda *args: Pilot(n_parts, 1.0))
    monkeypatch.setattr(engine, "choose_centres", lambda *args: None)
    rows = KINDS[kind](random, 140, 11)
    _assert_equal(_search(rows, rows, k, True), find_neighbors(rows, rows, k=k, exclude_self=True))


@pytest.mark.parametrize("width", [16, 100, 200])
def test_any_width_and_two_sets(small, width, random):
    queries, base = random.normal(size=(70, width)), random.normal(size=(140, width)).astype(np.float32)
    _assert_equal(_search(queries, base, 5, False), find_neighbors(queries, base, k=5))
    _assert_equal(_search(base, base, 1, True), find_neighbors(base, base, exclude_self=True))


def test_a_full_buffer_is_emptied_in_between(small, random, monkeypatch):
    monkeypatch.setattr(fused_pass, "MOST_FOUND", 2 * 128**2)
    monkeypatch.setattr(engine, "try_sample", lambda *args: Pilot(1, 1.0))
    launches = []
    launch = fused_pass.FusedScan.launch
    monkeypatch.setattr(
        fused_pass.FusedScan, "launch", lambda scan, spans: (launches.append(len(spans)), launch(scan, spans))
    )
    rows = np.ones((400, 4)) + 1e-5 * random.normal(size=(400, 4))
    _assert_equal(_search(rows, rows, 2, True), find_neighbors(rows, rows, k=2, exclude_self=True))
    assert sum(launches) > 10  # pairs of 4 spans: some were scanned twice


def test_small_problems_stay_with_plain_torch(random):
    loaded = load_rows(torch, random.normal(size=(100, 4)), "rows", "cpu")
    assert not fused_pass.is_worth_fusing(torch, loaded, loaded, 1)


def test_a_triton_that_cannot_compile_is_left_out(monkeypatch):
    monkeypatch.setattr("ruler.neighbors.cuda.fused_kernels.TensorDescriptor", object)
    monkeypatch.setattr("ruler.neighbors.cuda.fused_kernels.multiply_pairs", None)
    fused_pass.can_launch.cache_clear()
    with pytest.warns(RuntimeWarning, match="Triton cannot build its kernels .*: the search takes plain torch"):
        assert not fused_pass.can_launch(torch, torch.device("cpu"))
    fused_pass.can_launch.cache_clear()


def test_no_triton_is_no_error(monkeypatch):
    monkeypatch.setattr("ruler.neighbors.cuda.fused_kernels.TensorDescriptor", None)
    fused_pass.can_launch.cache_clear()
    assert not fused_pass.can_launch(torch, torch.device("cpu"))
    fused_pass.can_launch.cache_clear()


def test_tensors_that_the_kernels_cannot_read_stay_with_plain_torch():
    assert not fused_pass.can_fuse(torch, torch.ones(2, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 24, 100, 128, 512, 2048, 4096])
def test_full_size_tiles_agree_with_plain_torch(width, monkeypatch):
    rows = torch.randn(20_000, width, device="cuda", generator=torch.Generator("cuda").manual_seed(width))
    for k, base in ((1, rows), (5, rows), (1, rows[:9000].contiguous())):
        monkeypatch.setattr(fused_pass, "WORTH_FUSING", 1e30)
        expected = find_neighbors(rows, base, k=k, exclude_self=base is rows)
        monkeypatch.setattr(fused_pass, "WORTH_FUSING", 0)
        _assert_equal(find_neighbors(rows, base, k=k, exclude_self=base is rows), expected)


@pytest.mark.parametrize("is_self", [True, False])
@pytest.mark.parametrize("shape", [fused_pass.NARROW, fused_pass.WIDE])
def test_bands_cover_all_spans_in_grids_that_can_be_launched(shape, is_self, monkeypatch):
    monkeypatch.setattr(fused_pass, "MOST_PROGRAMS", 10 * shape.programs)
    n_queries, n_base = (60_000, 60_000) if is_self else (30_000, 60_000)
    spans, bands = fused_pass.plan_spans(n_queries, n_base, shape, is_self=is_self)
    n_query_spans, n_base_spans = -(-n_queries // shape.span), -(-n_base // shape.span)
    expected = {(a, b) for a in range(n_query_spans) for b in range(n_base_spans) if a <= b or not is_self}
    assert set(map(tuple, spans.tolist())) == expected
    assert len(spans) == len(expected)
    assert [start for start, _ in bands] == [0, *(stop for _, stop in bands[:-1])]
    assert bands[-1][1] == len(spans)
    assert max(stop - start for start, stop in bands) == 10
