"""Evidence -> a finding per contrast: do forget and held-out records differ, and how much of the trace remains?"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from ruler.auditing.compared import Tested, compare_by_permutation, compare_by_runs
from ruler.auditing.contrasts import CONTRASTS, Contrast, list_deciding
from ruler.auditing.evidence import Evidence, SideScores
from ruler.auditing.findings import (
    METRIC_NAME,
    Interval,
    LayerFinding,
    MetricControl,
    MetricFinding,
    PaperReading,
    Part,
    Remaining,
    Scale,
    find_worst,
)
from ruler.auditing.strands import Strand, find_trace, make_strands
from ruler.core.errors import InputError
from ruler.core.types import FloatArray
from ruler.stats.auc import auc_interval, measure_effect
from ruler.stats.samples import average_by_group
from ruler.stats.scale import Share, share_of_members, share_of_original, shares_of_single

_UNKNOWN: Interval = (math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class Measurement:
    """All that was measured of one contrast: its strands and its finding."""

    contrast: Contrast
    scores: Mapping[str, SideScores]  # ``scores[layer]``: per record, by side, in the unlearned model
    strands: Sequence[Strand]  # one per layer; empty without held-out records
    finding: MetricFinding

    @property
    def told(self) -> Strand:
        """The strand of the layer that the finding's numbers come from."""
        layer = self.finding.layer if self.contrast.is_by_layer else None
        return next((one for one in self.strands if one.layer == layer), self.strands[-1])


def measure_contrasts(evidence: Evidence, contrasts: Mapping[str, Contrast] = CONTRASTS) -> dict[str, Measurement]:
    """All contrasts of a table that this evidence can carry, by name.

    Raises:
        InputError: A metric with a name that files cannot hold, or that does not give one finite number per record.
    """
    for name in contrasts:
        if not re.fullmatch(METRIC_NAME, name):
            raise InputError(f"metrics must be named by lower-case letters, digits and _; got {name!r}. Rename it.")
    usable = {name: one for name, one in contrasts.items() if evidence.has(one.needs)}
    scores = {name: _score_layers(name, one, evidence) for name, one in usable.items()}
    if not evidence.has_held_out:
        return {
            name: Measurement(
                one, scores[name], (), _describe(name, one, scores[name], evidence, list(scores[name])[-1])
            )
            for name, one in usable.items()
        }
    strands = {name: make_strands(name, one, scores[name], evidence) for name, one in usable.items()}
    compare = compare_by_permutation if evidence.run_freedom is None else compare_by_runs
    tested = compare([one for some in strands.values() for one in some], usable, evidence)
    found = {}
    for name, one in usable.items():
        finding = _conclude(name, one, scores[name], strands[name], tested, evidence)
        found[name] = Measurement(one, scores[name], strands[name], finding)
    return found


def list_judging(found: Mapping[str, Measurement]) -> list[Measurement]:
    """The contrasts that decide and by which single records can be told: their scores do not know the original."""
    deciding = list_deciding(found, {name: one.contrast for name, one in found.items()})
    return [found[name] for name in deciding if not found[name].contrast.knows_original]


def _score_layers(name: str, contrast: Contrast, evidence: Evidence) -> dict[str, SideScores]:
    """Scores of all records in the unlearned model, layer by layer; what ignores layers is scored at the main one."""
    found: dict[str, SideScores] = {}
    for layer in evidence.layers if contrast.is_by_layer else (evidence.main_layer,):
        found[layer] = dict(contrast.score(evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles]))
        for side in evidence.ids:
            scores, n = found[layer].get(side), len(evidence.ids[side])
            if side == "retain":  # some may be missing, such as those that a map was fitted on
                continue
            if scores is None or scores.shape != (n,):
                shape = None if scores is None else scores.shape
                raise InputError(f"metric {name!r} must score every {side} record, shape ({n},); got {shape}.")
            if not np.isfinite(scores).all():
                raise InputError(f"metric {name!r} must be finite; got NaN or inf for {side} records.")
    return found


def _conclude(
    name: str,
    contrast: Contrast,
    scores: Mapping[str, SideScores],
    strands: Sequence[Strand],
    tested: Tested,
    evidence: Evidence,
) -> MetricFinding:
    """The finding of a contrast, at the layer where it differs most."""
    alpha, corrected = evidence.settings.alpha, tested.corrected
    remaining = {one.layer: _measure_scales(contrast, one, tested, evidence) for one in strands}

    def order(strand: Strand) -> tuple[float, float]:
        p_value = min((corrected.get((name, strand.layer, part), 1.0) for part in strand.parts), default=1.0)
        largest = max((abs(one.value) for one in remaining[strand.layer].values()), default=0.0)
        return p_value, -largest

    told = min(strands, key=order)
    parts = {
        part: _compare(told.parts[part], told.n_first, alpha, corrected.get((name, told.layer, part), math.nan))
        if part in told.parts
        else Part(math.nan, _UNKNOWN, math.nan)
        for part in ("place", "spread", "tail")
    }
    worst = {
        scale: chosen
        for scale in dict.fromkeys(scale for one in remaining.values() for scale in one)
        if (chosen := find_worst(one[scale] for one in remaining.values() if scale in one)) is not None
    }
    original = math.nan
    if told.before is not None:
        original = measure_effect(told.before[: told.n_first], told.before[told.n_first :]).value
    layers = tuple(_profile(name, one, remaining[one.layer], corrected, alpha) for one in strands)
    return replace(
        _describe(name, contrast, scores, evidence, told.layer),
        p_value=tested.raw.get(name, math.nan),
        place=_compare(told.now, told.n_first, alpha, parts["place"].p_value),
        spread=parts["spread"],
        tail=parts["tail"],
        control=MetricControl(
            "held-out", told.n_first, len(told.now) - told.n_first, original, tested.before.get(name, math.nan)
        ),
        remaining=worst,
        layers=layers if len(evidence.layers) > 1 and contrast.is_by_layer else (),
    )


