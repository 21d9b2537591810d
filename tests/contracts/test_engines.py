"""Every engine, and every other way to search, gives the answer of the definition to the bit."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from tests.neighbors.fake_ray import FakeRay

from ruler.core.checks import measure_norms
from ruler.core.registry import Registry
from ruler.core.types import Neighbors
from ruler.neighbors import Searcher, cpu, find_neighbors, first_pass, recheck
from ruler.neighbors.blocks import find_neighbors_by_blocks, over_devices
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.cuda import scan
from ruler.neighbors.cuda.engine import CudaEngine
from ruler.neighbors.engines import Engine, Request
from ruler.neighbors.ray import run_on_ray
from ruler.neighbors.tiles import NumpyArithmetic, TorchArithmetic
from ruler.testing.engines import check_answers, check_engine, check_searcher, search_by_definition

torch = pytest.importorskip("torch")

DTYPES = ("bfloat16", "float32", "float64")
CPU_ENGINES: dict[str, Engine] = {
    "pilot": CpuEngine(),
    **{f"numpy {dtype.__name__}": CpuEngine(NumpyArithmetic(dtype)) for dtype in (np.float32, np.float64)},
    **{f"torch {dtype}": CpuEngine(TorchArithmetic(torch, dtype)) for dtype in DTYPES},
    **{f"centred {dtype}": CpuEngine(centred=dtype) for dtype in cpu.CENTRED_TYPES},
}
SEARCHERS: dict[str, Searcher] = {
    "the door": find_neighbors,
    "the processor": partial(find_neighbors, device="cpu"),
    "devices by name": partial(find_neighbors, device="cpu,cpu:0"),
    **{f"blocks of {n}": partial(find_neighbors_by_blocks, block_rows=n) for n in (60, 1000)},
    "threads": partial(find_neighbors_by_blocks, block_rows=75, run=ThreadPoolExecutor(2).map),
    "devices": partial(find_neighbors_by_blocks, block_rows=75, run=over_devices(["cpu", "cpu:0"])),
    "ray": partial(find_neighbors_by_blocks, block_rows=75, run=run_on_ray(FakeRay(), {"CPU": 1.0})),
}


@pytest.mark.parametrize("name", CPU_ENGINES)
def test_engines_of_the_processor_keep_the_contract(name: str) -> None:
    check_engine(CPU_ENGINES[name])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_engine_of_the_gpu_keeps_the_contract(device: str) -> None:
    check_engine(CudaEngine(), device=device)


@pytest.mark.parametrize("name", SEARCHERS)
def test_whoever_searches_keeps_the_contract(name: str) -> None:
    check_searcher(SEARCHERS[name])


@pytest.mark.parametrize("name", CPU_ENGINES)
@pytest.mark.parametrize(("tile", "held", "threads"), [(128, 10, 1), (128, 10**9, 3)])
def test_tiles_memory_and_threads_change_nothing(
    name: str, tile: int, held: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (first_pass, cpu):
        monkeypatch.setattr(module, "TILE_ROWS", tile)
    monkeypatch.setattr(first_pass, "MOST_HELD", held)
    monkeypatch.setattr(recheck, "MOST_ROWS", 7)
    monkeypatch.setattr(scan, "LARGEST_BLOCK", 256)
    monkeypatch.setattr(cpu, "WORTH_THREADS", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_answers(_search_with(CPU_ENGINES[name]), np.random.default_rng(1).normal(size=(300, 5)))
    finally:
        torch.set_num_threads(before)


def _search_with(engine: Engine) -> Callable[..., Neighbors]:
    return lambda queries, base, **options: engine.search(Request(queries, base, **options))


class OnlyForThree:
    """An engine as another package may have one, for three neighbours per query."""

    def is_usable_for(self, request: Request) -> bool:
        return request.k == 3

    def search(self, request: Request) -> Neighbors:
        queries, base = request.read_matrices()
        for rows, name in ((base, "base"), (queries, "queries")):
            measure_norms(rows, name)
        return search_by_definition(queries, base, k=request.k, exclude_self=request.exclude_self)


def test_the_door_takes_the_last_engine_that_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    table: Registry[Engine] = Registry("engine", {"cpu": CpuEngine(), "cuda": CudaEngine()})
    monkeypatch.setattr("ruler.neighbors.search.ENGINES", table)
    table.register("only for three", OnlyForThree())
    asked: list[int] = []
    monkeypatch.setattr(OnlyForThree, "search", lambda self, request: asked.append(request.k) or Neighbors(0, 0))
    rows = np.eye(4)
    for k in (1, 2, 3, 4):
        find_neighbors(rows, rows, k=k)
    assert asked == [3]


def test_an_engine_of_another_package_keeps_the_contract_or_is_told_what_it_breaks() -> None:
    check_engine(OnlyForThree())

    class Rounded(OnlyForThree):
        def search(self, request: Request) -> Neighbors:
            found = super().search(request)
            return Neighbors(found.similarity.round(6), found.index)

    class Unchecked(OnlyForThree):
        def search(self, request: Request) -> Neighbors:
            return search_by_definition(request.queries, request.base, k=request.k, exclude_self=request.exclude_self)

    with pytest.raises(AssertionError, match=r"similarity must be that of the definition, to the bit \(random, k=1\)"):
        check_engine(Rounded())
    with pytest.raises(AssertionError, match="must be refused with a message that holds 'queries must be finite'"):
        check_engine(Unchecked())
