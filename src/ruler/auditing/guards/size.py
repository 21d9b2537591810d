"""The forget set: whether it is large enough for any answer but 'inconclusive'."""

import math
from collections.abc import Iterator

from scipy.stats import norm

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding

_LARGE_EFFECT = 0.25  # an AUC of 0.75: three of four pairs told apart


def check_size(evidence: Evidence) -> Iterator[GuardFinding]:
    """A forget set with which erasure could not be shown even if it looked exactly like its control."""
    if not evidence.has_held_out:
        return
    n_forget, n_control = evidence.count_units("forget"), evidence.count_units("held_out")
    margin, alpha = evidence.settings.margin, evidence.settings.alpha
    spread = math.sqrt((n_forget + n_control + 1) / (12 * n_forget * n_control))  # of an AUC without ties
    reach = float(norm.ppf(1 - alpha)) * spread
    if reach <= margin:
        return
    visible = float(norm.ppf(1 - alpha / 2) + norm.ppf(evidence.settings.power)) * spread
    is_blind = visible >= _LARGE_EFFECT
    unit = "groups" if "forget" in evidence.groups else "records"
    left = "Only the largest residuals can be found" if is_blind else "Residuals can still be found"
    yield GuardFinding(
        "too_few_records",
        "warn" if is_blind else "note",
        f"{n_forget} forget {unit} against {n_control} held-out ones are too few to show erasure: even an AUC of "
        f"exactly 0.5 would be known to within {reach:.3f} only, and the margin is {margin:g}. {left}: an AUC of "
        f"{min(1.0, 0.5 + visible):.2f} or {max(0.0, 0.5 - visible):.2f}.",
        f"Audit at least {_advise(n_control, (margin / float(norm.ppf(1 - alpha))) ** 2)}, or set a wider margin "
        "that you can defend.",
    )


def _advise(n_control: int, variance: float) -> str:
    """How many records bring the variance of the AUC down to this one."""
    slack = 12 * n_control * variance - 1
    n_needed = math.ceil((n_control + 1) / slack) if slack > 0 else math.inf
    if n_needed <= 2 * n_control:
        return f"{n_needed} forget records against as many control records as now"
    return f"{math.ceil(2 / (12 * variance)) + 1} forget records against as many control records"
