"""The pipeline, spelled once: a cell and an engine that makes its models -> one row of numbers."""

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ruler.core.arithmetic import norm_rows, similarity_of_unit_rows, unit_rows
from ruler.core.checks import as_matrix, measure_norms
from ruler.core.errors import WriteError
from ruler.core.types import FloatArray
from ruler.experiment.grid import Cell, Job
from ruler.metrics.paper import subtract_baseline

BASELINE_ROWS, BASELINE_SEED = 500, 42  # retain records that M2's baseline is drawn from, and the seed of the draw
GALLERY_ROWS = 2000  # retain records that M4 ranks against

Scores = dict[str, float | str]
"""Column -> number, or a word of a verdict; what does not apply is absent."""


@dataclass(frozen=True)
class Workplace:
    """Where models come from and where they run; the same for all jobs of a run.

    Args:
        models: Folder of trained models; None takes the cache.
        checkpoints: Folder of published checkpoints, for imported models.
        device: ``cpu`` or ``cuda``; the engine protocol runs on a CPU alone.
        language_model: Folder or hub name of the pretrained model for texts and prompts; None looks for one.
        table: File of the user's own that a comparison reads.
        reports: Folder in which a comparison saves the report of every audit; None saves none.
        code: Folder in which a comparison looks for the function that builds its models.
    """

    models: Path | None = None
    checkpoints: Path | None = None
    device: str = "cpu"
    language_model: str | None = None
    table: Path | None = None
    reports: Path | None = None
    code: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: its scores, or why there are none.

    Args:
        elapsed_s: Since the job's previous outcome: the first one of a job includes the models that its cells share.
    """

    cell: Cell
    scores: Scores | None
    elapsed_s: float
    error: str = ""
    details: str = ""


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """What was measured of one model on the records of one partition.

    Args:
        compared: (n_forget + n_baseline, p) representations divided by their norms, float64, forget records first;
            NumPy, or a tensor on the device where the model ran.
        n_forget: How many of these are forget records.
        alone: Scores that need no second model.
    """

    compared: Any
    n_forget: int
    alone: Scores


class Engine(Protocol):
    """Makes the models of one job, each when first asked for, and keeps what was measured of them."""

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        ...

    def measure_original(self, cell: Cell) -> MeasuredModel:
        """Measure the original model of the cell's seed."""
        ...

    def measure_oracle(self, cell: Cell, seed: int) -> MeasuredModel:
        """Measure the oracle of this seed for the cell's forget set."""
        ...

    def measure_unlearned(self, cell: Cell) -> MeasuredModel:
        """Measure the original after the cell's method."""
        ...

    def audit(self, model: MeasuredModel, *, oracle: MeasuredModel, original: MeasuredModel | None = None) -> Scores:
        """Scores of an audit; none by default, since the tabular studies measure and test as the paper does."""
        return {}


def run_job(job: Job, workplace: Workplace, *, n_threads: int | None = None) -> Iterator[Outcome]:
    """Do a job's cells one after the other; report a failed cell and continue.

    If the job's data or models cannot be loaded, every cell fails with that reason.

    Args:
        n_threads: Of torch; None leaves them alone. The engine protocol always takes one, so that sums are added up in
            the same order and no number depends on the number of workers. The ensemble trains as many models at a time.

    Raises:
        WriteError: A disk that takes no model: the next cell would fail in the same way.
    """
    started_s = time.perf_counter()
    engine, error, details = None, "", ""
    try:
        if n_threads is not None:
            import torch

            torch.set_num_threads(1 if job.cells[0].engine == "protocol" else n_threads)
        engine = _make_engine(job, workplace)
    except WriteError:
        raise
    except Exception as fault:
        error, details = f"{type(fault).__name__}: {fault}", traceback.format_exc()
    for cell in job.cells:
        scores = None
        if engine is not None:
            error = details = ""
            try:
                scores = measure_cell(cell, engine)
            except WriteError:
                raise
            except Exception as fault:
                error, details = f"{type(fault).__name__}: {fault}", traceback.format_exc()
        now_s = time.perf_counter()
        yield Outcome(cell, scores, now_s - started_s, error, details)
        started_s = now_s


def _make_engine(job: Job, workplace: Workplace) -> Engine:
    # Imported late: only the processes that run models pay for loading torch.
    if job.cells[0].engine == "diagnostic":
        from ruler.experiment.diagnostic.engine import DiagnosticEngine

        return DiagnosticEngine(job, workplace)
    if job.cells[0].engine == "compare":
        from ruler.experiment.compare.engine import CompareEngine

        return CompareEngine(job, workplace)
    from ruler.experiment.tabular.engines import EnsembleEngine, ProtocolEngine

    return (EnsembleEngine if job.cells[0].engine == "ensemble" else ProtocolEngine)(job, workplace)


def measure_cell(cell: Cell, engine: Engine) -> Scores:
    """All scores that apply to a cell.

    An oracle alone has no distance from itself, and no audit: with no other oracle to compare it with, it could never
    be called erased. Of a pair of oracles the first is audited as a perfectly unlearned model. The original has not
    moved, so it has no M3.
    """
    scores: Scores = {"n_forget": engine.count_forget(cell)}
    oracle, original = engine.measure_oracle(cell, cell.seed), None
    if cell.other_seed is not None:
        model, oracle = oracle, engine.measure_oracle(cell, cell.other_seed)
    elif cell.method == "oracle":
        return scores | oracle.alone
    else:
        original = engine.measure_original(cell)
        model = original if cell.method == "original" else engine.measure_unlearned(cell)
        scores |= model.alone
    similarity = _compare_models(model, oracle)
    forget, baseline = similarity[: model.n_forget], similarity[model.n_forget :]
    scores |= {
        "m1": float(forget.mean()),
        "m2": float(subtract_baseline(forget, baseline).mean()),
        "m2_mean_baseline": float((forget - baseline.mean()).mean()),
    }
    if original is not None and cell.method != "original":
        before = _compare_models(original, oracle)[: original.n_forget]
        scores["m3"] = float((forget - before).mean())
    return scores | engine.audit(model, oracle=oracle, original=original)


@lru_cache(maxsize=4)  # the cells of a seed share the original's
def _compare_models(model: MeasuredModel, oracle: MeasuredModel) -> FloatArray:
    value = similarity_of_unit_rows(model.compared, oracle.compared)
    return value if isinstance(value, np.ndarray) else np.asarray(value.cpu())


def divide_by_norms(rows: Any) -> Any:
    """Representations (n, p), NumPy or a tensor, as rows of norm 1 in float64; an all-zero row stays zero.

    Raises:
        InputError: NaN or inf, or norms that over- or underflow.

    Example:
        >>> divide_by_norms(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    if isinstance(rows, np.ndarray):
        return unit_rows(rows.astype(np.float64), measure_norms(rows, "representations"))
    wide = rows.double()
    norms = norm_rows(wide)
    host = norms.cpu().numpy()
    if not ((host < np.inf) & (host**2 >= np.finfo(np.float64).tiny)).all():
        measure_norms(as_matrix(rows, "representations"), "representations")  # raises, unless these rows are all zero
    return unit_rows(wide, norms)
