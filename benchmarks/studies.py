"""`ruler reproduce` from its first import to its last table, study by study."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import save_each
from ruler.core.errors import InputError, RulerError
from ruler.core.files import cache_folder
from ruler.core.registry import Registry
from ruler.data import load_tabular
from ruler.experiment.store import load_results
from ruler.experiment.studies import STUDIES

TABULAR = Registry("study", {name: name for name, study in STUDIES.items() if study.engine != "diagnostic"})
"""The studies on the paper's ten tables."""


@dataclass(frozen=True)
class StudyTiming:
    """One study, from data to tables, in processes of its own."""

    study: str
    device: str
    n_cells: int
    elapsed_s: float


def time_studies(names: Sequence[str], device: str, out: Path, options: Sequence[str] = ()) -> Iterator[StudyTiming]:
    """Run each study into a new folder of its own under ``out``, without models that earlier runs left in the cache.

    Args:
        names: Keys of `TABULAR`.
        device: ``cpu`` or ``cuda``; mini batches stay on the CPU.
        out: Folder that keeps the results.
        options: Further words for `ruler reproduce`.

    Raises:
        InputError: A study that is not one on the ten tables, or that has results in ``out`` already.
        RulerError: A dataset is not there, or a study failed.
    """
    for name in names:
        folder = out / TABULAR[name]
        if folder.exists():
            raise InputError(f"out must not hold {name} yet, or nothing is left to time; got {folder}. Name another.")
        for dataset in STUDIES[name].datasets:
            load_tabular(dataset)  # fetched before the clock starts
        words = (sys.executable, "-m", "ruler", "reproduce", name, "--device", device, "--out", str(folder), *options)
        with fresh_cache() as cache:
            started_s = time.perf_counter()
            done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "RULER_CACHE": str(cache)})
            elapsed_s = time.perf_counter() - started_s
        if done.returncode:
            raise RulerError(f"study {name} must end well to be timed; it said: {done.stderr.strip()[-500:]}")
        rows = load_results(folder)
        yield StudyTiming(name, ", ".join(sorted(rows["device"].unique())), len(rows), elapsed_s)


@contextmanager
def fresh_cache() -> Iterator[Path]:
    """A cache with the data of the usual one, and no model."""
    with TemporaryDirectory() as folder:
        for entry in cache_folder().glob("*"):
            if entry.name != "models":
                (Path(folder) / entry.name).symlink_to(entry.resolve())
        yield Path(folder)


def main() -> None:
    """`python -m benchmarks studies --json FILE`: how long the paper's studies take here."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file, study by study")
    parser.add_argument("--studies", nargs="+", choices=tuple(TABULAR), default=tuple(TABULAR), help="by default all")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, help="keep the studies' results in this folder")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        timings = time_studies(chosen.studies, chosen.device, chosen.out or Path(folder))
        save_each(timings, chosen.json, "studies", has_gpu=chosen.device == "cuda")
