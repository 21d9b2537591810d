"""`python -m benchmarks scaling`: how search time grows with rows, width and workers, and a model of it.

With ``--json F`` it measures and writes the numbers; with ``--page P`` it writes the tables into the page, between its
markers, from the numbers in F. Run it on a quiet machine.
"""

import argparse
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.measure import describe_machine, save_numbers
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table
from ruler.core.types import FloatArray

POINTS = (
    *((n, 128, 2) for n in (12_500, 25_000, 50_000, 100_000, 200_000)),
    *((50_000, width, 2) for width in (16, 32, 64, 256, 512, 1024)),
    *((50_000, width, 1) for width in (32, 128, 512)),
)
"""(rows, width, workers) of self searches on diffuse data."""

_BLOCK_ROWS = 1 << 25
_TASKS_A_DEVICE = 4
_MARKERS = ("<!-- measured: begin -->", "<!-- measured: end -->")


@dataclass(frozen=True)
class Point:
    """One self search: its size, and the wall and processor seconds it took."""

    n_rows: int
    width: int
    n_workers: int
    elapsed_s: float
    cpu_s: float


@dataclass(frozen=True)
class CostModel:
    """Processor seconds of a self search, n p ``read`` + n^2 / 2 (p ``multiply`` + ``reduce``), each at least 0.

    Args:
        read: Seconds a number: norms, hashes, rounding.
        multiply: Seconds a multiply-add.
        reduce: Seconds a product of two rows: maxima, bounds.
        error: Root mean square of the relative errors of the fit.
    """

    read: float
    multiply: float
    reduce: float
    error: float

    def predict(self, n_rows: float, width: float) -> float:
        """Processor seconds; divide by the workers for wall seconds on an otherwise idle machine.

        Example:
            >>> round(CostModel(0.0, 1e-11, 0.0, 0.0).predict(1e5, 100), 6)
            5.0
        """
        return n_rows * width * self.read + n_rows**2 / 2 * (width * self.multiply + self.reduce)


@dataclass(frozen=True)
class Device:
    """What one accelerator does.

    Args:
        name: Of the kind.
        tflops: Of the first pass, measured, in units of 10^12 operations a second.
        exact_over_first: Time of the exact answer in units of the first pass.
        read_gb_s: From the shards into its memory, in 10^9 bytes per second.
    """

    name: str
    tflops: float
    exact_over_first: float
    read_gb_s: float


def measure_points(points: Iterable[tuple[int, int, int]] = POINTS) -> Iterator[Point]:
    """Time a self search at each point."""
    import torch

    from ruler.neighbors import find_neighbors

    n_threads = torch.get_num_threads()
    try:
        for n_rows, width, n_workers in points:
            rows = np.random.default_rng(0).standard_normal((n_rows, width), dtype=np.float32)
            torch.set_num_threads(n_workers)
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
            find_neighbors(rows, rows, exclude_self=True)
            yield Point(n_rows, width, n_workers, time.perf_counter() - started_s, time.process_time() - started_cpu_s)
    finally:
        torch.set_num_threads(n_threads)


def fit_model(points: Sequence[Point]) -> CostModel:
    """The model that comes nearest to the processor seconds, in relative terms.

    Example:
        >>> points = [Point(n, p, 1, 0.0, 1e-9 * n * p + n * n / 2 * 1e-11 * p) for n in (1000, 9000) for p in (8, 99)]
        >>> found = fit_model(points)
        >>> round(found.read * 1e9, 6), round(found.multiply * 1e11, 6), found.error < 1e-9
        (1.0, 1.0, True)
    """
    terms = np.array([_terms(point.n_rows, point.width) for point in points])
    seconds: FloatArray = np.array([point.cpu_s for point in points])
    factors, _ = nnls(terms / seconds[:, None], np.ones(len(seconds)))
    errors = terms @ factors / seconds - 1
    read, multiply, reduce = factors.tolist()
    return CostModel(read, multiply, reduce, error=float(np.sqrt(np.mean(errors**2))))


def _terms(n_rows: int, width: int) -> tuple[float, float, float]:
    return float(n_rows) * width, n_rows**2 / 2 * width, n_rows**2 / 2


