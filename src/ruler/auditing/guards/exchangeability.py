"""Are the held-out records fair? A model that saw neither side must not be able to tell it from the forget records."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ruler.auditing.controls import cross_fit
from ruler.auditing.evidence import LEAST_ORACLES, Evidence, Side
from ruler.auditing.findings import GuardFinding
from ruler.auditing.units import rank_units
from ruler.core.types import FloatArray
from ruler.neighbors import Searcher
from ruler.stats.contingency import homogeneity_p_value
from ruler.stats.permutation import shuffle_labels
from ruler.stats.rank_sum import rank_sum_p_value

LEVEL = 0.01
"""Of the guard as a whole: fair held-out records are called unfair in one audit of a hundred."""

LEVEL_OF_SEVERAL = 0.05
"""With several oracles the guard only chooses the error. Both are valid for fair records, so doubt may come sooner."""

_SIDES: tuple[Side, Side] = ("forget", "held_out")
_N_DRAWS = 1999
_MOST_CLASSES = 50


def check_exchangeability(evidence: Evidence) -> Iterator[GuardFinding]:
    """Forget records that differ from the held-out ones in labels, in features or in the oracle, trained on neither."""
    if not evidence.has_held_out:
        return
    found = {name: p for name, p in _find_differences(evidence).items() if not math.isnan(p)}
    n_oracles, is_declared = len(evidence.oracles), evidence.settings.control == "same-rule"
    is_settled = is_declared or n_oracles >= LEAST_ORACLES
    level = LEVEL_OF_SEVERAL if n_oracles >= LEAST_ORACLES else LEVEL
    if not found or len(found) * min(found.values()) > level:
        return
    telling = [name for name, p in sorted(found.items(), key=lambda item: item[1]) if len(found) * p <= level]
    told_by = telling[0] if len(telling) == 1 else f"{', '.join(telling[:-1])} and {telling[-1]}"
    matched = " of the same strata" if evidence.strata else ""
    yield GuardFinding(
        "not_exchangeable",
        "note" if is_settled else "warn",
        f"Forget and held-out records{matched} differ before any memory: they can be told apart by "
        f"{told_by} (p = {min(found.values()) * len(found):.2g}). A contrast may then be due to "
        "which records were chosen"
        + (
            ". They were declared to be chosen by the same rule, so the audit goes on."
            if is_declared
            else f"; the error of {n_oracles} oracles allows for it."
            if is_settled
            else f", so that {'one oracle' if n_oracles else 'this audit'} can neither clear nor accuse the model."
        ),
        _advise_held_out(evidence, telling),
        blocks=not is_settled,
    )


def _advise_held_out(evidence: Evidence, telling: list[str]) -> str:
    """Which held-out records would be fair, as far as the evidence tells."""
    wanted = "Hold out records that were drawn as the forget records were: same class, person type, period and source"
    if "their labels" in telling:
        labels, counts = np.unique(evidence.labels["forget"], return_counts=True)
        shares = sorted(zip(counts / counts.sum(), labels.tolist(), strict=True), key=lambda item: -item[0])[:3]
        mix = ", ".join(f"{share:.0%} labelled {str(label)[:40]!r}" for share, label in shares)
        wanted += f" ({mix}; match_labels=True compares records of the same labels)"
    return (
        f"{wanted}. If the same rule chose them, say so (control='same-rule'). Or give several oracles from several "
        "seeds: they can accuse a model without such records, but not clear it."
    )


def _find_differences(evidence: Evidence) -> dict[str, float]:
    """p-value of each way in which forget and held-out records differ: in the first oracle, features and labels."""
    scores: dict[str, dict[Side, FloatArray]] = {}
    rows: FloatArray | None = None
    oracle = evidence.neutral
    if oracle is not None:
        scores["the length of their representations"] = dict(oracle.log_norms)
        if oracle.losses is not None:
            scores["their losses"] = dict(oracle.losses)
        scores["their nearest retain records"] = {side: oracle.nearest[side].similarity[:, 0] for side in _SIDES}
        rows = oracle.unit(_SIDES)
        scores["their representations"] = _cross_fit(rows, evidence)
    if set(_SIDES) <= evidence.features.keys():
        raw = np.concatenate([evidence.features[side] for side in _SIDES])
        spread = raw.std(axis=0)
        scaled = (raw - raw.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        scores["their input features"] = _cross_fit(scaled, evidence)
    found = {}
    for name, by_side in scores.items():
        first, second = rank_units(evidence.groups, by_side, _SIDES)
        is_fitted = name in ("their representations", "their input features")  # only a high score speaks for forget
        found[name] = rank_sum_p_value(first, second, "greater" if is_fitted else "two-sided")
    if "forget" not in evidence.groups:
        if rows is not None:
            found["how they cluster (are there groups, such as people, that were not named?)"] = _test_clusters(
                rows, len(evidence.ids["forget"]), evidence.main.search
            )
        if set(_SIDES) <= evidence.labels.keys():
            found["their labels"] = _compare_labels(*(evidence.labels[side] for side in _SIDES))
    return found


def _cross_fit(rows: FloatArray, evidence: Evidence) -> dict[Side, FloatArray]:
    """How much each record looks like a forget record to a classifier that was fitted on the others."""
    n = len(evidence.ids["forget"])
    units = [
        np.unique(evidence.groups.get(side, np.arange(len(evidence.ids[side]))), return_inverse=True)[1]
        for side in _SIDES
    ]
    scores = cross_fit(rows, n, np.concatenate(units))
    return {"forget": scores[:n], "held_out": scores[n:]}


def _test_clusters(pooled: FloatArray, n_first: int, search: Searcher) -> float:
    """p-value of Schilling's test that nearest neighbours share a side by chance: labels permute, neighbours stay."""
    n = len(pooled)
    if min(n_first, n - n_first) < 5:
        return math.nan
    partner = search(pooled, pooled, exclude_self=True).index[:, 0]
    start = np.arange(n) < n_first
    rng = np.random.default_rng(0)  # not the audit's seed, which must not decide whether there is a verdict
    size = max(1, (1 << 20) // n)
    observed, counts, n_drawn = int((start == start[partner]).sum()), 0, 0
    while n_drawn < _N_DRAWS:
        labels = shuffle_labels(rng, start, min(size, _N_DRAWS - n_drawn))
        n_alike = np.count_nonzero(labels == labels.take(partner, axis=1), axis=1)
        counts += int(np.count_nonzero(n_alike >= observed))
        n_drawn += len(labels)
    return (counts + 1) / (n_drawn + 1)


def _compare_labels(forget: npt.NDArray[np.generic], held_out: npt.NDArray[np.generic]) -> float:
    """p-value of the chi-squared test that both sides have the same mix of labels; NaN for numbers."""
    names, codes = np.unique(np.concatenate([forget, held_out]), return_inverse=True)
    if not 2 <= len(names) <= min(_MOST_CLASSES, len(codes) // 5):
        return math.nan
    table = np.array([np.bincount(part, minlength=len(names)) for part in np.split(codes, [len(forget)])])
    return homogeneity_p_value(table)
