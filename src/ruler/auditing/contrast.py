"""Evidence -> how each metric's forget records lie against their control, before any verdict."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence, ModelName, Side
from ruler.auditing.findings import Interval
from ruler.auditing.settings import AuditSettings
from ruler.core.stacked import StackedRows
from ruler.core.types import FloatArray, IndexArray
from ruler.metrics.percentile_rank import rank_within
from ruler.neighbors import find_neighbors
from ruler.stats.auc import ScorePool, weighted_auc
from ruler.stats.permutation import Contrast, compare_samples
from ruler.stats.placebo import choose_depth, compare_with_placebos
from ruler.stats.units import Units, find_units


@dataclass(frozen=True, eq=False)
class Scores:
    """One metric, record by record.

    Args:
        values: What the paper averages, forget records first, then the control's.
        ranked: What the AUC ranks, in the same order.
        ranked_in_original: The same in the original model; None without it.
        units: Which records stand or fall together.
    """

    values: FloatArray
    ranked: FloatArray
    ranked_in_original: FloatArray | None
    units: Units


@dataclass(frozen=True, eq=False)
class Draws:
    """Bootstrap draws of whole units: (n_bootstrap,) each; ``original`` is None without the original model."""

    value: FloatArray
    difference: FloatArray
    effect: FloatArray
    original: FloatArray | None


@dataclass(frozen=True, eq=False)
class Measurement:
    """A metric with its control: what the verdict is read from."""

    scores: Scores
    contrast: Contrast
    original: Contrast | None
    draws: Draws


def measure_oracle_gap(evidence: Evidence) -> Measurement:
    """M2's twin: similarity to the oracle, forget against control."""
    scores = evidence.oracle_scores
    found = scores["unlearned"]
    offset = np.median(found.by_side["retain"])
    pooled = _pool(evidence, found.by_side)
    original = _pool(evidence, scores["original"].by_side) if evidence.has_original else None
    return measure_scores(Scores(pooled - offset, pooled, original, _oracle_units(evidence)), evidence.settings)


def measure_shift(evidence: Evidence) -> Measurement:
    """M3's twin: the move towards the oracle, forget against control."""
    scores = evidence.oracle_scores
    shift = _pool(evidence, scores["unlearned"].by_side) - _pool(evidence, scores["original"].by_side)
    return measure_scores(Scores(shift, shift, None, _oracle_units(evidence)), evidence.settings)


def measure_nearest(evidence: Evidence) -> Measurement:
    """M4's twin: similarity to the nearest retain record, forget against control."""
    nearest = _nearest_by_side(evidence, "unlearned")
    pooled = _pool(evidence, nearest)
    original = _pool(evidence, _nearest_by_side(evidence, "original")) if evidence.has_original else None
    ranks = rank_within(pooled, nearest["retain"])
    scores = Scores(ranks, pooled, original, _find_units(evidence, np.arange(len(evidence.ids["retain"]))))
    if evidence.has_held_out:
        return measure_scores(scores, evidence.settings)
    contrasts = [_compare_with_placebos(evidence, name, scores.units) for name in evidence.nearest]
    return Measurement(
        scores, contrasts[0], contrasts[1] if original is not None else None, _bootstrap(scores, evidence.settings)
    )


def take_interval(draws: FloatArray, settings: AuditSettings) -> Interval:
    """Percentile interval of level 1 - alpha.

    Example:
        >>> take_interval(np.arange(101.0), AuditSettings(alpha=0.1))
        (5.0, 95.0)
    """
    low, high = np.quantile(draws, [settings.alpha / 2, 1 - settings.alpha / 2])
    return float(low), float(high)


def measure_scores(scores: Scores, settings: AuditSettings) -> Measurement:
    """Contrast of forget and control records, and bootstrap draws of it."""

    def compare(ranked: FloatArray) -> Contrast:
        n = scores.units.n_records_first
        return compare_samples(
            ranked[:n], ranked[n:], units=scores.units, n_permutations=settings.n_permutations, seed=settings.seed
        )

    original = None if scores.ranked_in_original is None else compare(scores.ranked_in_original)
    return Measurement(scores, compare(scores.ranked), original, _bootstrap(scores, settings))


def _bootstrap(scores: Scores, settings: AuditSettings) -> Draws:
    rng = np.random.default_rng(settings.seed)
    pools = [ScorePool.of(one) for one in (scores.ranked, scores.ranked_in_original) if one is not None]
    rows = []
    for n_draws in scores.units.iterate_blocks(settings.n_bootstrap):
        first, second = scores.units.draw_weights(n_draws, rng)
        mean_first, mean_second = (weights @ scores.values / weights.sum(axis=1) for weights in (first, second))
        rows.append([mean_first, mean_first - mean_second, *(weighted_auc(pool, first, second) for pool in pools)])
    value, difference, effect, *original = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Draws(value, difference, effect, original[0] if original else None)


def _compare_with_placebos(evidence: Evidence, name: ModelName, units: Units) -> Contrast:
    sides = evidence.embeddings[name]
    rows = _stack(sides["forget"], sides["retain"])
    depth = choose_depth(units.n_records_first, len(rows), int(np.bincount(units.codes).max()))
    return compare_with_placebos(
        find_neighbors(rows, rows, k=depth, exclude_self=True),
        units,
        find_nearest=lambda missed, in_set: _search_outside(rows, missed, in_set),
        n_placebos=evidence.settings.n_permutations,
        seed=evidence.settings.seed,
    )


def _stack(forget: npt.NDArray[Any], retain: Any) -> npt.NDArray[Any]:
    if isinstance(retain, StackedRows):
        return cast(npt.NDArray[Any], StackedRows([forget, *retain.parts]))
    return np.concatenate([forget, retain])


def _search_outside(rows: npt.NDArray[Any], missed: IndexArray, in_set: npt.NDArray[np.bool_]) -> FloatArray:
    outside = np.flatnonzero(~in_set)
    found = find_neighbors(rows[missed], rows[outside], k=min(2, len(outside)))
    is_self = outside[found.index[:, 0]] == missed
    return np.where(is_self, found.similarity[:, -1], found.similarity[:, 0])


def _nearest_by_side(evidence: Evidence, name: ModelName) -> dict[Side, FloatArray]:
    return {side: found.similarity[:, 0] for side, found in evidence.nearest[name].items()}


def _pool(evidence: Evidence, by_side: Any) -> FloatArray:
    return np.concatenate([by_side["forget"], by_side[evidence.control]])


def _oracle_units(evidence: Evidence) -> Units:
    return _find_units(evidence, evidence.oracle_scores["unlearned"].retain_rows)


def _find_units(evidence: Evidence, retain_rows: IndexArray) -> Units:
    groups = evidence.groups.get(evidence.control)
    if groups is not None and not evidence.has_held_out:
        groups = groups[retain_rows]
    n_control = len(retain_rows) if not evidence.has_held_out else len(evidence.ids["held_out"])
    return find_units(len(evidence.ids["forget"]), n_control, evidence.groups.get("forget"), groups)
