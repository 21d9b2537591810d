"""Neighbour search on every kind of rows against faiss, in turns, in processor time of one thread.

Processor time of one thread hardly depends on what else the machine does, so that ratios can be trusted on a busy one.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import describe_machine, measure_here, run_apart
from benchmarks.search import KINDS, LARGE, SIZES, Case, make_rows, search_with_faiss
from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.neighbors import cpu, find_neighbors
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.engines import Request
from ruler.neighbors.tiles import TorchArithmetic

_REPEATS = 3
_LARGE = 50_000
_LIMIT_ROWS = 4096


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

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


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
    timings: list[dict[str, Any]] = []
    for timing in time_kinds((*SIZES[:1], *KINDS, *(LARGE if chosen.large else ()))):
        timings.append(timing.as_dict())
        print(json.dumps(timings[-1]), flush=True)
        numbers = {"machine": describe_machine(), "kinds": timings}
        write_atomically(chosen.json, json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
