"""`ruler reproduce` from its first import to its last table, study by study."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruler.bench.measure import describe_machine
from ruler.core.errors import RulerError
from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.data import load_tabular
from ruler.experiment.store import load_results
from ruler.experiment.studies import STUDIES

TABULAR = tuple(name for name, study in STUDIES.items() if study.engine != "diagnostic")
"""The studies on the paper's ten tables."""


@dataclass(frozen=True)
class StudyTiming:
    """One study, from data to tables, in processes of its own."""

    study: str
    device: str
    n_cells: int
    elapsed_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def time_studies(names: Sequence[str], device: str, out: Path, options: Sequence[str] = ()) -> Iterator[StudyTiming]:
    """Run each study into a folder of its own under ``out``; one whose datasets are not all there is left out.

    Args:
        names: Keys of `STUDIES`.
        device: ``cpu`` or ``cuda``.
        out: Folder that keeps the results.
        options: Further words for `ruler reproduce`.

    Raises:
        RulerError: A study failed.
    """
    for name in names:
        try:
            for dataset in STUDIES[name].datasets:
                load_tabular(dataset)
        except RulerError:
            continue
        words = (sys.executable, "-m", "ruler", "reproduce", name, "--device", device, "--out", str(out / name))
        started_s = time.perf_counter()
        done = subprocess.run((*words, *options), capture_output=True, text=True)
        elapsed_s = time.perf_counter() - started_s
        if done.returncode:
            raise RulerError(f"study {name} must end well to be timed; it said: {done.stderr.strip()[-500:]}")
        yield StudyTiming(name, device, len(load_results(out / name)), elapsed_s)


def main() -> None:
    """`python -m ruler.bench.studies --json FILE`: how long the paper's studies take here."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("studies", nargs="*", default=TABULAR, help="by default all on the ten tables")
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file, study by study")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--out", type=Path, help="keep the studies' results in this folder")
    chosen, options = parser.parse_known_args()
    machine = describe_machine()
    if chosen.device == "cuda":
        from ruler.bench.cuda import describe_device

        machine |= describe_device()
    timings: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder:
        for timing in time_studies(chosen.studies, chosen.device, chosen.out or Path(folder), options):
            timings.append(timing.as_dict())
            print(json.dumps(timings[-1]), flush=True)
            write_atomically(chosen.json, json.dumps({"machine": machine, "studies": timings}, indent=2) + "\n")


def has_cuda() -> bool:
    """Whether torch finds a device here."""
    found: bool = load_optional("torch", "timing studies").cuda.is_available()
    return found


if __name__ == "__main__":
    main()
