"""Do the parts of a report agree? Every sentence that comes out names one contradiction."""

import math
from collections.abc import Iterator

import numpy as np

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.evidence import Side
from ruler.auditing.findings import Interval, MetricFinding, Report
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.strands import rank_units
from ruler.core.types import FloatArray
from ruler.stats.auc import measure_effect
from ruler.stats.equivalence import equivalence_p_value
from ruler.stats.p_values import adjust_p_values

_CLOSE = 1e-9
_COLUMN_OF = {"m1": "oracle_similarity", "m3": "shift", "m4": "percentile_rank"}
"""Columns of the records whose mean is a metric's value, at a single layer."""


def find_contradictions(report: Report) -> Iterator[str]:
    """Contradictions between metrics, settings, records, groups and plotted scores; none in what an audit wrote."""
    yield from _compare_metrics(report)
    for name, metric in report.metrics.items():
        yield from _examine_metric(name, metric, report)
        yield from _compare_scores(name, metric, report)
    for attack in report.attacks.values():
        for name, metric in attack.metrics.items():
            yield from (f"After the attack {attack.name}: {fault}" for fault in _examine_metric(name, metric, report))
    yield from _examine_records(report)
    yield from _examine_groups(report)


def _compare_metrics(report: Report) -> Iterator[str]:
    """Every contrast that the evidence carries is there, and one of those that are seen counts as seen best."""
    has = {
        "oracle": report.pairing is not None,
        "original": "original" in report.provenance.get("arrays", {}),
        "losses": "loss" in report.records and bool(report.records["loss"].notna().all()),
    }
    for name, contrast in CONTRASTS.items():
        if contrast.decides and name not in report.metrics and name in report.distributions.scores:
            yield f"{name} decides and its scores are in the report, but its finding is missing."
        elif contrast.decides and name not in report.metrics and not contrast.needs:
            yield f"{name} decides and needs nothing, but its finding is missing."
        elif name in report.metrics and not all(has[need] for need in contrast.needs):
            yield f"{name} is reported, but what it needs ({', '.join(contrast.needs)}) was not given."
    tried = [metric.sensitivity for metric in report.metrics.values() if metric.sensitivity is not None]
    n_best = sum(one.is_strongest for one in tried)
    if n_best != (1 if any(one.is_seen for one in tried) else 0):
        yield f"{n_best} contrasts count as seen best; there must be one if any is seen, and none otherwise."


def _examine_metric(name: str, metric: MetricFinding, report: Report) -> Iterator[str]:
    settings = report.settings
    if metric.name != name:
        yield f"The finding of {name} carries the name {metric.name!r}."
    if metric.margin != settings.margin:
        yield f"The margin of {name} is {metric.margin:g}; the settings say {settings.margin:g}."
    if metric.adjusted_p_value < metric.p_value - _CLOSE:
        yield f"The corrected p-value of {name} lies under its p-value."
    seen = metric.sensitivity
    if seen is not None and seen.is_seen != (seen.p_value <= settings.alpha):
        yield f"Whether {name} was seen in the positive control contradicts its p-value there."
    if (seen is not None and seen.is_seen) != (metric.share_left_lower is not None):
        yield f"The share of {name} that is left must be given if {name} was seen, and only then."
    pairs = ("value", "interval"), ("difference", "difference_interval"), ("effect", "effect_interval")
    for number, interval in (*pairs, ("spread", "spread_interval")):
        if not _contains(getattr(metric, interval), getattr(metric, number)):
            yield f"The {number} of {name} lies outside its interval."
    if not _agree(metric.difference, metric.value - metric.null):
        yield f"The difference of {name} is not its value minus that of the held-out records."
    has_control = metric.control == "held-out"
    if has_control != (metric.strongest is not None) or has_control != (metric.n_control > 0):
        yield f"Whether {name} was compared with held-out records is stated inconsistently."
    if metric.n_forget > len(report.records) or (report.groups is None and metric.n_forget != len(report.records)):
        yield f"{name} counts {metric.n_forget} forget records; records.parquet holds {len(report.records)}."
    yield from _examine_strongest(name, metric)


