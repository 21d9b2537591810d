"""One score of the records at one layer: how far apart it holds forget and held-out records, and by what chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from ruler.auditing.contrasts import Contrast
from ruler.auditing.evidence import Evidence, Side, SideScores
from ruler.core.types import FloatArray
from ruler.stats.auc import Effect, ScorePool, measure_effect
from ruler.stats.equivalence import Share, divide, share_of_records
from ruler.stats.hybrid import compare_with_oracles, rank_differences
from ruler.stats.p_values import holm
from ruler.stats.permutation import compare_families
from ruler.stats.samples import average_by_group


@dataclass(frozen=True, eq=False)
class Strand:
    """One score of the records: a contrast at one layer, as it is or as the distance from its middle."""

    layer: str  # where it was read
    # "place", the score itself, or "spread", its distance from the median of all (with several oracles, the distance of
    # its rank from their mean rank)
    part: Literal["place", "spread"]
    n_first: int  # forget records (or groups); they come first
    now: FloatArray  # (n,) in the unlearned model, forget then held-out records, group means where groups are named
    before: FloatArray | None  # the same in the original; None without it
    oracles: FloatArray | None  # (K, n) the same in the oracles, for the hybrid test; None otherwise

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


def make_strands(contrast: Contrast, scores: Mapping[str, SideScores], evidence: Evidence) -> list[Strand]:
    """Place and spread of a contrast, whose scores in the unlearned model are known by layer, at every layer.

    With enough oracles each of them is scored too, against the others. None without held-out records.
    """
    if not evidence.has_held_out:
        return []

    def join(scores: Mapping[Side, FloatArray], *, is_spread: bool = False) -> FloatArray:
        return np.concatenate(rank_units(evidence.groups, scores, is_spread=is_spread))

    def deviate(scores: FloatArray, others: FloatArray) -> FloatArray:
        return np.abs(rank_differences(scores, others))

    strands, n_first = [], evidence.count_units("forget")
    for layer, now in scores.items():
        oracles = [oracle[layer] for oracle in evidence.oracles]
        before = None
        if evidence.original is not None and "original" not in contrast.needs:
            original = evidence.original[layer]
            if original.losses is not None or "losses" not in contrast.needs:
                before = contrast.score(original, oracles)
        place, place_before = join(now), None if before is None else join(before)
        if evidence.is_hybrid and "original" not in contrast.needs:
            others = [[*oracles[:k], *oracles[k + 1 :]] for k in range(len(oracles))]
            own = np.array([join(contrast.score(one, rest)) for one, rest in zip(oracles, others, strict=True)])
            spread, spread_before = deviate(place, own), None if place_before is None else deviate(place_before, own)
            own_spread = np.array([deviate(row, np.delete(own, k, axis=0)) for k, row in enumerate(own)])
            strands.append(Strand(layer, "place", n_first, place, place_before, own))
            strands.append(Strand(layer, "spread", n_first, spread, spread_before, own_spread))
            continue
        spread, spread_before = join(now, is_spread=True), None if before is None else join(before, is_spread=True)
        strands.append(Strand(layer, "place", n_first, place, place_before, None))
        strands.append(Strand(layer, "spread", n_first, spread, spread_before, None))
    return strands


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


def _unit_strata(evidence: Evidence) -> npt.NDArray[np.intp] | None:
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


def find_p_values(
    names: Sequence[str], strands: Mapping[str, Sequence[Strand]], evidence: Evidence, *, is_before: bool = False
) -> dict[str, tuple[float, float]]:
    """p-value of each contrast, and the same corrected for all that are named; of the original if ``is_before``.

    By permutation of records or groups or, where oracles were scored, by comparison with them.
    """
    if not evidence.has_held_out or not names:
        return dict.fromkeys(names, (math.nan, math.nan))
    if all(strand.oracles is not None for name in names for strand in strands[name]):
        found = []
        for name in names:
            effects = [strand.effect_before if is_before else strand.effect for strand in strands[name]]
            found.append(min(1.0, len(effects) * min(two_sided(effect) for effect in effects)))
        return {name: (p, float(q)) for name, p, q in zip(names, found, holm(found), strict=True)}
    rows = [(family, strand) for family, name in enumerate(names) for strand in strands[name]]
    tested = compare_families(
        np.array([strand.before if is_before else strand.now for _, strand in rows]),
        rows[0][1].n_first,
        [family for family, _ in rows],
        strata=_unit_strata(evidence),
        n_permutations=evidence.settings.n_permutations,
        seed=evidence.draw_seed,
        alpha=evidence.settings.alpha,
        kept=evidence.kept_labels,
    )
    return {name: (float(p), float(q)) for name, p, q in zip(names, tested.p_values, tested.adjusted, strict=True)}


def two_sided(effect: Effect) -> float:
    """p-value of a t test of no contrast; 1 where there is no standard error."""
    if math.isnan(effect.standard_error):
        return 1.0
    return min(1.0, 2.0 * float(stdtr(effect.freedom, -abs(effect.statistic))))
