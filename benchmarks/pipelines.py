"""From data to tables on some cores: `ruler reproduce`, and the plain protocol with torch's own threads.

The plain pipeline runs one model after the other in one process with a thread per core; RULER runs a process per core.
Both measure the same models by the same scores (`benchmarks.protocol`), in turns. Threads sleep while they wait
(OMP_WAIT_POLICY): by default they compute in vain, for minutes where other work takes a core from one of them.
"""

import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.measure import describe_machine
from benchmarks.protocol import PlainRow, run_plainly
from benchmarks.studies import fresh_cache
from ruler.core.errors import RulerError
from ruler.core.files import write_atomically
from ruler.data import load_tabular

DATASETS = "phoneme", "magic"
N_SEEDS = 4
ENGINES = "protocol", "ensemble"


class Measured(NamedTuple):
    """Seconds on the clock and of the processors, and the memory of the largest process."""

    elapsed_s: float
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True)
class PipelineTiming:
    """A study of two datasets and four seeds with one of RULER's engines, beside the plain pipeline.

    Args:
        cores: Threads of the plain pipeline, and processes of RULER.
        plain_s, ruler_s: On the clock, the median of all turns.
        speedup, lowest, highest: Ratio of these medians, and of the clocks within a turn.
        plain_cpu_s, ruler_cpu_s, cpu_speedup: Processor seconds of all processes and threads, and their ratio.
        plain_mb, ruler_mb: Peak memory of the largest process; RULER has one per core, and one that waits.
    """

    study: str
    engine: str
    cores: int
    plain_s: float
    ruler_s: float
    speedup: float
    lowest: float
    highest: float
    plain_cpu_s: float
    ruler_cpu_s: float
    cpu_speedup: float
    plain_mb: float
    ruler_mb: float


def save_pipelines(n_turns: int, n_cores: int, path: Path | None) -> None:
    """Time all pipelines by turns, print the numbers and write them to a file."""
    for name in DATASETS:
        load_tabular(name)  # fetched before the clock starts
    turns: list[dict[str, Measured]] = []
    for _ in range(n_turns):
        turns.append({name: _measure(name, n_cores) for name in ("plain", *ENGINES)})
        print(json.dumps(turns[-1]), flush=True)
        timings = [asdict(_summarise(engine, n_cores, turns)) for engine in ENGINES]
        if path:
            numbers = {"machine": describe_machine(), "pipelines": timings}
            write_atomically(path, json.dumps(numbers, indent=2) + "\n")


def _summarise(engine: str, n_cores: int, turns: Sequence[dict[str, Measured]]) -> PipelineTiming:
    plain, ours = (
        Measured(*(statistics.median(values) for values in zip(*(turn[name] for turn in turns), strict=True)))
        for name in ("plain", engine)
    )
    ratios = [turn["plain"].elapsed_s / turn[engine].elapsed_s for turn in turns]
    return PipelineTiming(
        study=f"{' and '.join(DATASETS)}, {N_SEEDS} seeds",
        engine=engine,
        cores=n_cores,
        plain_s=plain.elapsed_s,
        ruler_s=ours.elapsed_s,
        speedup=plain.elapsed_s / ours.elapsed_s,
        lowest=min(ratios),
        highest=max(ratios),
        plain_cpu_s=plain.cpu_s,
        ruler_cpu_s=ours.cpu_s,
        cpu_speedup=plain.cpu_s / ours.cpu_s,
        plain_mb=plain.peak_mb,
        ruler_mb=ours.peak_mb,
    )


def _measure(name: str, n_cores: int) -> Measured:
    """What a pipeline with nothing in its cache takes."""
    with TemporaryDirectory() as folder, fresh_cache() as cache:
        if name == "plain":
            words = ["-c", "import sys; from benchmarks import pipelines; pipelines.run_whole(sys.argv[1])", folder]
        else:
            chosen = [word for dataset in DATASETS for word in ("--datasets", dataset)]
            words = ["-m", "ruler", "reproduce", "primary", *chosen, "--seeds", str(N_SEEDS), "--engine", name]
            words += ["--jobs", str(n_cores), "--out", str(Path(folder) / "out")]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(n_cores))
        threads["OMP_WAIT_POLICY"] = "passive"
        started_s = time.perf_counter()
        with (Path(folder) / "said").open("w+b") as said:
            process = subprocess.Popen(
                [*_pin(n_cores), sys.executable, *words],
                env=os.environ | threads | {"RULER_CACHE": str(cache)},
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            elapsed_s = time.perf_counter() - started_s
            said.seek(0)
            if process.returncode:
                raise RulerError(f"{name} must end well to be timed; it said: {said.read()[-500:].decode()}")
    return Measured(elapsed_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _pin(n_cores: int) -> list[str]:
    """Words that keep a command on so many cores, where the system has them; RULER gives its processes all cores."""
    if shutil.which("taskset") is None:
        return []
    cores = sorted(os.sched_getaffinity(0))[:n_cores]
    return ["taskset", "--cpu-list", ",".join(map(str, cores))]


def run_whole(folder: str) -> None:
    """Run the plain pipeline: all models, a file with a row per model, and a table of means."""
    rows = [row for name in DATASETS for seed in range(N_SEEDS) for row in run_plainly(name, seed)]
    with (Path(folder) / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([PlainRow._fields, *rows])
    groups = defaultdict(list)
    for row in rows:
        groups[row.method, row.fraction].append(row)
    with (Path(folder) / "table.csv").open("w", newline="") as file:
        means = ([*key, *map(statistics.mean, list(zip(*group, strict=True))[3:])] for key, group in groups.items())
        csv.writer(file).writerows([("method", "fraction", *PlainRow._fields[3:]), *means])
