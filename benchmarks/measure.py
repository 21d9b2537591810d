"""Time and peak memory of a call, in a process of its own so that none inherits another's memory; numbers to JSON."""

import contextlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ruler.core.files import write_atomically
from ruler.core.optional import load_optional

T = TypeVar("T")
_CLEAR_PEAK = "5"


@dataclass(frozen=True)
class Measurement:
    """Seconds of the quickest run, and the most memory it held beyond what was there before, in MB."""

    elapsed_s: float
    extra_mb: float


def measure_apart(prepare: Callable[[], Callable[[], Any]], *, repeats: int = 1) -> Measurement:
    """Run ``prepare()`` and then time what it returns, in a new process.

    Args:
        prepare: A picklable function that makes the data and returns the call to time.
        repeats: How often to run; the quickest counts, and the largest memory.
    """
    return run_apart(_prepare_and_measure, prepare, repeats)


def run_apart(function: Callable[..., T], *arguments: Any) -> T:
    """``function(*arguments)`` from a new process, which inherits neither memory nor threads."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def read_peak_mb() -> float:
    """The most memory that this process has held so far; nan where the system does not say."""
    return _read_status("VmHWM")


def _prepare_and_measure(prepare: Callable[[], Callable[[], Any]], repeats: int) -> Measurement:
    return measure_here(prepare(), repeats=repeats)


def measure_here(call: Callable[[], Any], *, repeats: int = 1) -> Measurement:
    """Time a call in this process; the quickest run counts, and the largest memory."""
    times_s, extra_mb = [], []
    for _ in range(repeats):
        _reset_peak()
        before_mb = _read_status("VmRSS")
        started_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - started_s)
        extra_mb.append(read_peak_mb() - before_mb)
    return Measurement(min(times_s), max(extra_mb))


def _reset_peak() -> None:
    with contextlib.suppress(OSError):  # without it the peak is that of the whole process: too large, never too small
        Path("/proc/self/clear_refs").write_text(_CLEAR_PEAK)


def _read_status(field: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":"))


def describe_machine(*, has_gpu: bool = False) -> dict[str, Any]:
    """What the numbers depend on: processor, cores, versions, the commit where RULER is a checkout, perhaps the GPU."""
    import platform
    from importlib import metadata

    from ruler.experiment.rows import describe_process

    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), processor)
    run = describe_process("cpu")
    found = {
        "ruler": run.ruler_version if run.commit is None else f"{run.ruler_version} ({run.commit})",
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
    }
    packages = ["numpy", "torch", "faiss-cpu", "scikit-learn"]
    if has_gpu:
        torch = load_optional("torch", "the benchmark")
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
        packages.append("triton")
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def has_cuda() -> bool:
    """Whether torch finds a device here."""
    found: bool = load_optional("torch", "the benchmark").cuda.is_available()
    return found


def save_numbers(path: Path, numbers: Mapping[str, Any]) -> None:
    """Write numbers, dataclasses among them, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(numbers, indent=2, default=asdict) + "\n")


def save_each(timings: Iterable[Any], path: Path, key: str, *, has_gpu: bool = False) -> None:
    """Print every timing as it comes, and write all so far: a run that is cut short keeps what it has."""
    machine, found = describe_machine(has_gpu=has_gpu), []
    for timing in timings:
        found.append(timing)
        print(json.dumps(timing, default=asdict), flush=True)
        save_numbers(path, {"machine": machine, key: found})


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows that were kept in a file, one JSON object per line; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def add_row(path: Path, row: Mapping[str, Any]) -> None:
    """Keep one more row: a run that is cut short goes on after it."""
    with path.open("a") as stream:
        stream.write(json.dumps(row, default=float) + "\n")
