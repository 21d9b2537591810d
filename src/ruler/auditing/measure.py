"""Evidence -> how forget records lie against held-out ones by every contrast, before any verdict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from ruler.auditing.contrasts import CONTRASTS, Contrast
from ruler.auditing.crossfit import cross_fit
from ruler.auditing.evidence import Evidence, Side, SideScores
from ruler.auditing.findings import Sensitivity, Test
from ruler.core.arithmetic import norm_rows, unit_rows
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.auc import Effect, ScorePool, measure_effect
from ruler.stats.equivalence import Share, divide, equivalence_p_value, share_of_records
from ruler.stats.hybrid import compare_with_oracles, rank_differences
from ruler.stats.p_values import holm
from ruler.stats.permutation import compare_families
from ruler.stats.samples import average_by_group

_LEAST_MEMBERS = 10
_OTHER_POPULATION = 0.65
"""AUC of a classifier on representations; of membership alone it was 0.49 to 0.63, of other populations near 1."""


@dataclass(frozen=True, eq=False)
class Strand:
    """One score of the records: a contrast at one layer, as it is or as the distance from its middle.

    Args:
        layer: Where it was read.
        part: "place", the score itself, or "spread", its distance from the median of all (with several oracles, the
            distance of its rank from their mean rank).
        n_first: Forget records (or groups); they come first.
        now: (n,) in the unlearned model, forget then held-out records, group means where groups are named.
        before: The same in the original; None without it.
        oracles: (K, n) the same in the oracles, for the hybrid test; None otherwise.
    """

    layer: str
    part: str
    n_first: int
    now: FloatArray
    before: FloatArray | None
    oracles: FloatArray | None

    @cached_property
    def effect(self) -> Effect:
        """The contrast in the unlearned model."""
        return self._measure(self.now)

    @cached_property
    def effect_before(self) -> Effect:
        """The contrast in the original model."""
        assert self.before is not None
        return self._measure(self.before)

    def share(self, alpha: float) -> Share:
        """Part of the original's contrast that is left."""
        assert self.before is not None
        n = self.n_first
        if self.oracles is None:
            pairs = [(scores[:n], scores[n:]) for scores in (self.now, self.before)]
            return share_of_records(pairs[0], pairs[1], alpha=alpha)
        moved = np.array([rank_differences(scores, self.oracles) for scores in (self.now, self.before)])
        own = [ScorePool.of(row).rank() / len(row) for row in self.oracles]
        retrained = float(np.var([ranks[:n].mean() - ranks[n:].mean() for ranks in own], ddof=1))
        covariance = np.cov(moved[:, :n]) / n + np.cov(moved[:, n:]) / (moved.shape[1] - n)
        covariance += retrained * (np.eye(2) + 1 / len(self.oracles))
        distance = moved[:, :n].mean(axis=1) - moved[:, n:].mean(axis=1)
        return divide(float(distance[0]), float(distance[1]), covariance, freedom=len(own) - 1, alpha=alpha)

    def _measure(self, scores: FloatArray) -> Effect:
        if self.oracles is not None:
            return compare_with_oracles(scores, self.oracles, self.n_first)
        return measure_effect(scores[: self.n_first], scores[self.n_first :])


