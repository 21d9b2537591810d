"""A measured contrast -> its finding: numbers, intervals, verdict."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scipy.stats import t

from ruler.auditing.evidence import Evidence, Side
from ruler.auditing.findings import Interval, LayerFinding, MetricFinding, MetricVerdict
from ruler.auditing.measure import Measurement, average_units
from ruler.auditing.verdict import decide_metric, read_by_paper
from ruler.core.types import FloatArray
from ruler.metrics.paper import rank_within, subtract_baseline
from ruler.stats.auc import auc_interval
from ruler.stats.equivalence import count_needed, minimum_detectable_effect

_WHY = {
    "m1": "M1 has no null of its own: M2 is M1 less its baseline, and decides.",
    "m3": "M3 says whether unlearning moved forget records towards the oracle more than it moved held-out ones.",
}
_SAMPLED = (
    "Ranks are among {n:,} retain records drawn at random: M4 is within {off:.4f} of its value among all of them, at a "
    "confidence of {level:.0%}; the test does not rest on ranks."
)
_UNKNOWN: Interval = (math.nan, math.nan)


def conclude_metrics(evidence: Evidence, found: Mapping[str, Measurement]) -> dict[str, MetricFinding]:
    """The findings of all measured contrasts, by name."""
    n_deciding = sum(one.contrast.decides for one in found.values())
    return {name: _conclude(one, evidence, n_deciding) for name, one in found.items()}


def _conclude(found: Measurement, evidence: Evidence, n_deciding: int) -> MetricFinding:
    name, settings = found.contrast.name, evidence.settings
    verdict: MetricVerdict = "descriptive"
    reason = _WHY.get(name, "")
    if found.contrast.decides:
        verdict, reason = decide_metric(found, settings)
    layer = found.place.layer if found.strands else list(found.scores)[-1]
    values = _paper_values(name, layer, found, evidence)
    off = _bound_rank_error(evidence) if name == "m4" else None
    if off is not None:
        reason = f"{reason} {_SAMPLED.format(n=settings.n_reference, off=off, level=1 - settings.alpha)}"
    forget = average_units(evidence, values, ("forget", "forget"))[0]
    known: dict[str, Any] = {}
    if found.strands:
        place, spread = found.place, found.spread
        held_out = average_units(evidence, values, ("held_out", "held_out"))[0]
        level = settings.alpha / n_deciding if found.contrast.decides else settings.alpha
        known = {
            "null": float(values["held_out"].mean()),
            "difference": float(values["forget"].mean() - values["held_out"].mean()),
            "difference_interval": _mean_interval(forget, settings.alpha, held_out),
            "effect": place.effect.value,
            "effect_interval": auc_interval(place.effect, settings.alpha),
            "equivalence_p_value": found.show_equivalence(settings.margin),
            "control": "held-out",
            "n_control": place.effect.n_second,
            "minimum_detectable_effect": minimum_detectable_effect(place.effect, alpha=level, power=settings.power),
            "n_needed": count_needed(
                place.effect, settings.margin, alpha=settings.alpha, power=settings.power, n_tests=2 * n_deciding
            ),
            "spread": spread.effect.value,
            "spread_interval": auc_interval(spread.effect, settings.alpha),
            "original_effect": None if place.before is None else place.effect_before.value,
            "layers": _profile(found, settings.alpha) if len(evidence.layers) > 1 else (),
        }
    if found.share is not None:
        known |= {
            "share_left": found.share.value,
            "share_left_interval": found.share.interval,
            "share_left_upper": found.share.upper,
        }
    absent = {"null", "difference", "effect", "equivalence_p_value", "minimum_detectable_effect"}
    defaults: dict[str, Any] = {
        **dict.fromkeys(absent, math.nan),
        "difference_interval": _UNKNOWN,
        "effect_interval": _UNKNOWN,
        "control": "none",
        "n_control": 0,
        "n_needed": None,
    }
    finding = MetricFinding(
        name=name,
        value=float(values["forget"].mean()),
        interval=_mean_interval(forget, settings.alpha),
        p_value=found.p_value,
        adjusted_p_value=found.adjusted_p_value,
        margin=settings.margin,
        verdict=verdict,
        reason=reason,
        n_forget=evidence.count_units("forget"),
        paper_null=found.contrast.paper_null,
        paper_reading=read_by_paper(name, float(values["forget"].mean())) if name in ("m2", "m4") else "",
        test=found.test,
        sensitivity=found.sensitivity,
        layer=(layer or None) if found.contrast.is_by_layer else None,
        reference_error=off,
        **(defaults | known),
    )
    return _add_unaligned(finding, layer, evidence) if name in ("m1", "m2", "m3") else finding


def _paper_values(name: str, layer: str, found: Measurement, evidence: Evidence) -> Mapping[Side, FloatArray]:
    """What is averaged: M2's scores less the retain median, M4's ranks, differences of losses; else the scores."""
    scores = found.scores[layer]
    if found.contrast.value is not None:
        return found.contrast.value(evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles])
    if name == "m2":
        return {side: subtract_baseline(values, scores["retain"]) for side, values in scores.items()}
    if name == "m4":
        return {side: rank_within(values, scores["retain"]) for side, values in scores.items() if side != "retain"}
    return scores


def _bound_rank_error(evidence: Evidence) -> float | None:
    """How far M4 can be from its value against all retain records, at level 1 - alpha; None where it is exact.

    M4 averages the distribution function of the reference similarities, and that of n of them, drawn independently, is
    nowhere further than sqrt(ln(2 / alpha) / 2n) from that of all (Dvoretzky, Kiefer and Wolfowitz; Massart 1990).
    """
    reference = evidence.main.reference
    return None if reference is None else math.sqrt(math.log(2 / evidence.settings.alpha) / (2 * len(reference)))


def _mean_interval(first: FloatArray, alpha: float, second: FloatArray | None = None) -> Interval:
    """t interval of a mean, or Welch's of a difference of means; NaN with a single value on a side."""
    samples = [first] if second is None else [first, second]
    if min(map(len, samples)) < 2:
        return _UNKNOWN
    middle = float(first.mean()) - (0.0 if second is None else float(second.mean()))
    parts = [float(one.var(ddof=1)) / len(one) for one in samples]
    variance = sum(parts)
    if variance == 0:
        return middle, middle
    freedom = variance**2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, samples, strict=True))
    reach = float(t.ppf(1 - alpha / 2, freedom)) * math.sqrt(variance)
    return middle - reach, middle + reach


