"""The search by cluster: its plain torch here, its kernel in Triton's interpreter where there is no GPU."""

import os
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import search as benchmark
from ruler.neighbors import find_neighbors
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.cuda import centred_launch, centred_scan, clusters, engine, fused_pass
from ruler.neighbors.cuda.engine import CudaEngine
from ruler.neighbors.engines import Request
from ruler.testing.engines import KINDS

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton's own CPU interpreter runs the kernels where there is no GPU
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def by_cluster(monkeypatch):
    """Lay all rows out by cluster, in spans so short that a few hundred rows are many."""
    shape = replace(centred_scan.CENTRED, span=32, rows=32, columns=32, n_warps=1)
    monkeypatch.setattr(centred_scan, "CENTRED", shape)
    monkeypatch.setattr(engine, "is_worth_fusing", lambda *args: True)
    monkeypatch.setattr(engine, "try_sample", lambda *args: None)
    monkeypatch.setattr(
        engine,
        "choose_centres",
        lambda torch, queries, base, k, _: clusters.find_centres(torch, queries, base, k).points,
    )
    return shape


def _search(queries, base, k, exclude_self):
    return CudaEngine().search(Request(queries, base, k=k, exclude_self=exclude_self, device=DEVICE))


def _assert_equal(found, expected):
    np.testing.assert_array_equal(found.similarity, expected.similarity)
    np.testing.assert_array_equal(found.index, expected.index)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(("k", "exclude_self"), [(1, True), (5, True), (2, False)])
def test_answer_is_that_of_the_cpu_engines(by_cluster, kind, k, exclude_self, random):
    rows = KINDS[kind](random, 700, 11)
    expected = find_neighbors(rows, rows, k=k, exclude_self=exclude_self)
    for base in (rows, rows.copy()):
        _assert_equal(_search(rows, base, k, exclude_self), expected)


def test_clusters_that_only_one_side_has_are_searched_too(by_cluster, random):
    base = random.normal(size=(300, 8)) * 1e-3 + np.repeat(np.eye(8)[:3], 100, axis=0)
    queries = random.normal(size=(90, 8)) * 1e-3 - np.repeat(np.eye(8)[2:5], 30, axis=0)
    _assert_equal(_search(queries, base, 3, False), find_neighbors(queries, base, k=3))


@pytest.fixture
def n_scanned(monkeypatch):
    """How many pairs of spans each launch took."""
    sizes, launch = [], centred_scan.launch

    def count(torch, sides, bars, spans, *rest, **options):
        sizes.append(len(spans))
        launch(torch, sides, bars, spans, *rest, **options)

    monkeypatch.setattr(centred_scan, "launch", count)
    return sizes


def test_a_full_buffer_is_emptied_in_between(by_cluster, n_scanned, random, monkeypatch):
    rows = np.ones((400, 4)) + 1e-9 * random.normal(size=(400, 4))  # so near that float64 alone tells them apart
    expected = find_neighbors(rows, rows, k=2, exclude_self=True)
    _assert_equal(_search(rows, rows, 2, True), expected)
    n_once = sum(n_scanned)
    n_scanned.clear()
    monkeypatch.setattr(centred_scan, "MOST_FOUND", 1)
    _assert_equal(_search(rows, rows, 2, True), expected)
    assert sum(n_scanned) > n_once


def test_distances_rule_out_most_pairs_of_clusters(by_cluster, n_scanned, random):
    rows = np.repeat(random.normal(size=(10, 16)), 100, axis=0) + 1e-3 * random.normal(size=(1000, 16))
    _assert_equal(_search(rows, rows, 1, True), find_neighbors(rows, rows, exclude_self=True))
    assert sum(n_scanned) < 200  # of 528 pairs of 32 spans, or of more where clusters fill their last span in part


@pytest.mark.parametrize("is_self", [True, False])
def test_the_kernel_finds_what_plain_torch_finds(by_cluster, is_self, random, monkeypatch):
    pytest.importorskip("triton", reason="the kernel needs Triton, which torch for CUDA brings")
    assert centred_launch.is_kernel_right(torch, torch.device(DEVICE), by_cluster)
    monkeypatch.setattr(centred_scan, "has_kernel", lambda *args: True)
    rows = KINDS["clustered"](random, 150, 20)
    base = rows if is_self else rows[:120].copy()
    _assert_equal(_search(rows, base, 2, is_self), find_neighbors(rows, base, k=2, exclude_self=is_self))


def test_a_kernel_that_does_not_work_is_left_out(by_cluster, monkeypatch):
    monkeypatch.setattr("ruler.neighbors.cuda.fused_kernels.TensorDescriptor", None)
    centred_launch.is_kernel_right.cache_clear()
    with pytest.warns(RuntimeWarning, match="The kernel for rows laid out by cluster does not work here"):
        assert not centred_launch.is_kernel_right(torch, torch.device(DEVICE), by_cluster)
    centred_launch.is_kernel_right.cache_clear()


def test_a_bound_is_never_below_the_similarity_and_close_to_it(by_cluster, random):
    rows = np.repeat(random.normal(size=(4, 24)), 50, axis=0) + 1e-3 * random.normal(size=(200, 24))
    loaded = engine.load_rows(torch, rows, "rows", DEVICE)
    points = clusters.find_centres(torch, loaded, loaded, 1).points
    scan = centred_scan.CentredScan(torch, loaded, loaded, 1, True, points)
    side, room = (
        scan._left,
        centred_launch.Room(
            torch.zeros(len(scan._left.order) ** 2, dtype=torch.int64, device=DEVICE),
            torch.zeros(len(scan._left.order) ** 2, device=DEVICE),
            torch.zeros(1, dtype=torch.int32, device=DEVICE),
        ),
    )
    every = torch.triu_indices(side.n_spans, side.n_spans, device=DEVICE).T.int().contiguous()
    bars = torch.full((len(side.order),), -4.0, device=DEVICE).where(side.order >= 0, torch.inf)
    centred_launch.launch(torch, scan._sides, (bars, bars), every, room, by_cluster, has_kernel=False)
    n_found = int(room.counter)
    assert n_found == 200 * 199 // 2
    i, j = room.pairs[:n_found] >> 32, room.pairs[:n_found] & 0xFFFFFFFF
    exact = -(loaded.take(side.order[i]) - loaded.take(side.order[j])).square().sum(1) / 2
    over = room.values[:n_found].double() - exact
    bound = 2 * side.gain * side.norms[i].double() * side.reach[j // side.span].double() + 1e-5 * exact.abs()
    assert bool((over >= 0).all())
    is_same = side.clusters[i // side.span] == side.clusters[j // side.span]
    assert bool((over <= bound)[is_same].all())


CHOICES = {
    "as they stand": {"choose_centres": lambda *args: None},
    "by cluster": {
        "choose_centres": lambda torch, queries, base, k, _: clusters.find_centres(torch, queries, base, k).points
    },
    "chosen": {},
}


@pytest.mark.gpu
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("kind", ["diffuse", *(case.kind for case in benchmark.KINDS)])
def test_every_kind_gets_the_answer_of_the_processor(kind, choice, monkeypatch):
    monkeypatch.setattr(fused_pass, "WORTH_FUSING", 0)
    for name, function in CHOICES[choice].items():
        monkeypatch.setattr(engine, name, function)
    rows = benchmark.make_rows(benchmark.Case(kind, 20_000, 64))
    expected = CpuEngine().search(Request(rows, rows, exclude_self=True))
    _assert_equal(find_neighbors(rows, rows, exclude_self=True, device="cuda"), expected)