@dataclass(frozen=True, eq=False)
class Measurement:
    """A contrast with its control: what the verdict is read from.

    Args:
        contrast: Its row of the table.
        scores: ``scores[layer]``: per record, by side, in the unlearned model.
        strands: Place and spread at every layer; empty without held-out records.
        test: How the p-values were found.
        p_value: Are forget and held-out records alike in all strands?
        adjusted_p_value: The same corrected for all contrasts that decide.
        least_p_value: Smallest p-value that these records can give.
        sensitivity: Whether the contrast was seen in the positive control; None where that could not be tried.
        share: Part of the positive control's contrast that is left; None where it was not seen.
    """

    contrast: Contrast
    scores: Mapping[str, SideScores]
    strands: Sequence[Strand]
    test: Test
    p_value: float
    adjusted_p_value: float
    least_p_value: float
    sensitivity: Sensitivity | None
    share: Share | None

    @property
    def strongest(self) -> Strand:
        """Where forget and held-out records differ most."""
        return max(self.strands, key=lambda strand: abs(strand.effect.statistic))

    @property
    def place(self) -> Strand:
        """The place of the scores at the layer of the strongest strand."""
        return self._find("place")

    @property
    def spread(self) -> Strand:
        """The spread of the scores at the layer of the strongest strand."""
        return self._find("spread")

    def leaves_too_much(self, limit: float) -> bool:
        """Whether this contrast could have shown that its share left is below the limit, and did not."""
        return self.share is not None and self.share.least_upper < limit <= self.share.upper

    def show_equivalence(self, margin: float) -> float:
        """p-value of the claim that place and spread lie within the margin at every layer."""
        found = [equivalence_p_value(strand.effect, margin) for strand in self.strands]
        return float(np.max(found)) if found else math.nan

    def _find(self, part: str) -> Strand:
        layer = self.strongest.layer
        return next(strand for strand in self.strands if strand.part == part and strand.layer == layer)


def measure_contrasts(evidence: Evidence, *, is_hybrid: bool = False) -> dict[str, Measurement]:
    """All contrasts that this evidence can carry, by name.

    Args:
        evidence: Of the audit.
        is_hybrid: Compare the model with its oracles, which needs five of them, instead of permuting records.
    """
    has = {"oracle": evidence.has_oracle, "original": evidence.has_original, "losses": evidence.has_losses}
    usable = [contrast for contrast in CONTRASTS.values() if all(has[need] for need in contrast.needs)]
    scores = {one.name: score_layers(one, evidence) for one in usable}
    strands = {one.name: _make_strands(one, scores[one.name], evidence, is_hybrid) for one in usable}
    deciding = [one.name for one in usable if one.decides]
    judged = _test(deciding, strands, evidence, is_hybrid)
    if "m2" in judged:
        judged["m1"] = judged["m2"]  # the same scores
    if "m3" in strands:
        judged |= _test(["m3"], strands, evidence, is_hybrid=False)
    judged |= {one.name: (judged[one.name][0], math.nan, math.nan) for one in usable if not one.decides}
    controls = _try_positive_control(deciding, strands, evidence, is_hybrid)
    test: Test = "none" if not evidence.has_held_out else "hybrid" if is_hybrid else "permutation"
    return {
        one.name: Measurement(
            one, scores[one.name], strands[one.name], test, *judged[one.name], *controls.get(one.name, (None, None))
        )
        for one in usable
    }


def score_layers(contrast: Contrast, evidence: Evidence) -> dict[str, SideScores]:
    """Scores of all records in the unlearned model, layer by layer; what ignores layers is scored at the main one."""
    layers = evidence.layers if contrast.is_by_layer else (evidence.main_layer,)
    return {
        layer: dict(contrast.score(evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles]))
        for layer in layers
    }


def average_units(evidence: Evidence, scores: Mapping[Side, FloatArray], sides: tuple[Side, Side]) -> list[FloatArray]:
    """One value per record of each side, or per group where groups are named, each group counting once."""
    return [
        average_by_group(scores[side], evidence.groups[side]) if side in evidence.groups else scores[side]
        for side in sides
    ]


