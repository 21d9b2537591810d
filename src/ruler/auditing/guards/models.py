"""Models that cannot be compared: the same twice, unpaired, collapsed, unstable, or without what they were to keep."""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence, LayerRows, Side
from ruler.auditing.findings import GuardFinding, Severity
from ruler.core.arithmetic import TIE_SLACK, iterate_blocks, norm_rows, unit_rows
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
_N_SAMPLED = 1000
_LEAST_RANK = 1.0002  # cosines of 0.9999 between all records
_SHARES: tuple[tuple[float, Severity], ...] = ((0.9, "fail"), (0.5, "warn"))
_CURE = (
    "Read another layer, or look at the model: training or unlearning may have broken it. A representation like this "
    "cannot tell records apart."
)
_TOLERATED_EPS = 64  # sums on an accelerator may change their order from run to run
_LEAST_LOSS = 0.02
_Z = 3.0


def check_sameness(evidence: Evidence) -> Iterator[GuardFinding]:
    """Two models that embed every forget and retain record in the same place."""
    models = evidence.models
    for first, second, name, severity, meaning, cure in _COMPARED:
        if first in models and second in models and _are_same(models[first], models[second]):
            message = f"{first} and {second} give the same embeddings of all forget and retain records. {meaning}"
            yield GuardFinding(name, severity, message, cure, blocks=name == "identical_to_oracle")
    for first, second in combinations([name for name in models if name.startswith("oracle")], 2):
        if _are_same(models[first], models[second]):
            yield GuardFinding(
                "repeated_oracle",
                "fail",
                f"{first} and {second} are the same model, so they do not show what retraining alone changes.",
                "Retrain every oracle from a seed of its own.",
            )
            return


def _are_same(one: LayerRows, other: LayerRows) -> bool:
    """Whether directions, norms (but for one scale) and losses, where known, are the same in both models."""
    if one.losses is not None and other.losses is not None:
        losses = one.losses, other.losses
        if not all(np.allclose(losses[0][side], losses[1][side]) for side in _SIDES):
            return False
    for side in _SIDES:
        first, second = one.rows[side], other.rows[side]
        if first.shape != second.shape:
            return False
        others = np.flatnonzero(compare_rows(first, second, ("first", "second")) < 1 - TIE_SLACK)
        for start, stop in iterate_blocks(len(others), block_rows_for(first.shape[1])):
            # All-zero rows are similar to nothing, themselves included.
            if first[others[start:stop]].any() or second[others[start:stop]].any():
                return False
    norms, others = (np.concatenate([model.log_norms[side] for side in _SIDES]) for model in (one, other))
    steps = (norms - others)[norms > math.log(np.finfo(np.float64).tiny)]  # all-zero rows have no scale
    return len(steps) == 0 or float(np.ptp(steps)) < _SAME_SCALE


def check_pairing(evidence: Evidence) -> Iterator[GuardFinding]:
    """An oracle that was not trained from the same seed, so that plain similarities to it say little."""
    pairing = evidence.pairing
    if pairing is None or pairing.is_paired:
        return
    seen = "Its embeddings have another width"
    if not math.isnan(pairing.plain_similarity):
        seen = f"Retain records are {pairing.plain_similarity:.3f} similar to themselves in the oracle"
    if pairing.is_aligned:
        seen += f"; after alignment {pairing.aligned_similarity:.3f}, so the aligned M1 to M3 are used"
    yield GuardFinding(
        "unpaired_oracle",
        "warn",
        f"The oracle does not look seed-paired with the unlearned model. {seen}.",
        "Retrain the oracle from the original's seed and data order, or read M1 to M3 with care: aligned values show "
        "less of what is left.",
    )


def check_collapse(evidence: Evidence) -> Iterator[GuardFinding]:
    """Models whose retain records cannot be told apart, so that similarities say nothing."""
    for name, model in evidence.models.items():
        # with an oracle beside it, a collapsed model is a finding, "damaged", and no fault of the evidence
        gravest: Severity = "warn" if name == "unlearned" and evidence.has_oracle else "fail"
        n_retain = len(model.rows["retain"])
        chosen = np.linspace(0, n_retain - 1, min(n_retain, _N_SAMPLED)).astype(np.int64)
        rows = np.asarray(model.rows["retain"][chosen], dtype=np.float64)
        norms = norm_rows(rows)
        unit = unit_rows(rows, norms)
        rank = effective_rank(unit)
        if rank < _LEAST_RANK:
            is_one_way = float(np.square(unit[norms > 0].mean(axis=0)).sum()) > 1 / _LEAST_RANK
            where = "point in one direction" if is_one_way else "lie on one line, in two opposite directions,"
            yield GuardFinding(
                "collapsed",
                gravest if is_one_way else "warn",  # two classes may well lie opposite
                f"All retain records {where} in the {name} model: their effective rank is {rank:.4f}.",
                _CURE,
            )
            continue
        nonzero = np.round(unit[norms > 0], 9)
        counts = np.unique(nonzero, axis=0, return_counts=True)[1] if len(nonzero) else np.zeros(1)
        for share, what in (
            ((norms == 0).mean(), "all-zero rows"),
            (counts.max() / len(unit), "one and the same row"),
        ):
            severity = next((severity for bound, severity in _SHARES if share >= bound), None)
            if severity is not None:
                severity = gravest if severity == "fail" else severity
                message = f"{share:.0%} of the retain records are {what} in the {name} model."
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


def check_stability(first: npt.NDArray[Any], second: npt.NDArray[Any], model: str) -> Iterator[GuardFinding]:
    """Embeddings (n, p) of the same records by the same model that differ from one call to the next.

    Example:
        >>> [finding.severity for finding in check_stability(np.eye(2), np.eye(2)[::-1], "oracle")]
        ['fail']
    """
    difference = np.abs(first.astype(np.float64) - second)
    allowed = _TOLERATED_EPS * np.finfo(first.dtype).eps * np.abs(first).max()
    n_changed = int((difference > allowed).any(axis=1).sum())
    if n_changed:
        yield GuardFinding(
            "unstable_embeddings",
            "fail",
            f"The {model} model gives different embeddings for the same records: {n_changed} of {len(first)} forget "
            f"records differ, by up to {difference.max():.3g}.",
            "Turn off whatever changes between calls: dropout, noise, statistics or counters that forward updates.",
        )


def check_retain_accuracy(outputs: Mapping[str, Mapping[str, float]], n_retain: int) -> Iterator[GuardFinding]:
    """An unlearned model that lost what it was to keep: more than 2 points of accuracy and more than chance.

    Example:
        >>> outputs = {"unlearned": {"retain_accuracy": 0.8}, "original": {"retain_accuracy": 0.95}}
        >>> [finding.name for finding in check_retain_accuracy(outputs, 1000)]
        ['retain_accuracy_lost']
    """
    found = {model: numbers["retain_accuracy"] for model, numbers in outputs.items() if "retain_accuracy" in numbers}
    reference = next((model for model in ("oracle", "original") if model in found), None)
    if "unlearned" not in found or reference is None:
        return
    usual, left = found[reference], found["unlearned"]
    spread = math.sqrt((usual * (1 - usual) + left * (1 - left)) / n_retain)
    if usual - left > max(_LEAST_LOSS, _Z * spread):
        yield GuardFinding(
            "retain_accuracy_lost",
            "warn",
            f"The unlearned model is right on {left:.1%} of the retain records, the {reference} on {usual:.1%}.",
            "Unlearn more gently: a model that forgets everything also forgets what it should.",
        )
