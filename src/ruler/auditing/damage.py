"""Does the model still work? Retain records against the oracle, and accuracy on them where it is known."""

import math
from collections.abc import Mapping

import numpy as np

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Damage
from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray

LEAST_SKILL = 0.5
"""A model that keeps less than half of what the oracle knows beyond the most frequent label counts as damaged."""

_MOST_ROWS = 4000
_GOOD_SKILL = 0.8  # a model that answers as well as this works, wherever its representations lie
_LEAST_LOSS = 0.05  # of accuracy: less is no damage, whatever the oracle's skill
_WORTHLESS_SKILL = 0.02  # an oracle that hardly beats the most frequent label shows nothing


def judge_damage(evidence: Evidence, outputs: Mapping[str, Mapping[str, float]]) -> Damage | None:
    """Whether the model is broken: retain records that lie apart from the oracle's, or accuracy that is gone.

    Args:
        evidence: Of the audit.
        outputs: ``retain_accuracy`` by model, where known.

    Returns:
        The finding; None where neither an oracle nor accuracies can tell.
    """
    similarity = math.nan
    if evidence.has_oracle:
        chosen = evidence.main.halves[0][:_MOST_ROWS]  # an arbitrary half of the retain records, by content
        rows = [
            np.asarray(one.rows["retain"][chosen], dtype=np.float64) for one in (evidence.main, *evidence.main_oracles)
        ]
        similarity = float(np.mean([linear_cka(rows[0], other) for other in rows[1:]]))
    skill, lost = _find_skill(evidence, outputs)
    if math.isnan(similarity) and math.isnan(skill):
        return None
    return conclude_damage(similarity, skill, lost, evidence.settings)


def conclude_damage(similarity: float, skill: float, lost: float, settings: AuditSettings) -> Damage:
    """Whether these numbers mean damage; NaN where one is not known.

    Example:
        >>> conclude_damage(0.4, math.nan, math.nan, AuditSettings()).is_damaged
        True
    """
    faults = []
    if similarity < settings.least_similarity and not skill >= _GOOD_SKILL:
        faults.append(
            f"retain records no longer lie as they do in the oracle (linear CKA {similarity:.2f}, "
            f"at least {settings.least_similarity:g} expected)"
        )
    if skill < LEAST_SKILL and lost >= _LEAST_LOSS:
        faults.append(f"{max(0.0, skill):.0%} of the oracle's skill on retain records is left")
    seen = []
    if not math.isnan(similarity):
        seen.append(f"linear CKA of retain records to the oracle {similarity:.2f}")
    if not math.isnan(skill):
        seen.append(f"{skill:.0%} of the oracle's skill on them left")
    reason = (
        f"The model no longer works: {' and '.join(faults)}."
        if faults
        else f"The model still works: {', '.join(seen)}."
    )
    return Damage(similarity, settings.least_similarity, skill, LEAST_SKILL, bool(faults), reason, lost)


def linear_cka(first: FloatArray, second: FloatArray) -> float:
    """How alike are two representations of the same records, whatever their axes, scale and width?

    Linear centred kernel alignment (Kornblith and others 2019): |X'Y|^2 / (|X'X| |Y'Y|) for centred columns, in [0, 1].

    Args:
        first: (n, p).
        second: (n, q) of the same records.

    Returns:
        1 for the same up to rotation and scale; 0 where a side does not vary.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(50, 3))
        >>> round(linear_cka(rows, 2 * rows[:, ::-1]), 6), linear_cka(rows, np.ones((50, 2)))
        (1.0, 0.0)
    """
    x, y = (rows - rows.mean(axis=0) for rows in (first, second))
    scales = [float(np.linalg.norm(rows)) for rows in (x, y)]
    if any(scale <= 1e-12 * float(np.linalg.norm(rows)) for scale, rows in zip(scales, (first, second), strict=True)):
        return 0.0
    x, y = x / scales[0], y / scales[1]
    norms = [float(np.linalg.norm(rows.T @ rows)) for rows in (x, y)]
    return min(1.0, float(np.linalg.norm(x.T @ y)) ** 2 / (norms[0] * norms[1]))


def _find_skill(evidence: Evidence, outputs: Mapping[str, Mapping[str, float]]) -> tuple[float, float]:
    """What is left of the oracle's (or the original's) skill on retain records, and how much of the score was lost.

    The score is the accuracy beyond that of the most frequent label (beyond 0 if labels are unknown, as for language
    models). Where only losses are known, records whose label gets more than half of the probability count as right.
    """
    labels = evidence.labels.get("retain")
    counts = np.zeros(0, dtype=np.int64) if labels is None else np.unique(labels, return_counts=True)[1]
    left = outputs.get("unlearned", {}).get("retain_accuracy")
    usual = next((outputs[name].get("retain_accuracy") for name in ("oracle", "original") if name in outputs), None)
    chance = 0.0 if labels is None else float(counts.max() / len(labels))
    if left is None or usual is None:
        reference = evidence.main_oracles[0] if evidence.has_oracle else evidence.main.original
        if labels is None or evidence.main.losses is None or reference is None or reference.losses is None:
            return math.nan, math.nan
        if len(counts) > max(20, len(labels) // 10):  # numbers rather than classes
            return math.nan, math.nan
        losses = evidence.main.losses["retain"], reference.losses["retain"]
        left, usual = (float((own < math.log(2)).mean()) for own in losses)  # more than half of the probability
    return (math.nan if usual - chance < _WORTHLESS_SKILL else (left - chance) / (usual - chance)), usual - left
