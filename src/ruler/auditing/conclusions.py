"""A measured contrast -> its finding: numbers and intervals, which the verdict is then read from."""

import math
from collections.abc import Mapping
from dataclasses import replace

from scipy.special import stdtrit

from ruler.auditing.evidence import Evidence, Side
from ruler.auditing.findings import Interval, LayerFinding, MetricFinding, StrongestFinding
from ruler.auditing.measure import Measurement
from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray
from ruler.stats.auc import auc_interval, normal_quantile
from ruler.stats.equivalence import count_needed, minimum_detectable_effect
from ruler.stats.samples import average_by_group

_UNKNOWN: Interval = (math.nan, math.nan)


def conclude_metrics(evidence: Evidence, found: Mapping[str, Measurement]) -> dict[str, MetricFinding]:
    """The findings of all measured contrasts, by name; `decide` adds their verdicts."""
    n_deciding = sum(one.contrast.decides for one in found.values())
    return {name: _conclude(name, one, evidence, n_deciding) for name, one in found.items()}


def _conclude(name: str, found: Measurement, evidence: Evidence, n_deciding: int) -> MetricFinding:
    contrast, settings = found.contrast, evidence.settings
    layer = found.place.layer if found.strands else list(found.scores)[-1]
    model, oracles = evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles]
    values = found.scores[layer] if contrast.value is None else contrast.value(model, oracles)
    value = float(values["forget"].mean())
    plain = aligned = None
    if contrast.value_by_map is not None and model.pair_with(oracles[0]).n_fitted:
        is_comparable = model.rows["forget"].shape == oracles[0].rows["forget"].shape
        plain = contrast.value_by_map(model, oracles[0], False) if is_comparable else math.nan
        aligned = contrast.value_by_map(model, oracles[0], True)
    finding = MetricFinding(
        name=name,
        value=value,
        interval=_mean_interval(_average_units(evidence, values, "forget"), settings.alpha),
        null=math.nan,
        difference=math.nan,
        difference_interval=_UNKNOWN,
        effect=math.nan,
        effect_interval=_UNKNOWN,
        p_value=found.p_value,
        equivalence_p_value=math.nan,
        margin=settings.margin,
        control="none",
        verdict="descriptive",
        reason="",
        n_forget=evidence.count_units("forget"),
        n_control=0,
        minimum_detectable_effect=math.nan,
        n_needed=None,
        paper_null=contrast.paper_null,
        paper_reading=contrast.read_by_paper(value),
        test=found.test,
        layer=(layer or None) if contrast.is_by_layer else None,
        plain_value=plain,
        aligned_value=aligned,
        reference_error=_bound_rank_error(evidence) if name == "m4" else None,
    )
    finding = add_decisive(finding, found, settings)
    return _add_control(finding, found, evidence, values, n_deciding) if found.strands else finding


def add_decisive(finding: MetricFinding, found: Measurement, settings: AuditSettings) -> MetricFinding:
    """A finding with the numbers that `decide_metric` reads from it."""
    finding = replace(
        finding,
        adjusted_p_value=found.adjusted_p_value,
        beyond_oracle_p_value=found.beyond_oracle_p_value,
        sensitivity=found.sensitivity,
    )
    if found.share is not None:
        finding = replace(
            finding,
            share_left=found.share.value,
            share_left_interval=found.share.interval,
            share_left_upper=found.share.upper,
            share_left_lower=found.share.lower,
        )
    if not found.strands:
        return finding
    strand, effect = found.strongest, found.strongest.effect
    strongest = StrongestFinding(strand.layer, strand.part, effect.value, effect.error)
    if strand.before is not None:
        before = strand.effect_before
        strongest = replace(strongest, original_effect=before.value, original_statistic=before.statistic)
        if not math.isnan(effect.standard_error):
            strongest = replace(strongest, share_lower=strand.share(settings.alpha).lower)
    reach = normal_quantile(1 - settings.alpha)
    return replace(
        finding,
        strongest=strongest,
        equivalence_p_value=found.show_equivalence(settings.margin),
        largest_distance=max(abs(one.effect.value - 0.5) + reach * one.effect.error for one in found.strands),
    )


def _add_control(
    finding: MetricFinding,
    found: Measurement,
    evidence: Evidence,
    values: Mapping[Side, FloatArray],
    n_deciding: int,
) -> MetricFinding:
    """What only held-out records tell: the null, the contrast and its error, and what could have been seen."""
    settings, place, spread = evidence.settings, found.place, found.spread
    forget, held_out = (_average_units(evidence, values, side) for side in ("forget", "held_out"))
    level = settings.alpha / n_deciding if found.contrast.decides else settings.alpha
    return replace(
        finding,
        null=float(values["held_out"].mean()),
        difference=float(values["forget"].mean() - values["held_out"].mean()),
        difference_interval=_mean_interval(forget, settings.alpha, held_out),
        effect=place.effect.value,
        effect_interval=auc_interval(place.effect, settings.alpha),
        control="held-out",
        n_control=place.effect.n_second,
        minimum_detectable_effect=minimum_detectable_effect(place.effect, alpha=level, power=settings.power),
        n_needed=count_needed(
            place.effect, settings.margin, alpha=settings.alpha, power=settings.power, n_tests=2 * n_deciding
        ),
        spread=spread.effect.value,
        spread_interval=auc_interval(spread.effect, settings.alpha),
        original_effect=None if place.before is None else place.effect_before.value,
        layers=_profile(found, settings.alpha) if len(evidence.layers) > 1 else (),
    )


def _average_units(evidence: Evidence, values: Mapping[Side, FloatArray], side: Side) -> FloatArray:
    """One value per record of a side, or per group where groups are named."""
    return average_by_group(values[side], evidence.groups[side]) if side in evidence.groups else values[side]


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
    reach = float(stdtrit(freedom, 1 - alpha / 2)) * math.sqrt(variance)
    return middle - reach, middle + reach


def _profile(found: Measurement, alpha: float) -> tuple[LayerFinding, ...]:
    """The contrast at every layer, in forward order."""
    spreads = {strand.layer: strand.effect for strand in found.strands if strand.part == "spread"}
    return tuple(
        LayerFinding(
            strand.layer,
            strand.effect.value,
            auc_interval(strand.effect, alpha),
            spreads[strand.layer].value,
            auc_interval(spreads[strand.layer], alpha),
            None if strand.before is None else strand.effect_before.value,
        )
        for strand in found.strands
        if strand.part == "place"
    )
