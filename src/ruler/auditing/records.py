"""Values per record: which forget records, and which erasure requests, stand out, and what the plots show."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.contrasts import OWN
from ruler.auditing.contrasts.loss import subtract_loss
from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Distributions
from ruler.auditing.measure import Measurement, list_judging
from ruler.auditing.plane import draw_plane
from ruler.auditing.privacy import trace_roc
from ruler.auditing.rule import POWER
from ruler.auditing.strands import Strand, find_trace
from ruler.core.arithmetic import TIE_SLACK
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray
from ruler.metrics.paper import rank_within, subtract_baseline
from ruler.stats.auc import ROUNDING
from ruler.stats.p_values import adjust_p_values, conformal_p_values
from ruler.stats.samples import average_by_group
from ruler.stats.scale import shares_of_single

if TYPE_CHECKING:
    import pandas as pd

ALIKE = "does not stand out"
NOT_JUDGED = "not judged"
"""Of records without fair held-out ones to compare them with."""

_SHARES = ("remaining", "low", "high", "at_least", "at_most")
_LEAST_SETS = 10
_RANK_EDGES = np.linspace(0.0, 1.0, 21)


def tabulate_records(evidence: Evidence, found: Mapping[str, Measurement]) -> "pd.DataFrame":
    """One row per forget record, in the order given.

    A record's p-value is conformal: how many held-out records are at least as unusual among all records, by whichever
    deciding contrast shows it most. q-values are Benjamini-Hochberg's over all records. Without fair held-out records
    there are none. Metrics of other packages have a column under their own name.

    Args:
        evidence: Of the audit.
        found: The measured contrasts.
    """
    pandas = load_optional("pandas", "listing the records of an audit")
    main, missing = evidence.main_layer, np.full(len(evidence.ids["forget"]), np.nan)
    scores = {name: one.scores[main if main in one.scores else list(one.scores)[-1]] for name, one in found.items()}
    nearest = evidence.main.nearest
    losses = evidence.main.losses
    has_reference = losses is not None and any(oracle.losses is not None for oracle in evidence.main_oracles)
    p_values, told = _judge(evidence, found)
    q_values = adjust_p_values(p_values)
    remaining, low, high = measure_each(evidence, found, None)[:3]
    columns: dict[str, Any] = {
        "id": evidence.ids["forget"],
        "group": evidence.groups.get("forget", np.full(len(missing), None)),
        "remaining": remaining,
        "low": low,
        "high": high,
        "oracle_similarity": scores["m2"]["forget"] if "m2" in scores else missing,
        "oracle_gap": subtract_baseline(scores["m2"]["forget"], scores["m2"]["retain"]) if "m2" in scores else missing,
        "shift": scores["m3"]["forget"] if "m3" in scores else missing,
        "nearest_similarity": scores["m4"]["forget"],
        "nearest_retain": evidence.ids["retain"][nearest["forget"].index[:, 0]],
        "percentile_rank": rank_within(scores["m4"]["forget"], nearest["retain"].similarity[:, 0]),
        "norm_ratio": np.exp(scores["norm"]["forget"]) if "norm" in scores else missing,
        "loss": missing if losses is None else losses["forget"],
        "loss_gap": subtract_loss(evidence.main, evidence.main_oracles)["forget"] if has_reference else missing,
        "p_value": p_values,
        "q_value": q_values,
        "finding": _name(told, q_values, evidence.settings.alpha),
        **{name: by_side["forget"] for name, by_side in scores.items() if name not in OWN},
    }
    table: pd.DataFrame = pandas.DataFrame(columns)
    return table.iloc[np.argsort(evidence.order, kind="stable")].reset_index(drop=True)


def tabulate_groups(
    evidence: Evidence, found: Mapping[str, Measurement], records: "pd.DataFrame"
) -> "pd.DataFrame | None":
    """One row per group of the forget records, an erasure request each; None without groups.

    The group's means are compared with the means of held-out groups. Where these are not named, they are compared with
    the means of random sets of as many held-out records, which takes the records of a group to be unlike each other:
    likeness inside a group makes the p-value too small.
    """
    if "forget" not in evidence.groups:
        return None
    by_group = records.iloc[evidence.order].groupby("group", sort=False)  # sums in an order that follows from content
    table = by_group.agg(
        n_records=("id", "size"),
        oracle_similarity=("oracle_similarity", "mean"),
        nearest_similarity=("nearest_similarity", "mean"),
        shift=("shift", "mean"),
        loss_gap=("loss_gap", "mean"),
        n_flagged=("finding", lambda named: int((~named.isin([ALIKE, NOT_JUDGED])).sum())),
    )
    table = table.loc[records["group"].drop_duplicates()]  # in the order given
    names = np.unique(evidence.groups["forget"])
    p_values, told = np.full(len(names), np.nan), [""] * len(names)
    if evidence.is_fair and evidence.has_held_out:
        p_values, told = _judge_groups(evidence, found)
    place = {name: row for row, name in enumerate(names.tolist())}
    order = [place[name] for name in table.index.tolist()]
    table["p_value"] = p_values[order]
    table["q_value"] = adjust_p_values(table["p_value"].to_numpy())
    table["finding"] = _name([told[row] for row in order], table["q_value"].to_numpy(), evidence.settings.alpha)
    measured = measure_each(evidence, found, evidence.groups["forget"])
    for column, (name, values) in enumerate(zip(_SHARES, measured, strict=True), 1):
        table.insert(column, name, values[order])
    table.insert(6, "verdict", "inconclusive")  # until `decide` reads it from the numbers
    return table.reset_index()


def collect_distributions(evidence: Evidence, found: Mapping[str, Measurement]) -> Distributions:
    """Scores by contrast and side, ROC curves, ranks and the plane; long sides are thinned to a random sample."""
    rng = np.random.default_rng(evidence.settings.seed)

    def thin(values: FloatArray) -> FloatArray:
        most = evidence.settings.n_plotted
        return values if len(values) <= most else values[np.sort(rng.choice(len(values), most, replace=False))]

    shown: dict[str, dict[str, FloatArray]] = {}
    for name, one in found.items():
        if one.contrast.decides or name not in OWN:
            layer = one.told.layer if one.strands else list(one.scores)[-1]
            by_side = {**one.scores[layer], **(one.told.own if one.strands else {})}
            shown[name] = {str(side): thin(own[np.isfinite(own)]) for side, own in by_side.items()}
    nearest = found["m4"].scores[evidence.main_layer]
    ranks = {side: rank_within(own, nearest["retain"]) for side, own in nearest.items() if side != "retain"}
    return Distributions(
        scores=shown,
        roc=trace_roc(found),
        rank_edges=_RANK_EDGES,
        rank_counts={side: np.histogram(one, _RANK_EDGES)[0].astype(np.float64) for side, one in ranks.items()},
        plane=draw_plane(evidence),
    )


def _deciding_scores(
    evidence: Evidence, found: Mapping[str, Measurement]
) -> list[tuple[Measurement, FloatArray, FloatArray]]:
    """Forget and held-out scores of every deciding contrast at every layer; of rulers without what references show."""
    return [
        (one, strand.own["forget"], strand.own["held_out"]) for one in list_judging(found) for strand in one.strands
    ]


def measure_each(evidence: Evidence, found: Mapping[str, Measurement], owners: npt.NDArray[Any] | None) -> FloatArray:
    """What remains of a typical record's trace in each forget record, or of a typical group's in each group.

    Every ruler that sees the trace gives an interval. The least favourable of those that can show the limit is taken;
    if none can, the most precise.

    Args:
        evidence: Of the audit.
        found: The measured contrasts.
        owners: (n,) group of each forget record, for one row per group in sorted order; None for single records.

    Returns:
        (5, n) values, two-sided limits and one-sided limits, as `shares_of_single`; NaN where nothing sees the trace.
    """
    n = len(evidence.ids["forget"]) if owners is None else len(np.unique(owners))
    best, rank = np.full((5, n), np.nan), np.full((2, n), -np.inf)
    if not (evidence.has_held_out and evidence.is_fair):
        return best
    for strand in [strand for one in list_judging(found) if one.contrast.is_ruler for strand in one.strands]:
        trace = find_trace(strand)
        if trace is None:
            continue
        for rows, first, second in _match_units(evidence, strand, owners):
            limits = shares_of_single(first, second, trace.size, alpha=1 - evidence.settings.confidence)
            reach, width = np.abs(limits[1:]).max(axis=0), limits[2] - limits[1]
            is_capable = trace.size >= POWER / evidence.settings.limit * float(second.std(ddof=1))
            own_rank = np.array([np.full(len(first), float(is_capable)), reach if is_capable else -width])
            is_worse = (own_rank[0] > rank[0, rows]) | ((own_rank[0] == rank[0, rows]) & (own_rank[1] > rank[1, rows]))
            best[:, rows[is_worse]], rank[:, rows[is_worse]] = limits[:, is_worse], own_rank[:, is_worse]
    return best


def _match_units(
    evidence: Evidence, strand: Strand, owners: npt.NDArray[Any] | None
) -> list[tuple[npt.NDArray[np.intp], FloatArray, FloatArray]]:
    """Places, scores, and the scores of held-out records, groups or sets of as many records to compare them with."""
    first, second = strand.own["forget"], strand.own["held_out"]
    if len(second) < 2:
        return []
    if owners is None:
        return [(np.arange(len(first)), first, second)]
    means = average_by_group(first, owners)
    if "held_out" in evidence.groups:
        theirs = average_by_group(second, evidence.groups["held_out"])
        return [(np.arange(len(means)), means, theirs)] if len(theirs) > 1 else []
    sizes = np.unique(owners, return_counts=True)[1]
    drawn = {int(size): _draw_sets(evidence, int(size)) for size in np.unique(sizes)}
    return [
        (rows, means[rows], second[sets].mean(axis=1))
        for size, sets in drawn.items()
        if len(sets)
        for rows in [np.flatnonzero(sizes == size)]
    ]


def _draw_sets(evidence: Evidence, size: int) -> npt.NDArray[np.intp]:
    """Held-out records in random sets that share none, (n_sets, size); none if they are too few for ten sets."""
    n_sets = len(evidence.ids["held_out"]) // size
    if n_sets < _LEAST_SETS:
        return np.empty((0, size), dtype=np.intp)
    rng = np.random.default_rng(evidence.draw_seed)
    return rng.permutation(len(evidence.ids["held_out"]))[: n_sets * size].reshape(n_sets, size)


def _judge(evidence: Evidence, found: Mapping[str, Measurement]) -> tuple[FloatArray, list[str]]:
    """p-value and finding of each forget record."""
    n = len(evidence.ids["forget"])
    if not (evidence.is_fair and evidence.has_held_out):
        return np.full(n, np.nan), [""] * n
    usual, told = _combine(_deciding_scores(evidence, found))
    p_values = conformal_p_values(usual[:n], usual[n:], tail="low")
    return _join_ruler(p_values, told[:n], evidence, found, None)


def _judge_groups(evidence: Evidence, found: Mapping[str, Measurement]) -> tuple[FloatArray, list[str]]:
    """p-value and finding of each forget group, groups in sorted order."""
    scored = _deciding_scores(evidence, found)
    owners = evidence.groups["forget"]
    names, sizes = np.unique(owners, return_counts=True)
    means = [(one, average_by_group(forget, owners), held_out) for one, forget, held_out in scored]
    p_values, findings = np.full(len(names), np.nan), [""] * len(names)
    if "held_out" in evidence.groups:
        theirs = evidence.groups["held_out"]
        usual, told = _combine([(one, own, average_by_group(rest, theirs)) for one, own, rest in means])
        p_values = conformal_p_values(usual[: len(names)], usual[len(names) :], tail="low")
        return _join_ruler(p_values, told[: len(names)], evidence, found, owners)
    for size in np.unique(sizes):
        drawn = _draw_sets(evidence, int(size))
        if not len(drawn):
            continue
        rows = np.flatnonzero(sizes == size)
        usual, told = _combine([(one, own[rows], rest[drawn].mean(axis=1)) for one, own, rest in means])
        p_values[rows] = conformal_p_values(usual[: len(rows)], usual[len(rows) :], tail="low")
        for row, finding in zip(rows, told, strict=False):
            findings[row] = finding
    return _join_ruler(p_values, findings, evidence, found, owners)


def _join_ruler(
    p_values: FloatArray,
    told: list[str],
    evidence: Evidence,
    found: Mapping[str, Measurement],
    owners: npt.NDArray[Any] | None,
) -> tuple[FloatArray, list[str]]:
    """The smaller of two p-values, doubled: the one given, and the rank among held-out ones by the sharpest ruler.

    If many records are remembered, they hide each other from a comparison with all records, but not from the ruler.
    Which ruler is the sharpest follows from held-out records and from the trace of training.
    """
    rulers = [
        (trace.size / max(float(strand.now[strand.n_first :].std()), 1e-300), one.contrast, strand)
        for one in list_judging(found)
        if one.contrast.is_ruler
        for strand in one.strands
        if (trace := find_trace(strand)) is not None
    ]
    if not rulers:
        return p_values, told
    _, contrast, strand = max(rulers, key=lambda ruler: ruler[0])
    joined, words = p_values.copy(), list(told)
    for rows, first, second in _match_units(evidence, strand, owners):
        own = conformal_p_values(-first, -second, tail="low")
        for row, p_value in zip(rows, own, strict=True):
            if p_value < p_values[row]:
                joined[row], words[row] = p_value, contrast.high
    return np.minimum(1.0, 2.0 * joined), words


def _combine(scored: list[tuple[Measurement, FloatArray, FloatArray]]) -> tuple[FloatArray, list[str]]:
    """How usual each record's most unusual score is among all records, and what that score says of it.

    Ranks would not do: every contrast has a lowest and a highest record, however near the others, and any of them would
    be as rare as a memorised record.
    """
    usual = np.full(len(scored[0][1]) + len(scored[0][2]), np.inf)
    words: npt.NDArray[Any] = np.full(len(usual), "", dtype=object)
    for one, forget, held_out in scored:
        pooled = np.concatenate([forget, held_out])
        distance = pooled - np.median(pooled)
        below, above = _log_rarity(-distance), _log_rarity(distance)
        is_low = (below <= above) | (one.contrast.record_tail == "low")
        own = np.where(is_low, below, above) + (0.0 if one.contrast.record_tail == "low" else math.log(2))
        is_rarer = own < usual
        usual = np.where(is_rarer, own, usual)
        words[is_rarer] = np.where(is_low, one.contrast.low, one.contrast.high)[is_rarer]
    return usual, words.tolist()


def _log_rarity(distance: FloatArray) -> FloatArray:
    """Logarithm of the chance of so large a distance, by the Weibull tail through the 70% and 90% quantiles.

    It makes contrasts with light and heavy tails comparable; p-values only need that it treats all records alike.
    """
    near, far = np.quantile(distance, [0.7, 0.9])
    shape = 1.0
    if near > TIE_SLACK and far > near * (1 + ROUNDING):
        shape = min(8.0, math.log(math.log(0.1) / math.log(0.3)) / math.log(far / near))
    rarity: FloatArray = math.log(0.1) * (np.maximum(distance, 0.0) / max(far, TIE_SLACK)) ** shape
    return rarity


def _name(told: list[str], q_values: FloatArray, alpha: float) -> list[str]:
    return [
        NOT_JUDGED if np.isnan(q) else words if q <= alpha else ALIKE for words, q in zip(told, q_values, strict=True)
    ]
