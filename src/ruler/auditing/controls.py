"""Was a contrast seen where it had to be? The original's forget records or, without it, known members."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ruler.auditing.contrasts import Contrast
from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Sensitivity
from ruler.auditing.strands import Strand, find_p_values, rank_units, two_sided
from ruler.core.arithmetic import norm_rows, unit_rows
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.auc import Effect, measure_effect
from ruler.stats.equivalence import Share, divide
from ruler.stats.logistic import fit_logistic, reduce_rows
from ruler.stats.p_values import holm

_LEAST_MEMBERS = 10
_OTHER_POPULATION = 0.65
"""AUC of a classifier on representations; of membership alone it was 0.49 to 0.63, of other populations near 1."""

_N_COMPONENTS, _N_FOLDS = 10, 5


def try_positive_control(
    contrasts: Mapping[str, Contrast], strands: Mapping[str, Sequence[Strand]], evidence: Evidence
) -> dict[str, tuple[Sensitivity, Share | None]]:
    """Was each contrast seen where it had to be, and what part of it is left? What could not be tried is missing."""
    if not evidence.has_held_out:
        return {}
    if not evidence.has_original:
        return _try_known_members(contrasts, strands, evidence)
    able = [name for name in contrasts if all(strand.before is not None for strand in strands[name])]
    found, seen_by = {}, {}
    for name, (_, p_value) in find_p_values(able, strands, evidence, is_before=True).items():
        told = max(strands[name], key=lambda strand: abs(strand.effect_before.statistic))
        share = told.share(evidence.settings.alpha) if p_value <= evidence.settings.alpha else None
        found[name] = Sensitivity("original", told.effect_before.value, p_value, share is not None), share
        seen_by[name] = abs(told.effect_before.statistic)
    return _mark_strongest(found, seen_by)


def _try_known_members(
    contrasts: Mapping[str, Contrast], strands: Mapping[str, Sequence[Strand]], evidence: Evidence
) -> dict[str, tuple[Sensitivity, Share | None]]:
    """Retain against held-out records in the audited model: the place alone, and the share of its absolute size."""
    if "held_out" in evidence.groups and "retain" not in evidence.groups:
        return {}  # single records are no match for groups
    if evidence.has_oracle and _are_other_records(evidence):
        return {}
    told: dict[str, tuple[str, Effect]] = {}
    p_values = []
    for name, contrast in contrasts.items():
        by_layer = {}
        for layer in dict.fromkeys(strand.layer for strand in strands[name]):
            effect = _compare_members(contrast, evidence, layer)
            if effect is not None:
                by_layer[layer] = effect
        if by_layer:
            layer = max(by_layer, key=lambda layer: abs(by_layer[layer].statistic))
            told[name] = layer, by_layer[layer]
            p_values.append(min(1.0, len(by_layer) * two_sided(by_layer[layer])))
    found, alpha = {}, evidence.settings.alpha
    for (name, (layer, effect)), p_value in zip(told.items(), holm(p_values), strict=True):
        now = next(strand for strand in strands[name] if strand.layer == layer and strand.part == "place").effect
        share = None
        if p_value <= alpha:
            variances = np.diag([now.standard_error**2, effect.standard_error**2])
            distances = abs(now.value - 0.5), abs(effect.value - 0.5)
            share = divide(*distances, variances, freedom=now.freedom, alpha=alpha)
        found[name] = Sensitivity("known members", effect.value, float(p_value), share is not None), share
    return _mark_strongest(found, {name: abs(effect.statistic) for name, (_, effect) in told.items()})


def _mark_strongest(
    found: dict[str, tuple[Sensitivity, Share | None]], statistics: Mapping[str, float]
) -> dict[str, tuple[Sensitivity, Share | None]]:
    """Mark the contrast that tells the positive control apart best, if any is seen."""
    seen = [name for name, (sensitivity, _) in found.items() if sensitivity.is_seen]
    if seen:
        best = max(seen, key=lambda name: statistics[name])
        found[best] = replace(found[best][0], is_strongest=True), found[best][1]
    return found


def _are_other_records(evidence: Evidence) -> bool:
    """Whether known members and held-out records differ by more than training: two populations, say.

    A classifier on the oracle's representations hardly tells members of one population by having been trained on them.
    """
    oracle = evidence.main_oracles[0]
    members = oracle.members[_match_labels(evidence, oracle.members)]
    if len(members) < _LEAST_MEMBERS or len(evidence.ids["held_out"]) < _LEAST_MEMBERS:
        return False
    blocks = (np.asarray(rows, dtype=np.float64) for rows in (oracle.rows["retain"][members], oracle.rows["held_out"]))
    rows = np.concatenate([unit_rows(block, norm_rows(block)) for block in blocks])
    scores = cross_fit(rows, len(members))
    return measure_effect(scores[: len(members)], scores[len(members) :]).value > _OTHER_POPULATION


def _compare_members(contrast: Contrast, evidence: Evidence, layer: str) -> Effect | None:
    """Known members against held-out records of the same labels, where labels are known; None if there are none."""
    model, oracles = evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles]
    members = model.members
    if contrast.score_members is not None:
        scores, kept = dict(contrast.score_members(model, oracles)), np.arange(len(members))
    else:
        scores = dict(contrast.score(model, oracles))
        n_retain = len(model.rows["retain"])
        # all retain rows are scored, or those that a map between models was not fitted on
        rows = np.arange(n_retain) if len(scores["retain"]) == n_retain else model.halves[1]
        kept = np.flatnonzero(np.isin(rows, members))
        members = rows[kept]
    chosen = _match_labels(evidence, members)
    if len(chosen) < 2:
        return None
    scores["retain"] = scores["retain"][kept[chosen]]
    groups = dict(evidence.groups)
    if "retain" in evidence.groups:
        groups["retain"] = evidence.groups["retain"][members[chosen]]
    return measure_effect(*rank_units(groups, scores, ("retain", "held_out")))


def _match_labels(evidence: Evidence, members: IndexArray) -> IndexArray:
    """Positions of members whose labels stand in the held-out records' proportions; all without labels."""
    if not {"retain", "held_out"} <= evidence.labels.keys():
        return np.arange(len(members))
    own, theirs = evidence.labels["retain"][members], evidence.labels["held_out"]
    names, counts = np.unique(theirs, return_counts=True)
    if len(names) > max(20, len(theirs) // 10):  # numbers rather than classes
        return np.arange(len(members))
    available = np.array([(own == name).sum() for name in names])
    if (available == 0).any():
        return np.empty(0, dtype=np.int64)
    quota = np.floor((available / counts).min() * counts).astype(np.int64)
    return np.sort(np.concatenate([np.flatnonzero(own == name)[:n] for name, n in zip(names, quota, strict=True)]))


def cross_fit(rows: FloatArray, n_first: int, units: npt.NDArray[np.intp] | None = None) -> FloatArray:
    """How much each record looks like one of the first set to a classifier that was fitted on the others: (n,).

    Logistic regression on ten principal components, in five folds that follow the rows' order.

    Args:
        rows: (n, p), the ``n_first`` rows of the first set first; their order must say nothing about them.
        n_first: Rows of the first set.
        units: (n,) codes of what must stay in one fold, such as groups; None for single records.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(60, 3)) + 4.0 * (np.arange(60) < 20)[:, None]
        >>> scores = cross_fit(rows, 20)
        >>> bool(scores[:20].min() > scores[20:].max())
        True
    """
    is_first = np.arange(len(rows)) < n_first
    if units is None:
        units = np.concatenate([np.arange(n_first), np.arange(len(rows) - n_first)])
    folds = units % _N_FOLDS
    if not np.ptp(rows, axis=0).any():
        return np.zeros(len(rows))  # rows that are all the same tell nothing
    n_components = min(_N_COMPONENTS, rows.shape[1], len(rows) - 1)
    reduced = reduce_rows(rows, n_components)
    spread = reduced.std(axis=0)
    reduced = reduced / np.where(spread > 1e-9 * max(1e-300, float(spread.max())), spread, np.inf)
    scores = np.zeros(len(rows))
    for fold in range(_N_FOLDS):
        rest, own = folds != fold, folds == fold
        if own.any() and len(np.unique(is_first[rest])) == 2:
            slopes, intercept = fit_logistic(reduced[rest], is_first[rest])
            scores[own] = reduced[own] @ slopes + intercept
    return scores
