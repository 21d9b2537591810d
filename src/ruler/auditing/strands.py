"""One contrast at one layer: what is compared of forget and held-out records (or groups), and the trace that is 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ruler.auditing.adjust import span_neutral, subtract_references
from ruler.auditing.contrasts import Contrast, SideScores
from ruler.auditing.controls import match_members
from ruler.auditing.evidence import Evidence, LayerRows, Side
from ruler.auditing.findings import SEEN, Scale
from ruler.core.types import FloatArray
from ruler.stats.auc import ScorePool, measure_effect
from ruler.stats.samples import average_by_group

_SIDES: tuple[Side, Side] = ("forget", "held_out")
_TAIL = 0.9  # quantile of all scores beyond which a score counts as unusually high


@dataclass(frozen=True, eq=False)
class Strand:
    """One contrast at one layer: the scores of forget and held-out records (or groups), forget first."""

    contrast: str  # its name
    layer: str
    n_first: int  # forget records (or groups)
    now: FloatArray  # (n,) in the audited model, what references show of the records subtracted
    before: FloatArray | None  # the same in the original; None without it
    parts: Mapping[str, FloatArray]  # "place", "spread", "tail": what is compared, by ranks unless it is a ruler
    parts_before: Mapping[str, FloatArray]  # the same in the original
    members: FloatArray | None  # scores of known members, comparable with ``plain``; None where there are none
    plain: FloatArray | None  # as ``now``, oracles not subtracted, since they know the members too
    own: Mapping[Side, FloatArray] = field(default_factory=dict)  # ``now`` of single records

    @cached_property
    def effect(self) -> float:
        """AUC of the scores, forget against held-out records."""
        return measure_effect(self.now[: self.n_first], self.now[self.n_first :]).value


def make_strands(name: str, contrast: Contrast, scores: Mapping[str, SideScores], evidence: Evidence) -> list[Strand]:
    """A strand per layer."""
    return [_make_strand(name, contrast, layer, own, evidence) for layer, own in scores.items()]


def _make_strand(name: str, contrast: Contrast, layer: str, own: SideScores, evidence: Evidence) -> Strand:
    oracles = [one[layer] for one in evidence.oracles]
    original = None if evidence.original is None else evidence.original[layer]
    before: SideScores | None = None
    if original is not None and name != "m3" and can_score(contrast, original):
        before = contrast.score(original, oracles)
    now, plain = own, own
    if contrast.is_adjusted:
        known = [one for one in oracles if can_score(contrast, one)]
        others = [one[layer] for one in evidence.references if can_score(contrast, one[layer], is_reference=True)]
        of_oracles = [_average([contrast.score(one, []) for one in known])] if known else []
        of_others = [contrast.score(one, []) for one in others]
        now = subtract_references(own, [*of_oracles, *of_others], is_fitted=evidence.is_fair)
        plain = subtract_references(own, of_others, is_fitted=evidence.is_fair)
        if before is not None:
            before = subtract_references(before, [*of_oracles, *of_others], is_fitted=evidence.is_fair)
    average = Averager(evidence)
    neutral = span_neutral(evidence, layer)
    parts = _cut(contrast, now, average)
    members = _choose_members(contrast, plain, evidence)
    return Strand(
        name,
        layer,
        evidence.count_units("forget"),
        average(now),
        None if before is None else average(before),
        {part: values - neutral @ (neutral.T @ values) for part, values in parts.items()},
        {} if before is None else _cut(contrast, before, average),
        members,
        None if members is None else average(plain),
        {side: now[side] for side in _SIDES},
    )


def can_score(contrast: Contrast, model: LayerRows, *, is_reference: bool = False) -> bool:
    """Whether a model carries what a contrast scores; references were not relearned, and serve as they are."""
    if "losses" in contrast.needs:
        return model.losses is not None
    if "relearned" in contrast.needs:
        return model.relearned is not None or (is_reference and model.losses is not None)
    return bool(model.rows)


def _average(scores: Sequence[SideScores]) -> SideScores:
    return {side: np.mean([one[side] for one in scores], axis=0) for side in scores[0]}


@dataclass(frozen=True, eq=False)
class Averager:
    """Records of both sides, or their groups where these are named: forget first, each group by its mean."""

    evidence: Evidence

    def __call__(self, by_side: Mapping[Any, FloatArray]) -> FloatArray:
        """(n,) one value per record or group."""
        groups = self.evidence.groups
        return np.concatenate(
            [average_by_group(by_side[side], groups[side]) if side in groups else by_side[side] for side in _SIDES]
        )


def _cut(contrast: Contrast, scores: SideScores, average: Averager) -> dict[str, FloatArray]:
    """What is compared: place, spread and, of rulers, the upper tail; of other contrasts their ranks."""
    joined = np.concatenate([scores[side] for side in _SIDES])
    n = len(scores["forget"])

    def split(values: FloatArray) -> FloatArray:
        return average(dict(zip(_SIDES, np.split(values, [n]), strict=True)))

    if contrast.knows_original:
        return {"place": split(joined)}
    distance = np.abs(joined - np.median(joined))
    if not contrast.is_ruler:
        return {"place": split(_rank(joined)), "spread": split(_rank(distance))}
    return {
        "place": split(joined),
        "spread": split(distance),
        "tail": split(np.maximum(joined - np.quantile(joined, _TAIL), 0.0)),
    }


def _rank(values: FloatArray) -> FloatArray:
    ranks: FloatArray = ScorePool.of(values).rank() / len(values)
    return ranks


def _choose_members(contrast: Contrast, scores: SideScores, evidence: Evidence) -> FloatArray | None:
    """Scores of known members (or of their groups) that are comparable with the held-out records."""
    if not contrast.is_ruler or "retain" not in scores or not evidence.has_comparable_members:
        return None
    own = scores["retain"]
    chosen = match_members(evidence, np.flatnonzero(~np.isnan(own)))
    if len(chosen) < 2:
        return None
    values = own[chosen]
    if "retain" in evidence.groups:
        values = average_by_group(values, evidence.groups["retain"][evidence.main.members[chosen]])
    return values if len(values) > 1 else None


@dataclass(frozen=True)
class Trace:
    """What training leaves in a typical record (or group), by a ruler's score.

    Args:
        size: Of the difference to held-out ones.
        scale: Whose it is.
        visibility: In standard errors.
    """

    size: float
    scale: Scale
    visibility: float


def find_trace(strand: Strand) -> Trace | None:
    """The trace of the original's forget records or, for a single one or without the original, that of known members.

    A single record is measured by a typical one, not by what happened to stay of it. None if no trace is seen.
    """
    n = strand.n_first
    found: list[tuple[Scale, FloatArray, FloatArray]] = []
    if strand.before is not None:
        found.append(("original", strand.before[:n], strand.before[n:]))
    if strand.members is not None and strand.plain is not None:
        found.insert(0 if n == 1 else len(found), ("members", strand.members, strand.plain[n:]))
    for scale, first, second in found:
        size = float(first.mean() - second.mean())
        error = float(second.std(ddof=1)) * math.sqrt(1 / len(first) + 1 / len(second)) if len(second) > 1 else math.inf
        if size > 0 and size >= SEEN * error:
            return Trace(size, scale, size / error if error > 0 else math.inf)
    return None
