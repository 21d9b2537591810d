"""The forget set: whether it is large enough for any answer but 'inconclusive'."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.stats import norm

from ruler.audit.evidence import Evidence, Side
from ruler.audit.findings import GuardFinding


def check_size(evidence: Evidence) -> Iterator[GuardFinding]:
    """A forget set with which erasure could not be shown even if it looked exactly like its control."""
    control: Side = "held_out" if evidence.has_held_out else "retain"
    n_forget, n_control = _count_units(evidence, "forget"), _count_units(evidence, control)
    margin, alpha = evidence.settings.margin, evidence.settings.alpha
    reach = float(norm.ppf(1 - alpha)) * _null_spread(n_forget, n_control)
    if reach <= margin:
        return
    unit = "groups" if "forget" in evidence.groups else "records"
    noun = control.replace("_", "-")
    n_needed = math.ceil(1 / (12 * (margin / float(norm.ppf(1 - alpha))) ** 2))
    small = f"{n_forget} forget" if n_forget <= n_control else f"{n_control} {noun}"
    yield GuardFinding(
        "too_few_records",
        "warn",
        f"{small} {unit} are too few to show erasure: even an AUC of exactly 0.5 would be known to within "
        f"{reach:.2f} only, and the margin is {margin:g}. Residuals can still be found, if they are large.",
        f"Audit at least {n_needed + 1} forget {unit} with several times as many {noun} ones, or a wider margin.",
    )


def _count_units(evidence: Evidence, side: Side) -> int:
    return len(np.unique(evidence.groups[side])) if side in evidence.groups else len(evidence.ids[side])


def _null_spread(n_first: int, n_second: int) -> float:
    """Standard deviation of an AUC between two samples of one distribution without ties."""
    return math.sqrt((n_first + n_second + 1) / (12 * n_first * n_second))
