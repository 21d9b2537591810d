"""Neighbour search on a CUDA device against plain torch blocks there."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ruler.bench.search import Timing
from ruler.core.optional import load_optional
from ruler.neighbors import find_neighbors

SIZES = ((200_000, 128), (1_000_000, 128), (500_000, 512))
_PLAIN_CHUNK = 4096
_REPEATS = 3


def time_on_cuda(sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[Timing]:
    """Time the exact self search, and float32 products with a running maximum: what a user would write."""
    torch = load_optional("torch", "the CUDA benchmark")
    peak = _measure_product(torch)
    for n_rows, width in sizes:
        rows = torch.randn(n_rows, width, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        engines: dict[str, Callable[[], Any]] = {
            "ruler": partial(find_neighbors, rows, rows, exclude_self=True),
            "torch float32 blocks": partial(_search_plainly, torch, rows),
        }
        ours_s = None
        for engine, call in engines.items():
            elapsed_s, extra_mb = _time(torch, call)
            ours_s = ours_s or elapsed_s
            yield Timing(
                kind="diffuse, CUDA",
                n_rows=n_rows,
                width=width,
                engine=engine,
                elapsed_s=elapsed_s,
                speedup=elapsed_s / ours_s,
                extra_mb=extra_mb,
                sgemm_share=2.0 * n_rows**2 * width / elapsed_s / peak,
            )


def _search_plainly(torch: Any, rows: Any) -> Any:
    unit = torch.nn.functional.normalize(rows)
    best = torch.empty(len(unit), device=unit.device)
    for start in range(0, len(unit), _PLAIN_CHUNK):
        product = unit[start : start + _PLAIN_CHUNK] @ unit.T
        product[:, start:].fill_diagonal_(-2.0)
        best[start : start + _PLAIN_CHUNK] = product.amax(1)
    return best.cpu()


def _time(torch: Any, call: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of the quickest run after one to warm up, and the most device memory it held beyond the data, in MB."""
    times_s = []
    for _ in range(_REPEATS + 1):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        started_s = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times_s.append(time.perf_counter() - started_s)
        extra_mb = (torch.cuda.max_memory_allocated() - before) / 2**20
    return min(times_s[1:]), extra_mb


def _measure_product(torch: Any, size: int = 8192) -> float:
    """The best rate of a bfloat16 matrix product on this device, in flop/s."""
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    elapsed_s, _ = _time(torch, lambda: [torch.mm(a, a) for _ in range(10)])
    return 2.0 * 10 * size**3 / elapsed_s
