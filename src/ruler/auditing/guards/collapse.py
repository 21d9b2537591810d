"""Representations that hold nothing apart: all rows in one direction, in one point, or zero."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding, Severity
from ruler.core.arithmetic import norm_rows, unit_rows

_N_SAMPLED = 1000
_LEAST_RANK = 1.0002  # cosines of 0.9999 between all records
_SHARES: tuple[tuple[float, Severity], ...] = ((0.9, "fail"), (0.5, "warn"))
_CURE = (
    "Read another layer, or look at the model: training or unlearning may have broken it. A representation like this "
    "cannot tell records apart."
)


def check_collapse(evidence: Evidence) -> Iterator[GuardFinding]:
    """Models whose retain records cannot be told apart, so that similarities say nothing."""
    for model, sides in evidence.embeddings.items():
        # with an oracle beside it, a collapsed model is a finding, "damaged", and no fault of the evidence
        gravest: Severity = "warn" if model == "unlearned" and evidence.has_oracle else "fail"
        rows = _sample(sides["retain"])
        norms = norm_rows(rows)
        unit = unit_rows(rows, norms)
        rank = effective_rank(unit)
        if rank < _LEAST_RANK:
            is_one_way = float(np.square(unit[norms > 0].mean(axis=0)).sum()) > 1 / _LEAST_RANK
            grade: Severity = gravest if is_one_way else "warn"  # two classes may well lie opposite
            yield GuardFinding("collapsed", grade, _say_rank(model, rank, is_one_way), _CURE)
            continue
        for share, what in (((norms == 0).mean(), "all-zero rows"), (_largest_heap(unit), "one and the same row")):
            severity = next((severity for bound, severity in _SHARES if share >= bound), None)
            if severity is not None:
                severity = gravest if severity == "fail" else severity
                message = f"{share:.0%} of the retain records are {what} in the {model} model."
                yield GuardFinding("collapsed", severity, message, _CURE)
                break


def effective_rank(unit: npt.NDArray[np.float64]) -> float:
    """Over how many directions are rows of norm 1 spread? One over the mean squared cosine, from 1 up.

    Example:
        >>> effective_rank(np.eye(4)), effective_rank(np.ones((4, 1)))
        (4.0, 1.0)
    """
    if not unit.any():
        return float(min(unit.shape))  # zero rows have no direction; they are counted for themselves
    moments = unit.T @ unit if unit.shape[1] < len(unit) else unit @ unit.T
    n_nonzero = float(np.trace(moments))
    return n_nonzero**2 / float((moments**2).sum())


def _sample(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), _N_SAMPLED)).astype(np.int64)
    return np.asarray(rows[chosen], dtype=np.float64)


def _largest_heap(unit: npt.NDArray[np.float64]) -> float:
    """Share of the most frequent direction, all-zero rows left out."""
    nonzero = np.round(unit[unit.any(axis=1)], 9)
    if not len(nonzero):
        return 0.0
    return float(np.unique(nonzero, axis=0, return_counts=True)[1].max() / len(unit))


def _say_rank(model: str, rank: float, is_one_way: bool) -> str:
    where = "point in one direction" if is_one_way else "lie on one line, in two opposite directions,"
    return f"All retain records {where} in the {model} model: their effective rank is {rank:.4f}."
