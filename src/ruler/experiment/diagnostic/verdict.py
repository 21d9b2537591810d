"""The audit's own verdict on the models of a study, beside the paper's metrics."""

from typing import Any

from ruler.auditing import AuditSettings, audit

_SETTINGS = AuditSettings(n_permutations=999, n_bootstrap=499)  # hundreds of audits: enough draws for p below 0.01


def judge(unlearned: Any, oracle: Any, groups: Any) -> dict[str, float | str]:
    """Audit one model with held-out records as its control.

    Args:
        unlearned: (forget, retain, held_out) representations.
        oracle: The same in the oracle, or None.
        groups: Whose record it is, by side, or None.

    Returns:
        ``verdict``, and of M2 and M4 their own verdicts, effects (AUC) and p-values.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(300, 8))
        >>> sorted(judge((rows[:50], rows[50:200], rows[200:]), None, None))
        ['m4_effect', 'm4_p_value', 'm4_verdict', 'verdict']
    """
    report = audit(unlearned, oracle=oracle, groups=groups, settings=_SETTINGS)
    found: dict[str, float | str] = {"verdict": report.verdict}
    for name in ("m2", "m4"):
        if name in report.metrics:
            metric = report.metrics[name]
            found |= {
                f"{name}_verdict": metric.verdict,
                f"{name}_effect": metric.effect,
                f"{name}_p_value": metric.p_value,
            }
    return found
