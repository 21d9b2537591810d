"""Do the parts of a report agree? Every sentence that comes out names one contradiction."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ruler.auditing.contrasts import CONTRASTS, OWN
from ruler.auditing.findings import Interval, MetricFinding, Remaining, Report, find_worst
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.stats.auc import measure_effect
from ruler.stats.p_values import adjust_p_values

if TYPE_CHECKING:
    import pandas as pd

_CLOSE = 1e-9
_COLUMN_OF = {"m1": "oracle_similarity", "m3": "shift", "m4": "percentile_rank"}
"""Columns of the records whose mean is a metric's value, at a single layer."""


def find_contradictions(report: Report) -> Iterator[str]:
    """Contradictions between the parts of a report: given, metrics, records, groups, scores; an audit writes none."""
    yield from _compare_given(report)
    yield from _compare_metrics(report)
    for name, metric in report.metrics.items():
        yield from _examine_metric(name, metric, report)
        yield from _compare_scores(name, metric, report)
    for attack in report.attacks.values():
        for name, metric in attack.metrics.items():
            yield from (f"After the attack {attack.name}: {fault}" for fault in _examine_metric(name, metric, report))
    yield from _examine_records(report)
    yield from _examine_groups(report)


def _compare_given(report: Report) -> Iterator[str]:
    """What the audit says that it was given is what it measured."""
    given, known = report.given, report.provenance
    arrays = known.get("arrays", {})
    stated = {
        "an oracle": (given.oracle, known.get("n_oracles", 0)),
        "the original": (given.original, "original" in arrays),
        "held-out records": (given.held_out, "held_out" in arrays.get("unlearned", {})),
        "losses": (given.losses, bool(report.records["loss"].notna().all())),
        "groups": (given.groups, report.groups is not None),
    }
    for what, (one, other) in stated.items():
        if one != other:
            yield f"The report contradicts itself about {what}: what was given is not what was measured."
    if bool(given.oracle) != (report.pairing is not None):
        yield "The report must say how the oracle is paired if there is one, and only then."
    if given.reference < sum(name.startswith("reference") for name in arrays):
        yield "More references were measured than were given."


def _compare_metrics(report: Report) -> Iterator[str]:
    """Every contrast that the evidence carries is there, and none that it does not carry."""
    given = report.given
    has = {"oracle": given.oracle > 0, "original": given.original, "losses": given.losses}
    for name, contrast in OWN.items():
        if contrast.decides and name not in report.metrics:
            if name in report.distributions.scores:
                yield f"{name} decides and its scores are in the report, but its finding is missing."
            elif all(has.get(need, False) for need in contrast.needs):
                yield f"{name} decides and all that it needs was given, but its finding is missing."
    for name in report.metrics:
        needs = CONTRASTS[name].needs if name in CONTRASTS else ()
        if not all(has.get(need, True) for need in needs):
            yield f"{name} is reported, but what it needs ({', '.join(needs)}) was not given."


def _examine_metric(name: str, metric: MetricFinding, report: Report) -> Iterator[str]:
    """The numbers of a contrast agree with each other, and with what the audit was given."""
    given, control = report.given, metric.control
    if metric.name != name:
        yield f"The finding of {name} carries the name {metric.name!r}."
    corrected = [part.p_value for part in metric.parts.values()] + [layer.p_value for layer in metric.layers]
    p_values = [metric.p_value, control.original_p_value, *corrected]
    if any(p < 0 or p > 1 for p in p_values):
        yield f"A p-value of {name} lies outside 0 to 1."
    if any(p < metric.p_value - _CLOSE for p in corrected):
        yield f"A corrected p-value of {name} lies under its p-value."
    if not given.groups and not _contains(metric.interval, metric.value):  # of groups it is about the mean of means
        yield f"The value of {name} lies outside its interval."
    for part, found in metric.parts.items():
        if not _contains(found.interval, found.effect):
            yield f"The AUC of the {part} of {name} lies outside its interval."
    for layer in metric.layers:
        if not _contains(layer.effect_interval, layer.effect):
            yield f"The AUC of {name} at {layer.layer} lies outside its interval."
    if (control.kind == "held-out") != given.held_out or given.held_out != (control.n_control > 0):
        yield f"Whether {name} was compared with held-out records is stated inconsistently."
    n, what = (len(report.records), "records") if report.groups is None else (len(report.groups), "groups")
    if control.n_forget != n:
        yield f"{name} counts {control.n_forget} forget {what}; the report holds {n}."
    if not given.original and not (math.isnan(control.original_effect) and math.isnan(control.original_p_value)):
        yield f"{name} has numbers of the original, but none was given."
    yield from _examine_remaining(name, metric, report)


