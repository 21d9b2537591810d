"""Neighbour search on a CUDA device against its own first pass, and against chunked products and top-k in torch."""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import save_each
from benchmarks.search import KINDS as SEARCHED
from benchmarks.search import Case, Timing, make_rows
from ruler.core.determinism import full_precision
from ruler.core.optional import load_optional
from ruler.neighbors import find_neighbors
from ruler.neighbors.cuda.engine import CudaEngine, load_rows
from ruler.neighbors.cuda.fused_pass import FusedScan, can_fuse
from ruler.neighbors.engines import Request

KINDS = (
    *(
        Case(kind, 200_000, width)
        for width in (128, 768)
        for kind in ("rectified", "diffuse", *(case.kind for case in SEARCHED if case.kind != "rectified"))
    ),
    *(Case(kind, 1_000_000, 128) for kind in ("rectified", "classes")),
)
SIZES = ((1_000_000, 128), (1_000_000, 512), (200_000, 2048))
CHUNK_ROWS = 4096
_MOST_CHUNKS = 8
_REPEATS = 3


@dataclass(frozen=True)
class CudaTiming(Timing):
    """A `Timing` with the rate of the products that were really computed.

    Args:
        tflops: Floating-point operations a second, in units of 10^12; RULER computes half of the products.
        peak_share: That rate in units of this device's bfloat16 matrix product in the same run.
        over_first_pass: Seconds of the exact answer in units of its first pass; None for the other engines.
    """

    tflops: float
    peak_share: float
    over_first_pass: float | None = None


def time_on_cuda() -> Iterator[CudaTiming]:
    """Time the exact self search, its first pass, and what faiss does on a GPU: products of a chunk, then its top 2."""
    torch = load_optional("torch", "the CUDA benchmark")
    peak = measure_product(torch)
    for n_rows, width in SIZES:
        rows = torch.randn(n_rows, width, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        yield from _time_size(torch, rows, peak)


class TorchDraw:
    """Random rows on a device, of the kinds that `benchmarks.search.NumpyDraw` draws."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._where = {"device": device, "generator": torch.Generator(device).manual_seed(0)}

    def normal(self, *shape: int) -> Any:
        """Standard normal numbers."""
        return self._torch.randn(shape, **self._where)

    def integers(self, most: int, n: int) -> Any:
        """n whole numbers from 0 to below ``most``."""
        return self._torch.randint(most, (n,), **self._where)

    def cauchy(self, *shape: int) -> Any:
        """Numbers without a mean: ratios of normal ones, in float64 so that none is infinite."""
        above, below = (self._torch.randn(shape, dtype=self._torch.float64, **self._where) for _ in range(2))
        return above.div_(below).float()

    def round_to_bfloat16(self, rows: Any) -> Any:
        """The nearest numbers with 8 bits, in float32."""
        return rows.bfloat16().float()


def time_kinds(cases: tuple[Case, ...] = KINDS, device: str = "cuda") -> Iterator[dict[str, Any]]:
    """Time the exact self search on kinds of rows, each beside rectified rows of the same size, which come first."""
    torch = load_optional("torch", "the CUDA benchmark")
    usual_s: dict[tuple[int, int], float] = {}
    for case in cases:
        rows = make_rows(case, TorchDraw(torch, device))
        request = Request(rows, rows, exclude_self=True, device=device)
        elapsed_s, extra_mb = time_call(torch, lambda request=request: CudaEngine().search(request))  # type: ignore[misc]
        usual_s.setdefault((case.n_rows, case.width), elapsed_s)
        over = elapsed_s / usual_s[case.n_rows, case.width]
        found, expected = CudaEngine().search(request), CudaEngine("float64").search(request)
        is_exact = np.array_equal(found.index, expected.index) and np.array_equal(found.similarity, expected.similarity)
        found_now = {"elapsed_s": elapsed_s, "extra_mb": extra_mb, "over_rectified": over, "is_exact": is_exact}
        yield asdict(case) | found_now
        del rows, request


def _time_size(torch: Any, rows: Any, peak: float) -> Iterator[CudaTiming]:
    n_rows, width = rows.shape
    every = 2.0 * n_rows**2 * width
    ours_s, extra_mb = time_call(torch, lambda: find_neighbors(rows, rows, exclude_self=True))

    def describe(engine: str, elapsed_s: float, extra_mb: float, flop: float, first_s: float | None) -> CudaTiming:
        return CudaTiming(
            kind="diffuse, CUDA",
            n_rows=n_rows,
            width=width,
            engine=engine,
            elapsed_s=elapsed_s,
            speedup=elapsed_s / ours_s,
            extra_mb=extra_mb,
            sgemm_share=every / elapsed_s / peak,
            tflops=flop / elapsed_s / 1e12,
            peak_share=flop / elapsed_s / peak,
            over_first_pass=None if first_s is None else elapsed_s / first_s,
        )

    first = _time_first_pass(torch, rows) if can_fuse(torch, rows) else None
    yield describe("ruler", ours_s, extra_mb, every / 2, first and first[0])
    if first:
        yield describe("ruler, first pass", *first, every / 2, None)
    for name, precision in (("torch TF32 chunks, top 2", "high"), ("torch float32 chunks, top 2", "highest")):
        yield describe(name, *time_chunks(torch, rows, precision), every, None)


def _time_first_pass(torch: Any, rows: Any) -> tuple[float, float]:
    """Seconds from stored rows to the pairs that float64 must look at."""
    loaded = load_rows(torch, rows, "rows", "cuda")
    scan = FusedScan(torch, loaded, loaded, 1, True, 1)
    with full_precision(torch):
        return time_call(torch, scan.find_pairs)


def time_chunks(torch: Any, rows: Any, precision: str) -> tuple[float, float]:
    """Seconds of a search by chunks of queries, from the first few: each takes as long as the next."""
    unit = torch.nn.functional.normalize(rows)
    starts = list(range(0, len(unit) - CHUNK_ROWS + 1, CHUNK_ROWS))[:_MOST_CHUNKS] or [0]

    def search() -> Any:
        return [(unit[start : start + CHUNK_ROWS] @ unit.T).topk(2, 1) for start in starts]

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        elapsed_s, extra_mb = time_call(torch, search, repeats=1)
    finally:
        torch.set_float32_matmul_precision(before)
    return elapsed_s * len(unit) / min(len(unit), len(starts) * CHUNK_ROWS), extra_mb


def time_call(torch: Any, call: Callable[[], Any], repeats: int = _REPEATS) -> tuple[float, float]:
    """Seconds of the quickest run after one to warm up, and the most device memory it held beyond the data, in MB."""
    times_s = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        started_s = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times_s.append(time.perf_counter() - started_s)
        extra_mb = (torch.cuda.max_memory_allocated() - before) / 2**20
    return min(times_s[1:]), extra_mb


def measure_product(torch: Any, size: int = 8192) -> float:
    """The best rate of a bfloat16 matrix product on this device, in flop/s."""
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    elapsed_s, _ = time_call(torch, lambda: [torch.mm(a, a) for _ in range(10)])
    return 2.0 * 10 * size**3 / elapsed_s


def main() -> None:
    """`python -m benchmarks cuda --json FILE`: the part of `make bench` that a GPU runs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file")
    parser.add_argument("--kinds", action="store_true", help="time kinds of rows beside rectified ones instead")
    chosen = parser.parse_args()
    timings, key = (time_kinds(KINDS), "cuda_kinds") if chosen.kinds else (time_on_cuda(), "search")
    save_each(timings, chosen.json, key, has_gpu=True)