def _profile(
    name: str,
    strand: Strand,
    remaining: Mapping[str, Remaining],
    corrected: Mapping[tuple[str, str, str], float],
    alpha: float,
) -> LayerFinding:
    """The contrast at one of several layers."""
    place = _compare(strand.now, strand.n_first, alpha, math.nan)
    p_value = min((corrected.get((name, strand.layer, part), math.nan) for part in strand.parts), default=math.nan)
    return LayerFinding(strand.layer, place.effect, place.interval, p_value, remaining)


def _compare(values: FloatArray, n_first: int, alpha: float, p_value: float) -> Part:
    effect = measure_effect(values[:n_first], values[n_first:])
    return Part(effect.value, auc_interval(effect, alpha), p_value)


def _measure_scales(contrast: Contrast, strand: Strand, tested: Tested, evidence: Evidence) -> dict[str, Remaining]:
    """What remains at one layer, on each scale that exists."""
    if not contrast.is_ruler:
        return {}
    alpha, n = 1 - evidence.settings.confidence, strand.n_first
    key = strand.contrast, strand.layer
    run = tested.runs.get(key)
    if tested.drawn is None and run is None:
        return {}

    def name(share: Share, scale: Scale) -> Remaining:
        layer = (strand.layer or None) if contrast.is_by_layer else None
        numbers = share.value, share.low, share.high, share.at_least, share.at_most
        return Remaining(*numbers, scale, strand.contrast, layer, share.visibility, share.resolution)

    if n == 1:
        trace = find_trace(strand)
        if contrast.knows_original or trace is None or tested.drawn is None or len(strand.now) < 3:
            return {}
        value, *limits = shares_of_single(strand.now[:1], strand.now[1:], trace.size, alpha=alpha)[:, 0].tolist()
        error = float(strand.now[1:].std(ddof=1)) * math.sqrt(1 + 1 / (len(strand.now) - 1))
        resolution = trace.size / error if error > 0 else math.inf
        low, high, at_least, at_most = limits
        share = Share(value, low, high, at_least, at_most, trace.visibility, resolution)
        return {trace.scale: name(share, trace.scale)}
    found: dict[str, Remaining] = {}
    if strand.before is not None:
        columns = (tested.columns[*key, "now"], tested.columns[*key, "before"]) if tested.drawn else (0, 1)
        found["original"] = name(
            share_of_original(
                strand.now,
                strand.before,
                n,
                alpha=alpha,
                found=tested.drawn,
                columns=columns,
                run=run,
                is_alike=not contrast.knows_original,
            ),
            "original",
        )
    if strand.members is not None and strand.plain is not None:
        column = tested.columns[*key, "plain"] if tested.drawn else 0
        first, second = np.split(strand.plain, [n])
        found["members"] = name(
            share_of_members(first, second, strand.members, alpha=alpha, found=tested.drawn, column=column, run=run),
            "members",
        )
    return found


def _describe(
    name: str, contrast: Contrast, scores: Mapping[str, SideScores], evidence: Evidence, layer: str
) -> MetricFinding:
    """What needs no control: the number of the paper, its interval and its reading."""
    model, oracles = evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles]
    values = scores[layer] if contrast.value is None else contrast.value(model, oracles)
    value = float(values["forget"].mean())
    plain = aligned = None
    if contrast.value_by_map is not None and model.pair_with(oracles[0]).n_fitted:
        is_comparable = model.rows["forget"].shape == oracles[0].rows["forget"].shape
        plain = contrast.value_by_map(model, oracles[0], False) if is_comparable else math.nan
        aligned = contrast.value_by_map(model, oracles[0], True)
    own = values["forget"]
    if "forget" in evidence.groups:
        own = average_by_group(own, evidence.groups["forget"])
    nothing = Part(math.nan, _UNKNOWN, math.nan)
    paper = contrast.paper_null
    return MetricFinding(
        name=name,
        family=contrast.family,
        value=value,
        interval=_mean_interval(own, evidence.settings.alpha),
        null=float(values["held_out"].mean()) if evidence.has_held_out else math.nan,
        p_value=math.nan,
        place=nothing,
        spread=nothing,
        tail=nothing,
        control=MetricControl("none", evidence.count_units("forget"), 0),
        layer=(layer or None) if contrast.is_by_layer else None,
        paper=None if paper is None else PaperReading(paper, contrast.read_by_paper(value)),
        plain_value=plain,
        aligned_value=aligned,
        reference_error=_bound_rank_error(evidence) if name == "m4" else None,
    )


def _bound_rank_error(evidence: Evidence) -> float | None:
    """How far M4 can be from its value against all retain records, at level 1 - alpha; None where it is exact.

    M4 averages the distribution function of the reference similarities, and that of n of them, drawn independently, is
    nowhere further than sqrt(ln(2 / alpha) / 2n) from that of all (Dvoretzky, Kiefer and Wolfowitz; Massart 1990).
    """
    reference = evidence.main.reference
    return None if reference is None else math.sqrt(math.log(2 / evidence.settings.alpha) / (2 * len(reference)))


def _mean_interval(values: FloatArray, alpha: float) -> Interval:
    """Student's t interval of a mean."""
    n = len(values)
    if n < 2:
        return _UNKNOWN
    reach = float(stdtrit(n - 1, 1 - alpha / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
    return float(values.mean()) - reach, float(values.mean()) + reach