def _examine_remaining(name: str, metric: MetricFinding, report: Report) -> Iterator[str]:
    """What remains is stated once per scale, inside its interval, and by the least favourable layer."""
    everywhere = [metric.remaining, *(layer.remaining for layer in metric.layers)]
    listed = [pair for found in everywhere for pair in found.items()]
    if any(one.scale != scale or one.contrast != name for scale, one in listed):
        yield f"What remains by {name} is listed under another scale or contrast."
    if not all(
        _contains(ends, one.value) for _, one in listed for ends in ((one.low, one.high), (one.at_least, one.at_most))
    ):
        yield f"What remains by {name} lies outside its interval."
    if "original" in metric.remaining and not report.given.original:
        yield f"{name} is measured on the scale of the original, but none was given."
    for scale, one in metric.remaining.items():
        rows = [layer.remaining[scale] for layer in metric.layers if scale in layer.remaining]
        if metric.layers and not any(_is_same(one, row) for row in rows):
            yield f"What remains by {name} is none of the numbers of its layers."
        elif (worst := find_worst(rows)) is not None and worst.reach > one.reach + _CLOSE:
            yield f"What remains by {name} is not the least favourable number of its layers."


def _compare_scores(name: str, metric: MetricFinding, report: Report) -> Iterator[str]:
    """The AUC, computed again from the plotted scores where these are all scores of a single layer."""
    scores = report.distributions.scores.get(name, {})
    sizes = metric.control.n_forget, metric.control.n_control
    if metric.layers or report.groups is not None or report.provenance.get("grouped"):
        return
    if tuple(len(scores.get(side, ())) for side in ("forget", "held_out")) != sizes or not sizes[1]:
        return  # a sample, or none
    found = measure_effect(scores["forget"], scores["held_out"]).value
    if not _agree(found, metric.effect):
        yield f"The AUC of {name} is {metric.effect:.3f}; the scores in the report give {found:.3f}."


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
    if not _are_ordered(records):
        yield "What remains of a record in records.parquet lies outside its interval."
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
    is_plain = groups["finding"].isin([ALIKE, NOT_JUDGED]).to_numpy()
    if (is_plain == (q_values <= report.settings.alpha)).any():
        yield "Which groups stand out contradicts their q-values."
    if not _are_ordered(groups):
        yield "What remains of a group lies outside its interval."


def _are_ordered(table: "pd.DataFrame") -> bool:
    """Every row has what remains inside its intervals, or none of these numbers."""
    value = table["remaining"].to_numpy(np.float64)
    for ends in (("low", "high"), ("at_least", "at_most")):
        if not set(ends) <= set(table.columns):  # records have no one-sided limits
            continue
        low, high = (table[name].to_numpy(np.float64) for name in ends)
        is_inside = (low <= value + _CLOSE) & (value <= high + _CLOSE)
        if not (is_inside | (np.isnan(low) & np.isnan(value) & np.isnan(high))).all():
            return False
    return True


def _is_same(one: Remaining, other: Remaining) -> bool:
    names = ("value", "low", "high", "at_least", "at_most")
    return one.layer == other.layer and all(_agree(getattr(one, name), getattr(other, name)) for name in names)


def _contains(interval: Interval, value: float) -> bool:
    low, high = interval
    return math.isnan(low) or math.isnan(high) or math.isnan(value) or low - _CLOSE <= value <= high + _CLOSE


def _agree(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
