"""Whether the forget set is large enough for any test to reject."""

import math
from collections.abc import Iterator

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding


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
