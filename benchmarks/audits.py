"""An audit from files to report, stage by stage, against the number of records."""

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.measure import describe_machine, read_peak_mb, run_apart, save_numbers
from benchmarks.shards import Rows
from ruler.auditing.audit import audit_evidence
from ruler.auditing.gather import gather_evidence
from ruler.auditing.settings import AuditSettings
from ruler.core.cluster import ClusterSettings
from ruler.core.optional import load_optional
from ruler.core.types import Neighbors
from ruler.neighbors import find_neighbors
from ruler.neighbors.ray import search_on_cluster
from ruler.neighbors.search import Searcher

MODELS = ("unlearned", "oracle", "original")
STAGES = ("read", "search", "statistics", "save")
N_REFERENCE = 20_000
_NOISE = 0.02  # of a row's length: models from one seed
_BLOCK_ROWS = 1 << 20  # written at once


@dataclass(frozen=True)
class Case:
    """An audit of an unlearned, an oracle and an original model.

    Args:
        n_rows: Records in all.
        width: Of an embedding.
        n_side: Forget records, and as many held-out ones.
        n_reference: Retain records that M4 ranks among; None for all.
    """

    n_rows: int
    width: int
    n_side: int
    n_reference: int | None = None


CASES = (
    Case(10_000, 128, 1000),
    Case(100_000, 128, 5000),
    Case(100_000, 768, 5000),
    Case(1_000_000, 128, 10_000, N_REFERENCE),
    Case(10_000_000, 128, 10_000, N_REFERENCE),
)


@dataclass(frozen=True)
class AuditTiming:
    """What an audit took.

    Args:
        case: What was audited.
        stages_s: Processor seconds of all threads, by stage; with a GPU or a cluster, seconds on the clock.
        elapsed_s: Seconds on the clock.
        peak_mb: Most memory that the process held, mapped pages of the files among it.
        verdict: Of the report.
        device: Where the search ran: "cpu", "cuda" or "ray".
    """

    case: Case
    stages_s: Mapping[str, float]
    elapsed_s: float
    peak_mb: float
    verdict: str
    device: str = "cpu"


def time_audit(case: Case, device: str = "cpu") -> AuditTiming:
    """Write the models' embeddings to the temporary folder, 12 bytes per number, and audit them in a new process."""
    with TemporaryDirectory() as folder:
        run_apart(_write, case, folder)
        return run_apart(_audit, case, folder, device)


def _write(case: Case, folder: str) -> None:
    rows, random = Rows(case.width), np.random.default_rng(1)
    sizes = {"forget": case.n_side, "held_out": case.n_side, "retain": case.n_rows - 2 * case.n_side}
    for model in MODELS:
        (Path(folder) / model).mkdir()
    for side, n_rows in sizes.items():
        files = [
            np.lib.format.open_memmap(
                Path(folder) / model / f"{side}.npy", mode="w+", dtype=np.float32, shape=(n_rows, case.width)
            )
            for model in MODELS
        ]
        for start in range(0, n_rows, _BLOCK_ROWS):
            clean = rows.draw(min(_BLOCK_ROWS, n_rows - start))
            for file in files:
                noise = random.standard_normal(clean.shape, dtype=np.float32)
                file[start : start + len(clean)] = clean + np.float32(_NOISE) * noise


@contextmanager
def _searching(device: str) -> Iterator[Searcher]:
    """A search on the processor, on a GPU, or by the workers of a Ray cluster of this machine."""
    if device == "ray":
        with search_on_cluster(ClusterSettings(), "cpu") as search:
            yield search
    else:
        yield partial(find_neighbors, device=None if device == "cpu" else device)


def _audit(case: Case, folder: str, device: str) -> AuditTiming:
    spent = dict.fromkeys(STAGES, 0.0)
    now_s = time.process_time if device == "cpu" else time.perf_counter

    models: dict[str, Any] = {name: str(Path(folder) / name) for name in MODELS}
    with _searching(device) as find:

        def search(queries: Any, base: Any, *, k: int = 1, exclude_self: bool = False) -> Neighbors:
            before_s = now_s()
            found = find(queries, base, k=k, exclude_self=exclude_self)
            spent["search"] += now_s() - before_s
            return found

        started_s, marks_s = time.perf_counter(), [now_s()]
        evidence = gather_evidence(**models, settings=AuditSettings(n_reference=case.n_reference), search=search)
        marks_s.append(now_s())
        report = audit_evidence(evidence)
        marks_s.append(now_s())
        report.save(Path(folder) / "report")
        marks_s.append(now_s())
    spent["read"], audited_s, spent["save"] = np.diff(marks_s).tolist()
    spent["statistics"] = audited_s - spent["search"]
    return AuditTiming(case, spent, time.perf_counter() - started_s, read_peak_mb(), report.verdict, device)


def draw_stages(timings: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Time of every stage against the number of records, one line per stage, narrow rows of one device only."""
    load_optional("matplotlib", "drawing figures").use("Agg")
    pyplot = load_optional("matplotlib.pyplot", "drawing figures")
    shown = [one for one in timings if one["case"]["width"] == CASES[0].width and one["device"] != "ray"]
    shown.sort(key=lambda one: one["case"]["n_rows"])
    kind, place = ("processor seconds", "two cores") if shown[0]["device"] == "cpu" else ("seconds", "with a GPU")
    figure, axes = pyplot.subplots(figsize=(5.5, 3.4), layout="constrained")
    for stage in STAGES:
        axes.plot(
            [one["case"]["n_rows"] for one in shown], [one["stages_s"][stage] for one in shown], "o-", label=stage
        )
    axes.set(xscale="log", yscale="log", xlabel="records", ylabel=kind, title=f"An audit from files to report, {place}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    """`python -m benchmarks audits --json FILE`: audits of 10,000 to ten million records, stage by stage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks audits", description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file; adds to those in it")
    parser.add_argument("--cases", type=int, nargs="*", default=range(len(CASES)), help="numbers of the cases, from 0")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda", "ray"), help="where to search")
    parser.add_argument("--figure", type=Path, help="also draw time against records")
    chosen = parser.parse_args()
    known = json.loads(chosen.json.read_text(encoding="utf-8")) if chosen.json.exists() else {}
    timings = {(one["device"], json.dumps(one["case"])): one for one in known.get("audits", ())}
    for number in chosen.cases:
        found = asdict(time_audit(CASES[number], chosen.device))
        timings[chosen.device, json.dumps(found["case"])] = found
        print(json.dumps(found), flush=True)
        ordered = sorted(timings.values(), key=lambda one: (one["device"], one["case"]["n_rows"], one["case"]["width"]))
        save_numbers(chosen.json, known | {"machine": describe_machine(), "audits": ordered})
    if chosen.figure:
        draw_stages(timings.values(), chosen.figure)
