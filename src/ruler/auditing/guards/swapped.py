"""Sides that look exchanged: what was to be forgotten, and what was to be kept."""

from collections.abc import Iterator

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding
from ruler.stats.auc import measure_effect

_APART = 4.0  # standard errors


def check_swapped(evidence: Evidence) -> Iterator[GuardFinding]:
    """More to forget than to keep: fails if the oracle, too, knows the forget records and not the retain records."""
    n_forget, n_retain = len(evidence.ids["forget"]), len(evidence.ids["retain"])
    if n_forget <= n_retain:
        return
    message = f"There are more forget records ({n_forget:,}) than retain records ({n_retain:,})."
    is_swapped = False
    oracle = evidence.main_oracles[0] if evidence.has_oracle else None
    if oracle is not None and oracle.losses is not None and evidence.has_held_out:
        forget, retain = (
            measure_effect(oracle.losses[side], oracle.losses["held_out"]) for side in ("forget", "retain")
        )
        is_swapped = forget.statistic < -_APART and retain.statistic > -_APART / 2
        if is_swapped:
            message += (
                f" And the oracle answers better for forget than for held-out records (AUC of its loss "
                f"{forget.value:.2f}), but not for retain records ({retain.value:.2f})."
            )
    yield GuardFinding(
        "swapped_sides",
        "fail" if is_swapped else "warn",
        message,
        "Check which file holds the records that were to be forgotten.",
    )