def rank_units(
    groups: Mapping[Side, npt.NDArray[Any]],
    scores: Mapping[Side, FloatArray],
    sides: tuple[Side, Side] = ("forget", "held_out"),
    *,
    is_spread: bool = False,
) -> list[FloatArray]:
    """One value per record of both sides, or per group where groups are named.

    A record's value is its score, or the score's distance from the middle. A group's value is the mean rank of its
    records among all, each group of weight one. Means of the scores would differ where nothing does: those of large
    groups scatter less, and where scores are skewed lie to one side of those of small groups.
    """
    joined, n_first = np.concatenate([scores[side] for side in sides]), len(scores[sides[0]])
    if not any(side in groups for side in sides):
        return np.split(np.abs(joined - np.median(joined)) if is_spread else joined, [n_first])
    owners = [np.unique(groups.get(side, np.arange(len(scores[side]))), return_inverse=True)[1] for side in sides]
    weights = np.concatenate([1.0 / np.bincount(codes)[codes] for codes in owners])

    def rank(values: FloatArray) -> FloatArray:
        pool, ranks = ScorePool.of(values), np.empty(len(values))
        ranks[pool.order] = pool.place(weights[None, :])[0]
        return ranks

    ranks = rank(joined)
    if is_spread:
        middle = joined[np.abs(ranks - weights.sum() / 2).argmin()]
        ranks = rank(np.abs(joined - middle))
    return [average_by_group(part, codes) for part, codes in zip(np.split(ranks, [n_first]), owners, strict=True)]


def unit_strata(evidence: Evidence) -> npt.NDArray[np.intp] | None:
    """Stratum of each forget and held-out record (or group), as a code; None where nothing was matched."""
    if not evidence.strata:
        return None
    parts = []
    for side in ("forget", "held_out"):
        labels = evidence.strata[side]
        if side in evidence.groups:
            labels = labels[np.unique(evidence.groups[side], return_index=True)[1]]
        parts.append(labels)
    return np.unique(np.concatenate(parts), return_inverse=True)[1]


def _make_strands(
    contrast: Contrast, now: Mapping[str, SideScores], evidence: Evidence, is_hybrid: bool
) -> list[Strand]:
    if not evidence.has_held_out:
        return []
    strands = []
    for layer, scores in now.items():
        oracles = [oracle[layer] for oracle in evidence.oracles]
        rows: list[Mapping[Side, FloatArray] | None] = [scores, None]
        if evidence.original is not None and "original" not in contrast.needs:
            before = evidence.original[layer]
            if before.losses is not None or "losses" not in contrast.needs:
                rows[1] = contrast.score(before, oracles)
        if is_hybrid and "original" not in contrast.needs:
            rows += [contrast.score(one, [*oracles[:k], *oracles[k + 1 :]]) for k, one in enumerate(oracles)]
        n_first = evidence.count_units("forget")
        joined = [None if row is None else np.concatenate(rank_units(evidence.groups, row)) for row in rows]
        assert joined[0] is not None
        if is_hybrid and len(joined) > 2:
            oracle_scores = np.array(joined[2:])
            strands.append(Strand(layer, "place", n_first, joined[0], joined[1], oracle_scores))
            strands.append(_measure_deviations(layer, n_first, joined[0], joined[1], oracle_scores))
            continue
        strands.append(Strand(layer, "place", n_first, joined[0], joined[1], None))
        spread = [
            None if row is None else np.concatenate(rank_units(evidence.groups, row, is_spread=True)) for row in rows
        ]
        assert spread[0] is not None
        strands.append(Strand(layer, "spread", n_first, spread[0], spread[1], None))
    return strands


def _measure_deviations(
    layer: str, n_first: int, now: FloatArray, before: FloatArray | None, oracles: FloatArray
) -> Strand:
    """Spread among several oracles: how far each record's rank lies from the mean rank of the (other) oracles."""

    def deviate(scores: FloatArray, others: FloatArray) -> FloatArray:
        return np.abs(rank_differences(scores, others))

    own = np.array([deviate(row, np.delete(oracles, k, axis=0)) for k, row in enumerate(oracles)])
    return Strand(
        layer, "spread", n_first, deviate(now, oracles), None if before is None else deviate(before, oracles), own
    )


