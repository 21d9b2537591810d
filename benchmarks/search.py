"""Neighbour search against faiss, scikit-learn and a plain float64 loop.

`python -m benchmarks kinds` searches every kind of rows beside faiss, in turns, in processor time of one thread. That
time hardly depends on what else the machine does, so that its ratios can be trusted on a busy one.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure import measure_apart, measure_here, run_apart, save_each
from ruler.core.optional import load_optional
from ruler.neighbors import cpu, find_neighbors
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.engines import Request
from ruler.neighbors.tiles import TorchArithmetic

Matrix = npt.NDArray[np.float32]
_PLAIN_CHUNK = 512
_REPEATS = 3
_LARGE = 50_000
_LIMIT_ROWS = 4096


@dataclass(frozen=True)
class Case:
    """A self search: the nearest other row of every row."""

    kind: str
    n_rows: int
    width: int


@dataclass(frozen=True)
class Timing:
    """One engine on one case; ``speedup`` is how many times faster RULER was in the same run."""

    kind: str
    n_rows: int
    width: int
    engine: str
    elapsed_s: float
    speedup: float
    extra_mb: float
    sgemm_share: float


SIZES = (Case("diffuse", 20_000, 128), Case("diffuse", 50_000, 512), Case("diffuse", 100_000, 128))
KINDS = tuple(
    Case(kind, 20_000, 128)
    for kind in (
        *("classes", "tight classes", "collapsed", "duplicates", "rectified", "heavy-tailed", "rank 2", "rank 8"),
        *("int8", "bfloat16", "identities", "offset"),
    )
)
LARGE = tuple(Case(kind, 100_000, 128) for kind in ("tight classes", "collapsed", "classes"))


class NumpyDraw:
    """Random rows of NumPy; `benchmarks.cuda.TorchDraw` draws them on a device."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)

    def normal(self, *shape: int) -> Any:
        """Standard normal numbers."""
        return self._random.standard_normal(shape, dtype=np.float32)

    def integers(self, most: int, n: int) -> Any:
        """n whole numbers from 0 to below ``most``."""
        return self._random.integers(0, most, n)

    def cauchy(self, *shape: int) -> Any:
        """Numbers without a mean."""
        return self._random.standard_t(1.0, shape).astype(np.float32)

    def round_to_bfloat16(self, rows: Any) -> Any:
        """The nearest numbers with 8 bits, in float32."""
        bits = rows.view(np.uint32) + np.uint32(1 << 15)
        return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def make_rows(case: Case, draw: Any = None) -> Any:
    """Data of a kind: what representations look like, from diffuse to collapsed."""
    draw = draw or NumpyDraw()
    noise = draw.normal(case.n_rows, case.width)
    centers = draw.normal(10, case.width)[draw.integers(10, case.n_rows)]
    match case.kind:
        case "classes":
            return centers + 0.3 * noise
        case "tight classes":
            return centers + 1e-3 * noise
        case "collapsed":
            return 1.0 + 1e-4 * noise
        case "duplicates":
            return noise[draw.integers(case.n_rows // 10, case.n_rows)]
        case "rectified":
            return (noise[:, :20] @ draw.normal(20, case.width)).clip(min=0)
        case "heavy-tailed":
            return draw.cauchy(case.n_rows, case.width)
        case "rank 2" | "rank 8":
            rank = int(case.kind[-1])
            return noise[:, :rank] @ draw.normal(rank, case.width)
        case "int8":
            return (32 * (centers + 0.05 * noise)).round().clip(-127, 127)
        case "bfloat16":
            return draw.round_to_bfloat16(centers + 0.02 * noise)
        case "identities":
            people = draw.normal(case.n_rows // 20, case.width)
            chosen = people[draw.integers(len(people), case.n_rows)]
            return centers[:1] + 0.2 * chosen + 0.01 * noise
        case "offset":
            return 3 * centers[:1] + noise[:, :20] @ draw.normal(20, case.width) / 5
        case _:
            return noise


def _ruler(rows: Matrix) -> Any:
    load_optional("torch", "the fastest CPU engine")
    return lambda: find_neighbors(rows, rows, exclude_self=True)


def search_with_faiss(rows: Matrix) -> Any:
    """A call that searches as a user of faiss would."""
    faiss = load_optional("faiss", "the faiss benchmark")

    def search() -> Any:
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        index = faiss.IndexFlatIP(rows.shape[1])
        index.add(unit)
        return index.search(unit, 2)

    return search


def _sklearn(rows: Matrix) -> Any:
    neighbors = load_optional("sklearn.neighbors", "the scikit-learn benchmark")

    def search() -> Any:
        return neighbors.NearestNeighbors(n_neighbors=2, algorithm="brute", metric="cosine").fit(rows).kneighbors()

    return search


def _plain(rows: Matrix) -> Any:
    def search() -> Any:
        unit = rows.astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        value, index = np.empty(len(unit)), np.empty(len(unit), dtype=np.int64)
        for start in range(0, len(unit), _PLAIN_CHUNK):
            product = unit[start : start + _PLAIN_CHUNK] @ unit.T
            np.fill_diagonal(product[:, start:], -2.0)
            index[start : start + _PLAIN_CHUNK] = product.argmax(axis=1)
            value[start : start + _PLAIN_CHUNK] = product.max(axis=1)
        return value, index

    return search


ENGINES: dict[str, Callable[[Matrix], Any]] = {
    "ruler": _ruler,
    "faiss IndexFlatIP": search_with_faiss,
    "plain float64 loop": _plain,
    "scikit-learn brute": _sklearn,
}


def _prepare(case: Case, engine: str) -> Any:
    return ENGINES[engine](make_rows(case))


def time_cases(cases: tuple[Case, ...], engines: tuple[str, ...] = tuple(ENGINES)) -> Iterator[Timing]:
    """Time every engine on every case, RULER first; yields as results come."""
    peak = measure_sgemm() if cases else math.nan
    for case in cases:
        ours_s = None
        for engine in engines:
            repeats = 3 if case.n_rows * case.n_rows * case.width < 1e11 else 1
            found = measure_apart(partial(_prepare, case, engine), repeats=repeats)
            ours_s = found.elapsed_s if ours_s is None else ours_s
            rate = 2.0 * case.n_rows**2 * case.width / found.elapsed_s
            yield Timing(
                **asdict(case),
                engine=engine,
                elapsed_s=found.elapsed_s,
                speedup=found.elapsed_s / ours_s,
                extra_mb=found.extra_mb,
                sgemm_share=rate / peak,
            )


def measure_sgemm(size: int = 2048) -> float:
    """The best rate of a float32 matrix product here, in flop/s, all cores."""
    product: Callable[[], Any]
    try:
        torch = load_optional("torch", "measuring the product's peak")
        a = torch.randn(size, size)
        product = partial(torch.mm, a, a)
    except ImportError:
        b = np.ones((size, size), dtype=np.float32)
        product = partial(np.matmul, b, b)
    times_s = []
    for _ in range(6):
        started_s = time.perf_counter()
        product()
        times_s.append(time.perf_counter() - started_s)
    return 2.0 * size**3 / min(times_s)


@dataclass(frozen=True)
class KindTiming:
    """One kind of rows.

    Args:
        kind: Of rows.
        n_rows: How many.
        width: Of a row.
        ruler_s: Processor seconds of `find_neighbors`, the quickest of a few.
        plain_s: The same with rows as they stand, which is what it did before it knew clusters.
        faiss_s: Of faiss.
        limit_s: Of half of all products in bfloat16 and nothing else; clusters can need fewer.
        extra_mb: Most memory beyond the data.
        is_exact: Whether similarities and indices are those of float64, to the bit; None where that was not computed.
    """

    kind: str
    n_rows: int
    width: int
    ruler_s: float
    plain_s: float
    faiss_s: float
    limit_s: float
    extra_mb: float
    is_exact: bool | None


def time_kinds(cases: tuple[Case, ...]) -> Iterator[KindTiming]:
    """Time every case in a process of its own; yields as results come."""
    for case in cases:
        yield run_apart(time_kind, case)


def time_kind(case: Case) -> KindTiming:
    """Time one case here, with one thread."""
    torch = load_optional("torch", "the fastest CPU engine")
    torch.set_num_threads(1)
    load_optional("faiss", "the faiss benchmark").omp_set_num_threads(1)
    rows = make_rows(case)
    calls: dict[str, Callable[[], Any]] = {
        "ruler": partial(find_neighbors, rows, rows, exclude_self=True),
        "plain": partial(_search_plainly, rows),
        "faiss": search_with_faiss(rows),
    }
    extra_mb = measure_here(calls["ruler"]).extra_mb
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 if case.n_rows > _LARGE else _REPEATS):
        for name, call in calls.items():
            spent[name].append(_spend(call))
    best = {name: min(times_s) for name, times_s in spent.items()}
    is_exact = _is_exact(rows) if case.n_rows <= _LARGE else None
    limit_s = _time_products(torch, case)
    return KindTiming(
        case.kind, case.n_rows, case.width, best["ruler"], best["plain"], best["faiss"], limit_s, extra_mb, is_exact
    )


def _spend(call: Callable[[], Any]) -> float:
    started_s = time.process_time()
    call()
    return time.process_time() - started_s


def _search_plainly(rows: Any) -> Any:
    known, cpu.FEWEST_CENTRED_ROWS = cpu.FEWEST_CENTRED_ROWS, len(rows) + 1
    try:
        return find_neighbors(rows, rows, exclude_self=True)
    finally:
        cpu.FEWEST_CENTRED_ROWS = known


def _is_exact(rows: Any) -> bool:
    torch = load_optional("torch", "searching in float64")
    expected = CpuEngine(TorchArithmetic(torch, "float64")).search(Request(rows, rows, exclude_self=True))
    found = find_neighbors(rows, rows, exclude_self=True)
    return bool(np.array_equal(found.index, expected.index) and np.array_equal(found.similarity, expected.similarity))


def _time_products(torch: Any, case: Case) -> float:
    """Half of all products in bfloat16, from the rate of those of a few thousand rows."""
    some = torch.from_numpy(make_rows(replace(case, n_rows=_LIMIT_ROWS))).bfloat16()
    elapsed_s = min(_spend(lambda: [torch.mm(part, some.T) for part in some.split(1024)]) for _ in range(4))
    return elapsed_s * (case.n_rows / _LIMIT_ROWS) ** 2 / 2


def main() -> None:
    """`python -m benchmarks kinds --json FILE`: every kind of rows against faiss, in processor time of one thread."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks kinds", description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file")
    parser.add_argument("--large", action="store_true", help="also 100,000 rows: minutes more")
    chosen = parser.parse_args()
    save_each(time_kinds((*SIZES[:1], *KINDS, *(LARGE if chosen.large else ()))), chosen.json, "kinds")
