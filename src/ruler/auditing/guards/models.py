"""What only the models themselves can show: answers that change, and accuracy that was lost."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.findings import GuardFinding

_TOLERATED_EPS = 64  # sums on an accelerator may change their order from run to run
_LEAST_LOSS = 0.02
_Z = 3.0


def check_stability(first: npt.NDArray[Any], second: npt.NDArray[Any], model: str) -> Iterator[GuardFinding]:
    """Embeddings of the same records by the same model that differ from one call to the next.

    Args:
        first: (n, p) of one call.
        second: (n, p) of a later one.
        model: Which one, for the message.

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
            f"The {model} model gives other embeddings when asked again: {n_changed} of {len(first)} forget records "
            f"differ, by up to {difference.max():.3g}.",
            "Turn off whatever changes between calls: dropout, noise, statistics or counters that forward updates.",
        )


def check_retain_accuracy(outputs: Mapping[str, Mapping[str, float]], n_retain: int) -> Iterator[GuardFinding]:
    """An unlearned model that lost what it was to keep: more than 2 points and more than chance.

    Args:
        outputs: Output-level numbers by model.
        n_retain: Retain records behind the accuracies.

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