def _test(
    names: Sequence[str],
    strands: Mapping[str, Sequence[Strand]],
    evidence: Evidence,
    is_hybrid: bool,
    *,
    is_before: bool = False,
) -> dict[str, tuple[float, float, float]]:
    """p-value, corrected p-value and least p-value of each contrast."""
    if not evidence.has_held_out or not names:
        return dict.fromkeys(names, (math.nan, math.nan, math.nan))
    if is_hybrid and all(strand.oracles is not None for name in names for strand in strands[name]):
        found = []
        for name in names:
            effects = [strand.effect_before if is_before else strand.effect for strand in strands[name]]
            found.append(min(1.0, len(effects) * min(_two_sided(effect) for effect in effects)))
        return {name: (p, float(q), 0.0) for name, p, q in zip(names, found, holm(found), strict=True)}
    rows = [(family, strand) for family, name in enumerate(names) for strand in strands[name]]
    scores = np.array([strand.before if is_before else strand.now for _, strand in rows])
    tested = compare_families(
        scores,
        rows[0][1].n_first,
        [family for family, _ in rows],
        strata=unit_strata(evidence),
        n_permutations=evidence.settings.n_permutations,
        seed=evidence.draw_seed,
        alpha=evidence.settings.alpha,
    )
    return {
        name: (float(p), float(q), tested.least_p_value)
        for name, p, q in zip(names, tested.p_values, tested.adjusted, strict=True)
    }


def _two_sided(effect: Effect) -> float:
    """p-value of a t test of no contrast; 1 where there is no standard error."""
    if math.isnan(effect.standard_error):
        return 1.0
    return min(1.0, 2.0 * float(t.sf(abs(effect.statistic), effect.freedom)))


def _try_positive_control(
    names: Sequence[str], strands: Mapping[str, Sequence[Strand]], evidence: Evidence, is_hybrid: bool
) -> dict[str, tuple[Sensitivity, Share | None]]:
    """Was each contrast seen where it had to be, and what part of it is left?"""
    if not evidence.has_held_out:
        return {}
    if not evidence.has_original:
        return _try_known_members(names, strands, evidence)
    alpha, limit = evidence.settings.alpha, evidence.settings.share_limit
    able = [name for name in names if all(strand.before is not None for strand in strands[name])]
    found = {}
    for name, (_, p_value, _) in _test(able, strands, evidence, is_hybrid, is_before=True).items():
        told = max(strands[name], key=lambda strand: abs(strand.effect_before.statistic))
        share = told.share(alpha) if p_value <= alpha else None
        is_clear = share is not None and share.least_upper < limit
        found[name] = Sensitivity("original", told.effect_before.value, p_value, share is not None, is_clear), share
    return found


def _try_known_members(
    names: Sequence[str], strands: Mapping[str, Sequence[Strand]], evidence: Evidence
) -> dict[str, tuple[Sensitivity, Share | None]]:
    """Retain against held-out records in the audited model: the place alone, and the share of its absolute size."""
    if "held_out" in evidence.groups and "retain" not in evidence.groups:
        return {}  # single records are no match for groups
    if evidence.has_oracle and _are_other_records(evidence):
        return {}
    told: dict[str, tuple[str, Effect]] = {}
    p_values = []
    for name in names:
        by_layer = {}
        for layer in dict.fromkeys(strand.layer for strand in strands[name]):
            effect = _compare_members(CONTRASTS[name], evidence, layer)
            if effect is not None:
                by_layer[layer] = effect
        if not by_layer:
            continue
        layer = max(by_layer, key=lambda layer: abs(by_layer[layer].statistic))
        told[name] = layer, by_layer[layer]
        p_values.append(min(1.0, len(by_layer) * _two_sided(by_layer[layer])))
    found = {}
    alpha, limit = evidence.settings.alpha, evidence.settings.share_limit
    for (name, (layer, effect)), p_value in zip(told.items(), holm(p_values), strict=True):
        now = next(strand for strand in strands[name] if strand.layer == layer and strand.part == "place").effect
        share = None
        if p_value <= alpha:
            variances = np.diag([now.standard_error**2, effect.standard_error**2])
            distances = abs(now.value - 0.5), abs(effect.value - 0.5)
            share = divide(*distances, variances, freedom=now.freedom, alpha=alpha)
        is_clear = share is not None and share.least_upper < limit
        sensitivity = Sensitivity("known members", effect.value, float(p_value), share is not None, is_clear)
        found[name] = sensitivity, share
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
