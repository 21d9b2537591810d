"""Every method on tables and on images: `ruler compare` within a time limit, and what docs/methods.md shows of it.

`python -m benchmarks comparison run cifar10 --device cuda --seconds 500 --out DIR` measures and stops in time; the
same command resumes. `ruler compare benchmarks/comparisons/cifar10.toml --out DIR/cifar10` does the same without a
limit. `python -m benchmarks comparison keep DIR/*` gathers finished runs in docs/bench, and `python -m benchmarks
comparison write` makes tables and figure of the page anew from there.

The settings were fixed before the first run: every method's defaults, in bfloat16 on images. SSD and LFSSD, which
refuse a threshold of 10 for a tenth of the records, have the lowest of their grids there. Methods that take record by
record come last, so that a run that ends early lacks them alone.
"""

import argparse
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.comparison_tables import keep_runs, write_page
from ruler.experiment.cell import Workplace
from ruler.experiment.compare.settings import CompareSettings, read_settings
from ruler.experiment.executors import LocalExecutor
from ruler.experiment.grid import Job
from ruler.experiment.run import RESULTS_FILE, RunSettings, gather_inputs, run_cells
from ruler.experiment.store import ResultStore, load_results
from ruler.paper.compare.table import FAILED, gather_runs

SETTINGS = Path(__file__).with_name("comparisons")
BENCH = Path(__file__).parents[1] / "docs" / "bench"
PAGE = BENCH.with_name("methods.md")
NAMES = tuple(sorted(path.stem for path in SETTINGS.glob("*.toml")))


class TimeIsOverError(Exception):
    """The limit was reached; what is finished is kept."""


@dataclass(frozen=True)
class BoundedExecutor:
    """Runs each job in parts, which train its original and oracle anew, and stops when the time is over.

    Args:
        n_parts: Parts of each job, of every so many-th cell.
        ends_s: When to stop, by the monotonic clock.
        n_jobs: Worker processes; None takes one per part.
    """

    n_parts: int
    ends_s: float
    n_jobs: int | None = None

    def run(
        self, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, *, on_tick: Callable[[], None]
    ) -> None:
        """Do all jobs, or as much of them as there is time for; see `Executor`."""
        parts = [Job(job.cells[start :: self.n_parts]) for job in jobs for start in range(self.n_parts)]
        parts = [part for part in parts if part.cells]

        def look() -> None:
            on_tick()
            if time.monotonic() > self.ends_s:
                raise TimeIsOverError

        with contextlib.suppress(TimeIsOverError):
            LocalExecutor(n_jobs=self.n_jobs or len(parts)).run(parts, workplace, store, on_tick=look)


def run_bounded(
    wanted: CompareSettings, out: Path, *, device: str, seconds: float, n_parts: int = 1, n_jobs: int | None = None
) -> str:
    """Run what is not finished until the time is over; tell how far it is and what failed."""
    ends_s = time.monotonic() + seconds
    if wanted.path is None:
        gather_inputs([wanted.dataset])
    cells = wanted.list_cells(wanted.load().n_train)
    settings = RunSettings(
        out=out,
        executor=BoundedExecutor(n_parts, ends_s, n_jobs),
        device=device,
        table=wanted.path and wanted.path.resolve(),
        code=wanted.folder.resolve(),
    )
    found = run_cells(cells, settings)
    lines = [f"{out}: {found.n_done} of {found.n_cells} runs in {found.elapsed_s:.0f} s"]
    lines += [f"  {cell.method} seed {cell.seed}: {why}" for cell, why in found.failures.items()]
    return "\n".join(lines)


def gather_finished(wanted: CompareSettings, folder: Path) -> pd.DataFrame:
    """One row per run that is finished or has failed, in the order of the settings, with the device."""
    cells = wanted.list_cells(wanted.load().n_train)
    results = load_results(folder / RESULTS_FILE)
    with ResultStore(folder / RESULTS_FILE) as store:
        errors = store.list_failures()
    failures = {cell: errors[cell.key] for cell in cells if cell.key in errors}
    runs = gather_runs(results, cells, failures)
    is_asked = [one != FAILED or cell in failures for one, cell in zip(runs["verdict"], cells, strict=True)]
    return runs.assign(device=results["device"].iloc[0] if len(results) else "")[is_asked]


def main() -> None:
    """Measure, gather what was measured, or write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks comparison")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="run what is not finished")
    run.add_argument("name", choices=NAMES)
    run.add_argument("--out", type=Path, required=True, help="folder, in which each comparison has its own")
    run.add_argument("--device", default="cpu")
    run.add_argument("--seconds", type=float, default=math.inf, help="when to stop")
    run.add_argument("--parts", type=int, default=1, help="of each seed, which run side by side")
    run.add_argument("--jobs", type=int, help="worker processes; one per seed and part by default")
    keep = verbs.add_parser("keep", help="gather finished runs")
    keep.add_argument("folders", type=Path, nargs="+", help="each named like its comparison")
    write = verbs.add_parser("write", help="make tables and figure anew")
    for verb in (keep, write):
        verb.add_argument("--bench", type=Path, default=BENCH)
    write.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    if asked.verb == "run":
        options = {"device": asked.device, "seconds": asked.seconds, "n_parts": asked.parts, "n_jobs": asked.jobs}
        print(run_bounded(read_settings(SETTINGS / f"{asked.name}.toml"), asked.out / asked.name, **options))
    elif asked.verb == "keep":
        for folder in asked.folders:
            runs = gather_finished(read_settings(SETTINGS / f"{folder.name}.toml"), folder)
            if len(runs):
                keep_runs(runs, asked.bench / f"compare_{folder.name}.csv")
            print(f"{folder.name}: {len(runs)} runs")
    else:
        write_page(asked.bench, asked.page)


if __name__ == "__main__":
    main()
