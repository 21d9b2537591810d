"""Studies that were run in both precisions -> whether they lead to the same conclusions, condition by condition."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.agreement import PrecisionRow, summarise
from ruler.core.errors import FileFormatError, InputError
from ruler.experiment.cell import Outcome
from ruler.experiment.grid import Cell
from ruler.experiment.settings import PRECISIONS
from ruler.experiment.store import load_results

_NAMES = ["study", "dataset", "architecture", "forget_choice", "forget_fraction", "size", "method"]
_CONDITION = [*_NAMES, "learning_rate", "batch_size", "forget_seed", "teacher_seed", "model"]
_SCORES = ["m4", "m2", "test_accuracy", "verdict"]
_PROVENANCE = ["machine", "torch_version", "ruler_version", "commit"]
_FEWEST_SEEDS = 2


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
