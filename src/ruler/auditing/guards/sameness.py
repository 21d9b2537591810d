"""Models that are one and the same, at least in the layer that was read."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence, ModelName, Side
from ruler.auditing.findings import GuardFinding, Severity
from ruler.core.arithmetic import TIE_SLACK, iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.metrics.oracle_similarity import compare_rows

_COMPARED: tuple[tuple[ModelName, ModelName, str, Severity, str, str], ...] = (
    (
        "oracle",
        "original",
        "oracle_is_original",
        "fail",
        "An oracle never saw the forget records, so the two cannot agree on everything.",
        "Check that the files were not swapped, and that the layer which was read is one that was trained.",
    ),
    (
        "unlearned",
        "original",
        "identical_to_original",
        "warn",  # a sound audit, of a model that nobody has unlearned: its verdict says what there is to find
        "Nothing has been unlearned in this layer.",
        "Check that the unlearned model was saved and is the one that was given.",
    ),
    (
        "unlearned",
        "oracle",
        "identical_to_oracle",
        "warn",  # right where the unlearned model is the retrained one; else one model was given twice
        "M1 to M3 then compare a model with itself and prove nothing about an unlearning method.",
        "If the model was unlearned by retraining, all is well; otherwise give the model that was unlearned.",
    ),
)
_SIDES: tuple[Side, ...] = ("forget", "retain")


def check_sameness(evidence: Evidence) -> Iterator[GuardFinding]:
    """Two models that embed every forget and retain record in the same place."""
    for first, second, name, severity, meaning, cure in _COMPARED:
        if _are_same(evidence, first, second):
            message = f"{first} and {second} give the same embeddings of all forget and retain records. {meaning}"
            yield GuardFinding(name, severity, message, cure)


def _are_same(evidence: Evidence, first: ModelName, second: ModelName) -> bool:
    models = evidence.embeddings
    if first not in models or second not in models:
        return False
    return all(_agree(models[first][side], models[second][side]) for side in _SIDES)


def _agree(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> bool:
    if first.shape != second.shape:
        return False
    is_other = compare_rows(first, second, ("first", "second")) < 1 - TIE_SLACK
    others = np.flatnonzero(is_other)
    for start, stop in iterate_blocks(len(others), block_rows_for(first.shape[1])):
        # All-zero rows are similar to nothing, themselves included.
        if first[others[start:stop]].any() or second[others[start:stop]].any():
            return False
    return True
