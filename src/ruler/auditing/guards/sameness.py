"""Models that are one and the same, at least in the layer that was read."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence, LayerRows, Side
from ruler.auditing.findings import GuardFinding, Severity
from ruler.core.arithmetic import TIE_SLACK, iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.metrics.paper import compare_rows

_COMPARED: tuple[tuple[str, str, str, Severity, str, str], ...] = (
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
        "A model that is compared with itself proves nothing.",
        "Give another model, retrained without the forget records, as the oracle.",
    ),
)
_SAME_SCALE = 1e-6  # of logarithms of norms, in which float32 rows may differ
_SIDES: tuple[Side, ...] = ("forget", "retain")


def check_sameness(evidence: Evidence) -> Iterator[GuardFinding]:
    """Two models that embed every forget and retain record in the same place."""
    models = {"unlearned": evidence.main}
    if evidence.original is not None:
        models["original"] = evidence.original[evidence.main_layer]
    for number, oracle in enumerate(evidence.main_oracles, 1):
        models["oracle" if number == 1 else f"oracle {number}"] = oracle
    for first, second, name, severity, meaning, cure in _COMPARED:
        if first in models and second in models and _are_same(models[first], models[second]):
            message = f"{first} and {second} give the same embeddings of all forget and retain records. {meaning}"
            yield GuardFinding(name, severity, message, cure, blocks=name == "identical_to_oracle")
    names = [name for name in models if name.startswith("oracle")]
    for first, second in combinations(names, 2):
        if _are_same(models[first], models[second]):
            yield GuardFinding(
                "repeated_oracle",
                "fail",
                f"{first} and {second} are the same model, so that they do not tell what retraining alone does.",
                "Retrain every oracle from a seed of its own.",
            )
            return


def _are_same(one: LayerRows, other: LayerRows) -> bool:
    """Whether directions, norms (but for one scale) and losses, where known, are the same in both models."""
    losses = one.losses, other.losses
    if losses[0] is not None and losses[1] is not None:
        is_other = [not np.allclose(losses[0][side], losses[1][side]) for side in _SIDES]
        if any(is_other):
            return False
    if not all(_agree(one.rows[side], other.rows[side]) for side in _SIDES):
        return False
    norms, others = (np.concatenate([model.log_norms[side] for side in _SIDES]) for model in (one, other))
    steps = (norms - others)[norms > math.log(np.finfo(np.float64).tiny)]  # all-zero rows have no scale
    return len(steps) == 0 or float(np.ptp(steps)) < _SAME_SCALE


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