def project_search(n_queries: float, n_rows: float, width: int, device: Device, n_devices: int) -> dict[str, float]:
    """What a search cut into pairs of blocks costs on many devices: operations, bytes, hours. An extrapolation.

    Blocks are of float32, of at most 2^25 rows, and halved until every device has several pairs of them; the last round
    of pairs may leave devices idle. Two different blocks are multiplied for one side and then for the other, so that a
    set searched in itself costs all n^2 products. Reading and computing are added, as if they did not overlap.

    Args:
        n_queries: Rows to look up.
        n_rows: Rows to search.
        width: Columns.
        device: One of them.
        n_devices: How many.

    Example:
        >>> device = Device("a GPU", tflops=500, exact_over_first=1.5, read_gb_s=2)
        >>> {name: round(value, 2) for name, value in project_search(1e8, 1e8, 128, device, 8).items()}
        {'pflop': 2560.0, 'terabytes': 0.67, 'hours': 0.29, 'device_hours': 2.28}
    """
    pflop = 2.0 * n_queries * n_rows * width / 1e15
    block_rows, n_tasks = _cut_blocks(n_queries, n_rows, n_devices)
    n_bytes = n_tasks * (min(block_rows, n_rows) + min(block_rows, n_queries)) * width * 4.0
    work_s = pflop * 1e3 / device.tflops * device.exact_over_first + n_bytes / (device.read_gb_s * 1e9)
    hours = math.ceil(n_tasks / n_devices) * work_s / n_tasks / 3600
    return {"pflop": pflop, "terabytes": n_bytes / 1e12, "hours": hours, "device_hours": hours * n_devices}


def _cut_blocks(n_queries: float, n_rows: float, n_devices: int) -> tuple[int, int]:
    """Rows a block and number of pairs of blocks, a pair of a set searched in itself counted once."""
    block_rows = _BLOCK_ROWS
    while True:
        n_blocks, n_query_blocks = math.ceil(n_rows / block_rows), math.ceil(n_queries / block_rows)
        n_tasks = n_blocks * (n_blocks + 1) // 2 if n_queries == n_rows else n_blocks * n_query_blocks
        if n_tasks >= _TASKS_A_DEVICE * n_devices or block_rows == 1:
            return block_rows, n_tasks
        block_rows //= 2


def write_tables(numbers: Mapping[str, Any], page: Path) -> None:
    """Put the measured tables between the markers of the page."""
    points = [Point(**point) for point in numbers["points"]]
    model, device = fit_model(points), Device(**numbers["device"])
    text = page.read_text(encoding="utf-8")
    begin, end = (text.index(marker) for marker in _MARKERS)
    parts = [_MARKERS[0], _describe(numbers, model), _point_table(points, model), _projection_table(device)]
    write_atomically(page, text[:begin] + "\n\n".join(parts) + "\n\n" + text[end:])


def _describe(numbers: Mapping[str, Any], model: CostModel) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in numbers["machine"].items())
    return (
        f"Machine: {machine}. Fit: read = {model.read * 1e9:.3g} ns per number, "
        f"multiply = {model.multiply * 1e12:.3g} ps per multiply-add, "
        f"reduce = {model.reduce * 1e12:.3g} ps per product; root mean square of the relative errors {model.error:.1%}."
    )


def _point_table(points: Sequence[Point], model: CostModel) -> str:
    rows = [
        (
            f"{point.n_rows:,}",
            str(point.width),
            str(point.n_workers),
            f"{point.elapsed_s:.2f}",
            f"{point.cpu_s:.2f}",
            f"{model.predict(point.n_rows, point.width):.2f}",
        )
        for point in points
    ]
    return "\n".join(markdown_table(("rows", "width", "workers", "seconds", "processor seconds", "model"), rows))


def _projection_table(device: Device) -> str:
    rows = []
    for n_rows in (1e8, 1e9):
        for n_queries, what in ((n_rows, "all retain records"), (1e6, "a million of them")):
            for n_devices in (8, 64):
                cost = project_search(n_queries, n_rows, 128, device, n_devices)
                rows.append(
                    (
                        f"10^{math.log10(n_rows):.0f}",
                        what,
                        f"{n_devices} {device.name}",
                        f"{cost['pflop']:,.3g}",
                        f"{cost['terabytes']:,.3g}",
                        f"{60 * cost['hours']:,.3g}",
                        f"{cost['device_hours']:,.3g}",
                    )
                )
    header = ("retain records", "M4 ranks among", "devices", "PFLOP", "TB read", "minutes", "device hours")
    return "\n".join(["Extrapolated, width 128:", "", *markdown_table(header, rows)])


def main() -> None:
    """Measure, or write the page from what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="file of the numbers; measured anew without --page")
    parser.add_argument("--page", type=Path, help="page to write the tables into")
    options = parser.parse_args()
    if options.page is not None:
        write_tables(json.loads(options.json.read_text(encoding="utf-8")), options.page)
        return
    known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
    save_numbers(options.json, {**known, "machine": describe_machine(), "points": [*measure_points()]})
