"""The audit's own verdict on the models of a study, beside the paper's metrics."""

from collections.abc import Mapping

from ruler.auditing import AuditSettings, audit_evidence, gather_evidence
from ruler.auditing.contrasts import OWN
from ruler.core.types import Embeddings
from ruler.experiment.scores import Scores

Sides = tuple[Embeddings, ...]
"""Forget, retain and held-out records of one model."""

_SETTINGS = AuditSettings(n_permutations=999)  # hundreds of audits: enough draws for p below 0.01


def audit_sides(
    unlearned: Sides,
    *,
    oracle: Sides | None = None,
    original: Sides | None = None,
    outputs: Mapping[str, Mapping[str, float]] | None = None,
) -> Scores:
    """Audit one model with held-out records as its control.

    Args:
        unlearned: The model's (forget, retain, held_out) records, with what is known of them.
        oracle: The same in the oracle, or None.
        original: The same in the model before unlearning, or None.
        outputs: Accuracies by model and side, such as ``{"oracle": {"retain_accuracy": 0.9}}``.

    Returns:
        ``verdict``; of each contrast that decides its own verdict, effect (AUC) and p-value; ``seen``, the names of the
        contrasts that were able to see such records; ``damage_similarity`` and ``damage_skill``. What could not be
        measured is absent.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(300, 8))
        >>> found = audit_sides(tuple(map(Embeddings, (rows[:50], rows[50:200], rows[200:]))))
        >>> found["verdict"], "m4_effect" in found, "m2_effect" in found
        ('inconclusive', True, False)
    """
    evidence = gather_evidence(unlearned, oracle=oracle, original=original, settings=_SETTINGS)
    report = audit_evidence(evidence, outputs=outputs, contrasts=OWN)
    found: Scores = {"verdict": report.verdict}
    deciding = {name: one for name, one in report.metrics.items() if OWN[name].decides}
    for name, metric in deciding.items():
        found |= {
            f"{name}_verdict": metric.verdict,
            f"{name}_effect": metric.effect,
            f"{name}_p_value": metric.p_value,
        }
    found["seen"] = ",".join(name for name, one in deciding.items() if one.sensitivity and one.sensitivity.is_seen)
    if report.damage is not None:
        found |= {"damage_similarity": report.damage.similarity, "damage_skill": report.damage.skill}
    return found