def _examine_strongest(name: str, metric: MetricFinding) -> Iterator[str]:
    """Where forget and held-out records differ most is one of the effects that are listed."""
    strongest = metric.strongest
    if strongest is None:
        return
    listed = next((row for row in metric.layers if row.layer == strongest.layer), metric)
    effect = listed.effect if strongest.part == "place" else listed.spread
    if not _agree(effect, strongest.effect):
        yield f"The strongest effect of {name} is not the one that is listed."
    if strongest.part == "place" and not _agree(_or_nan(listed.original_effect), _or_nan(strongest.original_effect)):
        yield f"The original model's effect of {name} is stated inconsistently."
    rows = metric.layers or (metric,)
    if metric.largest_distance < max(abs(value - 0.5) for row in rows for value in (row.effect, row.spread)) - _CLOSE:
        yield f"The largest distance that {name} cannot exclude is smaller than one that was seen."


def _compare_scores(name: str, metric: MetricFinding, report: Report) -> Iterator[str]:
    """Effects and equivalence, computed again from the plotted scores where these are all scores of the test."""
    scores = report.distributions.scores.get(name, {})
    sizes = metric.n_forget, metric.n_control
    if metric.test != "permutation" or report.groups is not None or report.provenance.get("grouped"):
        return
    if tuple(len(scores.get(side, ())) for side in ("forget", "held_out")) != sizes:
        return  # a sample, or none
    parts: dict[Side, FloatArray] = {"forget": scores["forget"], "held_out": scores["held_out"]}
    place, spread = (measure_effect(*rank_units({}, parts, is_spread=is_spread)) for is_spread in (False, True))
    for what, found, stated in (("AUC", place, metric.effect), ("AUC of the spread", spread, metric.spread)):
        if not _agree(found.value, stated):
            yield f"The {what} of {name} is {stated:.3f}; the scores in the report give {found.value:.3f}."
    least = max(equivalence_p_value(effect, metric.margin) for effect in (place, spread))
    if metric.equivalence_p_value < least - _CLOSE:  # other layers can only raise it
        yield f"The equivalence p-value of {name} is smaller than the scores in the report give."


def _examine_records(report: Report) -> Iterator[str]:
    records = report.records
    p_values, q_values = (records[name].to_numpy(np.float64) for name in ("p_value", "q_value"))
    for name, values in (("p", p_values), ("q", q_values)):
        if ((values < 0) | (values > 1)).any():
            yield f"records.parquet holds a {name} outside 0 to 1."
            return
    if not np.allclose(adjust_p_values(p_values), q_values, rtol=0, atol=_CLOSE, equal_nan=True):
        yield "The q-values in records.parquet do not follow from its p-values."
    is_plain = records["finding"].isin([ALIKE, NOT_JUDGED]).to_numpy()
    if (is_plain == (q_values <= report.settings.alpha)).any():
        yield "Which records stand out in records.parquet contradicts their q-values."
    for name, column in _COLUMN_OF.items():
        metric = report.metrics.get(name)
        if metric is not None and not metric.layers and not _agree(float(records[column].mean()), metric.value):
            yield f"{name} is {metric.value:.4f}; the records give {records[column].mean():.4f}."
    if report.distributions.rank_counts.get("forget", np.zeros(0)).sum() != len(records):
        yield "The histogram of ranks counts other forget records than records.parquet holds."


def _examine_groups(report: Report) -> Iterator[str]:
    groups, records = report.groups, report.records
    if groups is None:
        return
    is_flagged = ~records["finding"].isin([ALIKE, NOT_JUDGED])
    counted = is_flagged.groupby(records["group"]).agg(["size", "sum"])
    stated = groups.set_index("group")[["n_records", "n_flagged"]]
    if set(counted.index) != set(stated.index) or (counted.loc[stated.index].to_numpy() != stated.to_numpy()).any():
        yield "The groups count other records than records.parquet holds."
    q_values = adjust_p_values(groups["p_value"].to_numpy(np.float64))
    if not np.allclose(q_values, groups["q_value"].to_numpy(np.float64), rtol=0, atol=_CLOSE, equal_nan=True):
        yield "The q-values of the groups do not follow from their p-values."


def _contains(interval: Interval, value: float) -> bool:
    low, high = interval
    return math.isnan(low) or math.isnan(high) or math.isnan(value) or low - _CLOSE <= value <= high + _CLOSE


def _agree(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
