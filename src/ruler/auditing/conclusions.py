"""A metric's contrast with its control -> its finding: numbers, intervals, verdict."""

import math
from dataclasses import replace

import numpy as np

from ruler.auditing.contrast import Measurement, measure_nearest, measure_oracle_gap, measure_shift, take_interval
from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Control, Interval, MetricFinding, MetricVerdict
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import DECIDING, decide_metric, read_by_paper
from ruler.core.types import FloatArray
from ruler.stats.equivalence import count_needed, equivalence_p_value, minimum_detectable_effect

_WHY = {
    "m1": "M1 has no null of its own: M2 is M1 less its baseline, and decides.",
    "m3": "M3 says whether unlearning moved forget records towards the oracle more than it moved their control.",
}
_WEAKER = (
    "The control is placebo sets of forget and retain records, for want of held-out ones: retain records were trained "
    "on, so that even perfect unlearning may differ from them."
)
_SAMPLED = (
    "Ranks are among {n:,} retain records drawn at random: M4 is within {off:.4f} of its value among all of them, at a "
    "confidence of {level:.0%}; the test does not rest on ranks."
)
_NO_TWINS = (
    "Groups are named for the forget records alone, and single retain records are no match for whole groups: M4's test "
    "would raise too many false alarms. Name the retain records' groups too, or give held-out records."
)


def conclude_metrics(evidence: Evidence) -> dict[str, MetricFinding]:
    """The findings of all metrics that this evidence can carry, by name."""
    metrics: dict[str, MetricFinding] = {}
    if evidence.has_oracle:
        m2 = _conclude("m2", measure_oracle_gap(evidence), evidence)
        metrics |= {"m1": _shift_to_m1(m2, evidence), "m2": m2}
        if evidence.has_original:
            metrics["m3"] = _conclude("m3", measure_shift(evidence), evidence)
    return metrics | {"m4": _conclude("m4", measure_nearest(evidence), evidence)}


def invalidate(finding: MetricFinding, reason: str) -> MetricFinding:
    """A deciding metric whose evidence failed a guard; its numbers stay for the reader."""
    return replace(finding, verdict="invalid", reason=reason) if finding.name in DECIDING else finding


def _conclude(name: str, found: Measurement, evidence: Evidence) -> MetricFinding:
    settings, contrast = evidence.settings, found.contrast
    equivalence_p = equivalence_p_value(contrast, settings.margin)
    control_name: Control = "held-out" if evidence.has_held_out else "placebo"
    verdict: MetricVerdict = "descriptive"
    reason = _WHY.get(name, "")
    if name in DECIDING:
        verdict, reason = decide_metric(name, found, equivalence_p, settings, control_name)
    if name == "m4" and _lacks_twin_groups(evidence):
        verdict, reason = "inconclusive", _NO_TWINS
    forget, control = np.split(found.scores.values, [found.scores.units.n_records_first])
    has_spread = min(contrast.n_first, contrast.n_second) > 1
    share, share_interval = _share_left(found, settings)
    off = _bound_rank_error(evidence) if name == "m4" else None
    if off is not None:
        reason = f"{reason} {_SAMPLED.format(n=settings.n_reference, off=off, level=1 - settings.alpha)}"
    finding = MetricFinding(
        name=name,
        value=float(forget.mean()),
        interval=_interval(found.draws.value, settings, has_spread),
        null=float(control.mean()),
        difference=float(forget.mean() - control.mean()),
        difference_interval=_interval(found.draws.difference, settings, has_spread),
        effect=contrast.effect,
        effect_interval=_interval(found.draws.effect, settings, has_spread),
        p_value=contrast.p_value,
        equivalence_p_value=equivalence_p,
        margin=settings.margin,
        control=control_name,
        verdict=verdict,
        reason=reason if evidence.has_held_out else f"{reason} {_WEAKER}",
        n_forget=contrast.n_first,
        n_control=contrast.n_second,
        minimum_detectable_effect=minimum_detectable_effect(contrast, alpha=settings.alpha, power=settings.power),
        n_needed=count_needed(contrast, settings.margin, alpha=settings.alpha, power=settings.power),
        paper_null={"m4": 0.5}.get(name, 0.0),
        paper_reading=read_by_paper(name, float(forget.mean())) if name in DECIDING else "",
        original_effect=None if found.original is None else found.original.effect,
        share_left=share,
        share_left_interval=share_interval,
        reference_error=off,
    )
    return finding if name == "m4" else _add_unaligned(finding, evidence)


def _bound_rank_error(evidence: Evidence) -> float | None:
    """How far M4 can be from its value against all retain records, at level 1 - alpha; None where it is exact.

    M4 averages the distribution function of the reference similarities, and that of n of them, drawn independently, is
    nowhere further than sqrt(ln(2 / alpha) / 2n) from that of all (Dvoretzky, Kiefer and Wolfowitz; Massart 1990).
    """
    if evidence.reference is None:
        return None
    return math.sqrt(math.log(2 / evidence.settings.alpha) / (2 * len(evidence.reference)))


def _lacks_twin_groups(evidence: Evidence) -> bool:
    """Whether placebo sets would be made of single records where the forget set is made of groups."""
    return not evidence.has_held_out and "forget" in evidence.groups and "retain" not in evidence.groups


def _interval(draws: FloatArray, settings: AuditSettings, has_spread: bool) -> Interval:
    return take_interval(draws, settings) if has_spread else (math.nan, math.nan)


def _share_left(found: Measurement, settings: AuditSettings) -> tuple[float | None, Interval | None]:
    """Part of the original's contrast that is left; a ratio to a contrast that may be none says nothing."""
    if found.original is None or found.draws.original is None or found.original.p_value > settings.alpha:
        return None, None
    null_now, null_before = found.contrast.null_effect, found.original.null_effect
    share = (found.contrast.effect - null_now) / (found.original.effect - null_before)
    before = found.draws.original - null_before
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (found.draws.effect - null_now) / before
    return float(share), take_interval(ratios[np.isfinite(ratios)], settings)


def _shift_to_m1(m2: MetricFinding, evidence: Evidence) -> MetricFinding:
    """M1 is M2 plus the retain median: the same contrast, on another scale."""
    offset = float(np.median(evidence.oracle_scores["unlearned"].by_side["retain"]))
    moved = replace(
        m2,
        name="m1",
        value=m2.value + offset,
        interval=(m2.interval[0] + offset, m2.interval[1] + offset),
        null=m2.null + offset,
        verdict="descriptive",
        reason=_WHY["m1"],
        paper_null=None,
        paper_reading="",
    )
    return _add_unaligned(moved, evidence)


def _add_unaligned(finding: MetricFinding, evidence: Evidence) -> MetricFinding:
    """The number without and with the map, where a map was fitted."""
    if not evidence.aligned_scores:
        return finding
    both = []
    for scores in (evidence.plain_scores, evidence.aligned_scores):
        if not scores:  # widths differ: there is no plain similarity
            both.append(math.nan)
            continue
        forget = scores["unlearned"].by_side["forget"].mean()
        base = {"m1": 0.0, "m2": np.median(scores["unlearned"].by_side["retain"])}.get(finding.name)
        both.append(float(forget - (scores["original"].by_side["forget"].mean() if base is None else base)))
    return replace(finding, plain_value=both[0], aligned_value=both[1])