def _profile(found: Measurement, alpha: float) -> tuple[LayerFinding, ...]:
    """The contrast at every layer, in forward order."""
    spreads = {strand.layer: strand for strand in found.strands if strand.part == "spread"}
    return tuple(
        LayerFinding(
            strand.layer,
            strand.effect.value,
            auc_interval(strand.effect, alpha),
            spreads[strand.layer].effect.value,
            auc_interval(spreads[strand.layer].effect, alpha),
            None if strand.before is None else strand.effect_before.value,
        )
        for strand in found.strands
        if strand.part == "place"
    )


def _add_unaligned(finding: MetricFinding, layer: str, evidence: Evidence) -> MetricFinding:
    """The number without and with the map, where a map was fitted; of the first oracle."""
    model, oracle = evidence.unlearned[layer], evidence.oracles[0][layer]
    if not model.pair_with(oracle).n_fitted:
        return finding
    both = []
    for is_aligned in (False, True):
        if not is_aligned and model.rows["forget"].shape != oracle.rows["forget"].shape:
            both.append(math.nan)  # widths differ: there is no plain similarity
            continue
        scores = model.compare(oracle, is_aligned=is_aligned)
        values = scores["forget"]
        if finding.name == "m2":
            values = subtract_baseline(values, scores["retain"])
        elif finding.name == "m3":
            assert model.original is not None
            values = values - model.original.compare(oracle, is_aligned=is_aligned)["forget"]
        both.append(float(values.mean()))
    return replace(finding, plain_value=both[0], aligned_value=both[1])
