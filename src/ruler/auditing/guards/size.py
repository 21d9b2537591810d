"""Whether the forget set is large enough: for any test to reject, and for any answer but 'inconclusive'."""

import math
from collections.abc import Iterator

from scipy.special import ndtri

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding

_LARGE_EFFECT = 0.25  # an AUC of 0.75: three of four pairs told apart


def check_attainable(evidence: Evidence) -> Iterator[GuardFinding]:
    """So few units that no labelling of them is rare enough: the test could never find anything."""
    if not evidence.has_held_out:
        return
    n_forget, n_held_out = evidence.count_units("forget"), evidence.count_units("held_out")
    least = min(1.0, 2 / math.comb(n_forget + n_held_out, n_forget))  # two sides
    if least <= evidence.settings.alpha:
        return
    unit = "groups" if "forget" in evidence.groups else "records"
    enough = (n for n in range(n_held_out, 10_000) if math.comb(n_forget + n, n_forget) * evidence.settings.alpha >= 2)
    n_needed = next(enough, None)
    yield GuardFinding(
        "unattainable_level",
        "warn",
        f"{n_forget} forget {unit} against {n_held_out} held-out ones give p-values of {least:.3f} at best, above the "
        f"level of {evidence.settings.alpha:g}: whatever the model remembers, this audit cannot find it.",
        f"Give more forget {unit}." if n_needed is None else f"Give at least {n_needed} held-out {unit}.",
        blocks=True,
    )


def check_size(evidence: Evidence) -> Iterator[GuardFinding]:
    """A forget set with which erasure could not be shown even if it looked exactly like its control."""
    if not evidence.has_held_out:
        return
    n_forget, n_control = evidence.count_units("forget"), evidence.count_units("held_out")
    margin, alpha = evidence.settings.margin, evidence.settings.alpha
    spread = math.sqrt((n_forget + n_control + 1) / (12 * n_forget * n_control))  # of an AUC without ties
    reach = float(ndtri(1 - alpha)) * spread
    if reach <= margin:
        return
    visible = float(ndtri(1 - alpha / 2) + ndtri(evidence.settings.power)) * spread
    is_blind = visible >= _LARGE_EFFECT
    unit = "groups" if "forget" in evidence.groups else "records"
    left = "Only the largest residuals can be found" if is_blind else "Residuals can still be found"
    variance = (margin / float(ndtri(1 - alpha))) ** 2  # of the AUC, at which erasure could be shown
    slack = 12 * n_control * variance - 1
    n_needed = math.ceil((n_control + 1) / slack) if slack > 0 else math.inf
    advice = f"{n_needed} forget {unit} against as many control {unit} as now"
    if n_needed > 2 * n_control:
        advice = f"{math.ceil(2 / (12 * variance)) + 1} forget {unit} against as many control {unit}"
    yield GuardFinding(
        "too_few_records",
        "warn" if is_blind else "note",
        f"{n_forget} forget {unit} against {n_control} held-out ones are too few to show erasure: even an AUC of "
        f"exactly 0.5 would be known to within {reach:.3f} only, and the margin is {margin:g}. {left}: an AUC of "
        f"{min(1.0, 0.5 + visible):.2f} or {max(0.0, 0.5 - visible):.2f}.",
        f"Audit at least {advice}, or set a wider margin that you can defend.",
    )
