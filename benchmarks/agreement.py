"""Numbers of the same cells in float32 and in bfloat16 -> whether they lead to the same conclusion.

The numbers are those of cells that have just been run, or rows of studies that were run in both precisions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from ruler.core.errors import FileFormatError, InputError
from ruler.experiment.cell import Outcome
from ruler.experiment.grid import Cell
from ruler.experiment.settings import PRECISIONS
from ruler.experiment.store import load_results
from ruler.paper.findings import FAR, NEAR
from ruler.stats.intervals import difference_interval

_NAMES = ["study", "dataset", "architecture", "forget_choice", "forget_fraction", "size", "method"]
_CONDITION = [*_NAMES, "learning_rate", "batch_size", "forget_seed", "teacher_seed", "model"]
_SCORES = ["m4", "m2", "test_accuracy", "verdict"]
_PROVENANCE = ["machine", "torch_version", "ruler_version", "commit"]
_FEWEST_SEEDS = 2

Conclusion = Literal["same", "same, shifted", "not told apart", "changed", "not measured"]
Outcomes = Mapping[str, Sequence[Outcome]]
"""Precision -> what became of a cell, an outcome a seed."""


@dataclass(frozen=True)
class Shift:
    """One number of a model in both precisions.

    Args:
        float32, bfloat16: A value per seed; NaN where the cell failed.
        means: Over seeds, float32 first.
        difference: Mean in bfloat16 minus mean in float32.
        low, high: Welch's 95% interval of the difference.
        seed_sd: Standard deviation over seeds in float32: what another seed does.
    """

    float32: tuple[float, ...]
    bfloat16: tuple[float, ...]
    means: tuple[float, float]
    difference: float
    low: float
    high: float
    seed_sd: float

    @property
    def covers_zero(self) -> bool:
        """Whether precision moves the number by no more than seeds can explain."""
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class PrecisionRow:
    """One method on one model in both precisions.

    Args:
        m2: None for an oracle, which has no distance from itself.
        readings: What M4 says of the model, float32 first, see `read_rank`.
        verdicts: Of the audit over seeds, float32 first, such as ``erased 4, residual 1``; empty where none was asked.
        conclusion: See `conclude`.
        elapsed_s: Quickest of the seeds, float32 first; of the original, with the training of its oracle. None where
            the precisions were not timed in turns.
        speedup: How many times faster bfloat16 was.
        errors: Of cells that failed.
    """

    dataset: str
    architecture: str
    method: str
    forget_choice: str
    forget_fraction: float
    size: str
    n_seeds: int
    m4: Shift
    m2: Shift | None
    test_accuracy: Shift
    readings: tuple[str, str]
    verdicts: tuple[str, str]
    conclusion: Conclusion
    elapsed_s: tuple[float, float] | None
    speedup: float | None
    errors: tuple[str, ...] = ()


def summarise(outcomes: Outcomes, *, is_timed: bool = True) -> PrecisionRow:
    """One row from the outcomes of cells that differ in seed and precision alone.

    Args:
        outcomes: Precision -> an outcome a seed, in the same order of seeds.
        is_timed: Whether the precisions ran in turns, so that their times can be compared.
    """
    cell = outcomes["float32"][0].cell
    m4, accuracy = (_compare(outcomes, name) for name in ("m4", "test_accuracy"))
    m2 = None if cell.method == "oracle" else _compare(outcomes, "m2")
    slow_s, quick_s = (min(outcome.elapsed_s for outcome in outcomes[precision]) for precision in PRECISIONS)
    single, half = (_count_verdicts(outcomes[precision]) for precision in PRECISIONS)
    return PrecisionRow(
        dataset=cell.dataset,
        architecture=cell.architecture,
        method=cell.method,
        forget_choice=cell.forget_choice,
        forget_fraction=cell.forget_fraction,
        size=cell.size,
        n_seeds=len(outcomes["float32"]),
        m4=m4,
        m2=m2,
        test_accuracy=accuracy,
        readings=(read_rank(m4.means[0]), read_rank(m4.means[1])),
        verdicts=(single, half),
        conclusion=conclude(m4, m2),
        elapsed_s=(slow_s, quick_s) if is_timed else None,
        speedup=slow_s / quick_s if is_timed else None,
        errors=tuple(f"{name}: {outcome.error}" for name in PRECISIONS for outcome in outcomes[name] if outcome.error),
    )


def _compare(outcomes: Outcomes, name: str) -> Shift:
    values = [tuple(float((o.scores or {}).get(name, "nan")) for o in outcomes[precision]) for precision in PRECISIONS]
    single, half = values
    found = difference_interval(half, single)
    means = (float(np.mean(single)), float(np.mean(half)))
    return Shift(single, half, means, found.value, found.low, found.high, float(np.std(single, ddof=1)))


def _count_verdicts(outcomes: Sequence[Outcome]) -> str:
    """Most frequent first, ties by name."""
    given = Counter(str(o.scores["verdict"]) for o in outcomes if o.scores and o.scores.get("verdict"))
    return ", ".join(f"{name} {n}" for name, n in sorted(given.items(), key=lambda pair: (-pair[1], pair[0])))


def read_rank(m4: float) -> str:
    """What a mean M4 says, with the bounds of the findings: near 0.50 is within 0.03, far is beyond 0.10.

    Example:
        >>> [read_rank(value) for value in (0.22, 0.46, 0.51, 0.57, 0.74)]
        ['far below', 'below', 'near', 'above', 'far above']
    """
    distance = abs(m4 - 0.5)
    if not distance >= NEAR:
        return "near" if distance < NEAR else "unknown"
    side = "above" if m4 > 0.5 else "below"
    return f"far {side}" if distance > FAR else side


def conclude(m4: Shift, m2: Shift | None) -> Conclusion:
    """Does the precision change what is concluded of a model by its metrics? M2 may not apply.

    Returns:
        ``same``: M4 reads the same in both precisions, and the Welch intervals of the differences in M4 and in M2 cover
        0. ``same, shifted``: it reads the same, but one of the intervals leaves 0 out. ``not told apart``: it reads
        differently, while the interval of M4 covers 0, so that other seeds could do it too. ``changed``: it reads
        differently and the interval leaves 0 out. ``not measured``: a cell failed.
    """
    shifts = [m4] if m2 is None else [m4, m2]
    if np.isnan([shift.means for shift in shifts]).any():
        return "not measured"
    is_same = read_rank(m4.means[0]) == read_rank(m4.means[1])
    if is_same:
        return "same" if all(shift.covers_zero for shift in shifts) else "same, shifted"
    return "not told apart" if m4.covers_zero else "changed"


def read_pairs(paths: Sequence[Path]) -> pd.DataFrame:
    """Cells that were run in both precisions, in at least two seeds of their condition.

    Args:
        paths: Results files of runs, or .parquet files of rows; of a cell that stands in several, the last counts.

    Raises:
        InputError: A file is not there, or there is no such cell.
        FileFormatError: Not a results file.
    """
    rows = pd.concat([_read(path) for path in paths], ignore_index=True)
    rows = rows.drop_duplicates([*_CONDITION, "precision", "seed"], keep="last")
    rows = rows[rows["precision"].isin(PRECISIONS)]
    n_precisions = rows.groupby([*_CONDITION, "seed"], dropna=False)["precision"].transform("nunique")
    rows = rows[n_precisions == len(PRECISIONS)]
    rows = rows[rows.groupby(_CONDITION, dropna=False)["seed"].transform("nunique") >= _FEWEST_SEEDS]
    if rows.empty:
        raise InputError(
            "results must hold a study in float32 and in bfloat16, with two seeds in both; got none. "
            "Run `ruler reproduce STUDY --precision` with the other one into a folder of its own, and name both."
        )
    return rows


def _read(path: Path) -> pd.DataFrame:
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return load_results(path)
    wanted = [*_CONDITION, "seed", "precision", "elapsed_s", *_SCORES, *_PROVENANCE]
    try:
        return pd.read_parquet(path, columns=wanted)
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"results must be rows that `python -m ruler.paper --rows` wrote; got {path}: {error}."
        ) from error


def compare_pairs(rows: pd.DataFrame) -> list[PrecisionRow]:
    """Does bfloat16 change what recorded studies conclude? One row per condition; no times: runs were not in turns."""
    conditions = rows.sort_values("seed").groupby(_CONDITION, dropna=False)
    return [summarise(_recall(condition), is_timed=False) for _, condition in conditions]


def _recall(condition: pd.DataFrame) -> dict[str, list[Outcome]]:
    """Rows of one condition -> precision -> outcomes, as if they had just been measured."""
    outcomes: dict[str, list[Outcome]] = {}
    for row in condition.to_dict("records"):
        cell = Cell(**{name: row[name] for name in (*_NAMES, "seed", "precision")})
        scores: dict[str, Any] = {name: row[name] for name in _SCORES if pd.notna(row[name])}
        outcomes.setdefault(row["precision"], []).append(Outcome(cell, scores, row["elapsed_s"]))
    return outcomes


def describe_pairs(rows: pd.DataFrame) -> dict[str, str]:
    """Where the rows of each precision were made."""
    places = rows.groupby("precision")[_PROVENANCE].agg(_join)
    return {
        f"{name} on": f"{place['machine']} (torch {place['torch_version']}, ruler {place['ruler_version']}, "
        f"commit {place['commit']})"
        for name, place in places.iterrows()
    }


def _join(values: "pd.Series[str]") -> str:
    return "; ".join(sorted({str(value) for value in values}))
