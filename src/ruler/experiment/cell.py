"""The pipeline spelled once: a cell, and models from either engine -> one row of numbers."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ruler.experiment.grid import Cell, Job
from ruler.experiment.scores import Answers, Scores, compare, compare_shift

T = TypeVar("T")


@dataclass(frozen=True)
class Workplace:
    """Where models come from and where they run; the same for all jobs of a run.

    Args:
        models: Folder of trained models; None takes the cache.
        checkpoints: Folder of published checkpoints, for imported models.
        device: ``cpu`` or ``cuda``; the protocol runs on a CPU alone.
        language_model: Folder of the clinical study's pretrained model; None looks for one.
    """

    models: Path | None = None
    checkpoints: Path | None = None
    device: str = "cpu"
    language_model: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: its scores, or why there are none.

    Args:
        elapsed_s: Since the job's previous outcome: the first one of a job bears its shared models.
    """

    cell: Cell
    scores: Scores | None
    elapsed_s: float
    error: str = ""
    details: str = ""


class Bench(Protocol):
    """The models of one job, each made when first asked for and then kept."""

    def ask_original(self, cell: Cell) -> Answers:
        """The original model of the cell's seed."""
        ...

    def ask_oracle(self, cell: Cell, seed: int) -> Answers:
        """The oracle of this seed for the cell's forget set."""
        ...

    def ask_unlearned(self, cell: Cell) -> Answers:
        """The original after the cell's method."""
        ...

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        ...

    def audit_model(self, model: Answers, *, oracle: Answers, original: Answers | None = None) -> Scores:
        """What an audit says of a model; nothing where a study has none."""
        ...


def run_job(job: Job, workplace: Workplace) -> Iterator[Outcome]:
    """Do a job's cells one after the other; a cell that fails is told of, and the next one goes on.

    Where already the job's data or models cannot be loaded, every cell fails with that reason.
    """
    started_s = time.perf_counter()
    bench, fault = _attempt(_make_bench, job, workplace)
    for cell in job.cells:
        scores = None
        if bench is not None:
            scores, fault = _attempt(measure, cell, bench)
        now_s = time.perf_counter()
        yield Outcome(cell, scores, now_s - started_s, *fault)
        started_s = now_s


def _attempt(work: Callable[..., T], *given: Any) -> tuple[T | None, tuple[str, str]]:
    """What the work returns, or its error and traceback: no fault of a cell may stop the others or its worker."""
    try:
        return work(*given), ("", "")
    except Exception as fault:
        return None, (f"{type(fault).__name__}: {fault}", traceback.format_exc())


def _make_bench(job: Job, workplace: Workplace) -> Bench:
    if job.cells[0].engine == "ensemble":
        from ruler.experiment.ensemble import EnsembleBench

        return EnsembleBench(job, workplace)
    if job.cells[0].engine == "diagnostic":
        from ruler.experiment.diagnostic.bench import DiagnosticBench

        return DiagnosticBench(job, workplace)
    from ruler.experiment.protocol import ProtocolBench

    return ProtocolBench(job.cells[0].dataset, workplace)


def measure(cell: Cell, bench: Bench) -> Scores:
    """All numbers of a cell that apply to it.

    An oracle alone has no distance from itself, and no audit: with no other oracle to compare it with, it could never
    be called erased. Of a pair of oracles the first is audited as a perfectly unlearned model. The original has moved
    by nothing, so it has no M3.
    """
    n_forget: Scores = {"n_forget": bench.count_forget(cell)}
    oracle = bench.ask_oracle(cell, cell.seed)
    if cell.other_seed is not None:
        other = bench.ask_oracle(cell, cell.other_seed)
        return n_forget | compare(oracle, other) | bench.audit_model(oracle, oracle=other)
    if cell.method == "oracle":
        return n_forget | oracle.alone
    original = bench.ask_original(cell)
    unlearned = original if cell.method == "original" else bench.ask_unlearned(cell)
    scores = n_forget | unlearned.alone | compare(unlearned, oracle)
    scores |= bench.audit_model(unlearned, oracle=oracle, original=original)
    return scores if cell.method == "original" else scores | compare_shift(unlearned, original, oracle)
