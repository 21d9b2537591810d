"""What the contrasts mean: residual, displaced, damaged, erased or inconclusive."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ruler.auditing.attacks import combine_verdicts
from ruler.auditing.contrasts import CONTRASTS, Contrast
from ruler.auditing.damage import conclude_damage
from ruler.auditing.findings import (
    AttackFinding,
    MetricFinding,
    MetricVerdict,
    Report,
    Sensitivity,
    StrongestFinding,
    Verdict,
)
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.settings import AuditSettings
from ruler.stats.auc import normal_quantile

UNTOUCHED = "identical_to_original"
"""The guard that rules erasure out: whatever cannot be seen of the records, nothing was done about them."""

UNFAIR = "not_exchangeable"
"""The guard that finds the held-out records no fair comparison: single records are then not judged."""

UNCHECKED = "No oracle was there to check that held-out records are as easy, and as typical, as forget records."

NO_CONTROL = "No held-out records were given, so there is nothing to compare the forget records with."


def decide(report: Report, contrasts: Mapping[str, Contrast] = CONTRASTS) -> Report:
    """The report with every verdict, and the reason for it, read from its numbers: the only spelling of the rule.

    An audit ends with it, and `ruler verify` repeats it on what report.json holds.

    Args:
        report: With all numbers, records and guards; verdicts and reasons in it do not matter.
        contrasts: The table that the metrics come from.

    Raises:
        UnknownNameError: A metric that is not in the table.
    """
    plain = _decide_plain(report, contrasts)
    attacks = {name: _decide_attack(attack, plain, contrasts) for name, attack in report.attacks.items()}
    verdict, reason = combine_verdicts(plain.verdict, plain.reason, attacks)
    return replace(plain, verdict=verdict, reason=reason, attacks=attacks)


def _decide_attack(attack: AttackFinding, report: Report, contrasts: Mapping[str, Contrast]) -> AttackFinding:
    """The verdict of an attacked model by the same rule, from the attack's own numbers."""
    asked = replace(report, metrics=attack.metrics, guards=attack.guards, damage=None, attacks={})
    own = _decide_plain(asked, contrasts, attack.n_flagged)
    return replace(attack, verdict=own.verdict, reason=own.reason, metrics=own.metrics)


def _decide_plain(report: Report, contrasts: Mapping[str, Contrast], n_flagged: int | None = None) -> Report:
    found = report.damage
    if found is not None:
        found = conclude_damage(found.similarity, found.skill, found.lost, report.settings)
    metrics = {name: _decide_one(metric, report, contrasts[name]) for name, metric in report.metrics.items()}
    report = replace(report, metrics=metrics, damage=found)
    verdict, reason = decide_overall(report, contrasts, n_flagged)
    stops = [guard.message for guard in report.guards if guard.severity == "fail" or guard.blocks]
    if stops:
        word: MetricVerdict = "invalid" if verdict == "invalid" else "inconclusive"
        deciding = {name for name in metrics if contrasts[name].decides}
        metrics |= {name: replace(metrics[name], verdict=word, reason=stops[0]) for name in deciding}
    return replace(report, verdict=verdict, reason=reason, metrics=metrics)


def _decide_one(metric: MetricFinding, report: Report, contrast: Contrast) -> MetricFinding:
    verdict: MetricVerdict = "descriptive"
    reason = contrast.why_descriptive
    if contrast.decides:
        verdict, reason = decide_metric(metric, report.settings, contrast)
    if metric.reference_error is not None:
        reason = (
            f"{reason} Ranks are among {report.settings.n_reference:,} retain records drawn at random: M4 is within "
            f"{metric.reference_error:.4f} of its value among all of them, at a confidence of "
            f"{1 - report.settings.alpha:.0%}; the test does not rest on ranks."
        )
    return replace(metric, verdict=verdict, reason=reason)


def decide_metric(metric: MetricFinding, settings: AuditSettings, contrast: Contrast) -> tuple[MetricVerdict, str]:
    """The verdict of one contrast that decides, and the reason for it.

    Residual and displaced need a difference that holds after correction for all contrasts, also without what the
    oracle shows of the records, which cannot be memory. One that is shown to lie within the margin is excused, unless
    most of the original's contrast is shown to be left. Erased needs place and spread shown to be within the margin and
    a small share left, if the contrast is the one that was seen best in the positive control, or was seen there and is
    seen again. One that was seen only just could not show that of any model.

    Args:
        metric: The numbers of the contrast.
        settings: Alpha, margin and share limit.
        contrast: Its row of the table.
    """
    strongest = metric.strongest
    if strongest is None:
        return "inconclusive", NO_CONTROL
    is_within = metric.equivalence_p_value <= settings.alpha
    is_left = False
    if metric.share_left_lower is not None:  # the original may show most elsewhere
        lowers = metric.share_left_lower, strongest.share_lower
        is_left = any(lower is not None and lower > settings.share_limit for lower in lowers)
    if metric.adjusted_p_value <= settings.alpha and (is_left or not is_within):
        if metric.beyond_oracle_p_value > settings.alpha:
            return "inconclusive", (
                f"{_describe(metric, strongest, contrast)} But it may come from which records were chosen: without "
                "what the oracle shows of them, no difference is seen "
                f"(corrected p = {metric.beyond_oracle_p_value:.2g})."
            )
        return _trace(metric, strongest, settings, contrast)
    if not is_within:
        return "inconclusive", _explain_doubt(metric, strongest, settings)
    within = f"Place and spread of the scores are shown to lie within the margin of {settings.margin:g} around AUC 0.5."
    if leaves_too_much(metric.sensitivity, metric.share_left_upper, metric.adjusted_p_value, settings):
        return "inconclusive", (
            f"{within} But up to {metric.share_left_upper:.0%} of {_name_control(metric.sensitivity)} contrast may be "
            f"left, and at most {settings.share_limit:.0%} may."
        )
    return "erased", within


def leaves_too_much(
    sensitivity: Sensitivity | None, upper: float | None, adjusted_p_value: float, settings: AuditSettings
) -> bool:
    """Whether the share left of a contrast is asked for, and not shown to be below the limit.

    It is asked of the contrast that sees best, and of every one that sees and still tells forget records apart.
    """
    if upper is None or sensitivity is None or not sensitivity.is_seen:
        return False
    is_asked = sensitivity.is_strongest or adjusted_p_value <= settings.alpha
    return is_asked and not upper < settings.share_limit


def decide_overall(
    report: Report, contrasts: Mapping[str, Contrast] = CONTRASTS, n_flagged: int | None = None
) -> tuple[Verdict, str]:
    """The verdict of all deciding contrasts together, from their own verdicts.

    ``n_flagged`` forget records stand out; None counts them in the report.

    Erased is a strong claim: an oracle, every deciding contrast within the margin, at least one that was seen in
    the positive control, a small share left of the one that was seen best and of every one that is seen again, no
    flagged record, a model that still works and was changed.
    """
    guards, metrics = report.guards, report.metrics
    failed = [guard for guard in guards if guard.severity == "fail"]
    if failed:
        return "invalid", f"The evidence does not allow a verdict: {failed[0].message}"
    deciding = {name: metric for name, metric in metrics.items() if contrasts[name].decides}
    reasons = {name: f"{_name(contrasts[name])}: {one.reason}" for name, one in deciding.items()}
    if report.damage is not None and report.damage.is_damaged:
        return "damaged", report.damage.reason
    if all(metric.control == "none" for metric in metrics.values()):
        return "inconclusive", NO_CONTROL
    blocking = [guard for guard in guards if guard.blocks]
    if blocking:
        return "inconclusive", blocking[0].message
    for verdict in ("residual", "displaced"):
        accusing = [name for name, one in deciding.items() if one.verdict == verdict]
        if accusing:
            trust = "" if report.pairing is not None else f" {UNCHECKED}"
            return verdict, reasons[accusing[0]] + trust
    untouched = [guard for guard in guards if guard.name == UNTOUCHED]
    if untouched:
        return "inconclusive", f"A model that was not changed cannot be cleared. {untouched[0].message}"
    seen = {name: one.sensitivity for name, one in metrics.items() if one.sensitivity and one.sensitivity.is_seen}
    doubts = _list_doubts(report, count_flagged(report) if n_flagged is None else n_flagged)
    open_ones = [name for name, one in deciding.items() if one.verdict != "erased"]
    differing = [name for name in open_ones if deciding[name].adjusted_p_value <= report.settings.alpha]
    doubts = [
        *(reasons[name] for name in differing),
        *doubts,
        *(reasons[name] for name in open_ones if name not in differing),
    ]
    if doubts:
        return "inconclusive", " ".join(doubts[:3])
    names = ", ".join(_name(contrasts[name], is_inside=True) for name in deciding)
    layers = report.provenance.get("layers")
    where = f" at {', '.join(layers)}" if layers else ""
    hidden = "" if any(contrasts[name].is_by_layer for name in seen) else "No representation showed them. "
    is_original = next(iter(seen.values())).source == "original"
    whom = "The original's forget records" if is_original else "Known members"
    missed = min(1.0, 2 * max(metric.largest_distance for metric in deciding.values()))
    return "erased", (
        f"By {names}{where}, forget records are like records that were never trained on, within the margin. "
        f"{whom} could be told from held-out records by "
        f"{', '.join(_name(contrasts[name], is_inside=True) for name in seen)}. {hidden}"
        f"A clear mark on up to {missed:.0%} of the forget records, or a faint one on more, is not excluded."
    )


def _list_doubts(report: Report, n_flagged: int) -> list[str]:
    """Why a model that no contrast accuses is not cleared, the gravest first."""
    doubts = []
    if n_flagged:
        doubts.append(
            f"{n_flagged} forget record{'s stand' if n_flagged > 1 else ' stands'} out from the held-out ones"
            f"{', alone or with their group' if report.groups is not None else ''}."
        )
    if any(guard.name == UNFAIR for guard in report.guards):
        doubts.append("Held-out records are unfair, so single records could not be judged.")
    if report.pairing is None:
        doubts.append("Without an oracle no model is called erased.")
    tried = [metric.sensitivity for metric in report.metrics.values() if metric.sensitivity is not None]
    if not any(one.is_seen for one in tried):
        doubts.append(_explain_blindness(report, is_tried=bool(tried)))
    return doubts


def count_flagged(report: Report) -> int:
    """Forget records that stand out alone or, where held-out groups are named to compare with, with their group."""
    is_flagged = ~report.records["finding"].isin([ALIKE, NOT_JUDGED])
    groups = report.groups
    if groups is not None and "held_out" in report.provenance.get("grouped", ()):  # else likeness may be all there is
        is_flagged |= report.records["group"].isin(groups["group"][~groups["finding"].isin([ALIKE, NOT_JUDGED])])
    return int(is_flagged.sum())


def _trace(
    metric: MetricFinding, strongest: StrongestFinding, settings: AuditSettings, contrast: Contrast
) -> tuple[MetricVerdict, str]:
    """A difference that was shown: the original's own, or a new one?"""
    said = _describe(metric, strongest, contrast)
    distance, before = strongest.effect - 0.5, strongest.original_effect
    if before is None or strongest.original_statistic is None:
        side = contrast.residual_side if strongest.part == "place" else 0
        verdict: MetricVerdict = "displaced" if side and np.sign(distance) == -side else "residual"
        return verdict, (
            f"{said} The original model was not given, so '{verdict}' is inferred from the side alone: records "
            "memorised as exceptions can lie on the other side."
        )
    if np.sign(before - 0.5) != np.sign(distance):
        return "displaced", f"{said} The original model's contrast lies on the other side: this one is new."
    has_doubled = abs(distance) > 2 * abs(before - 0.5)
    is_old = abs(strongest.original_statistic) >= normal_quantile(1 - settings.alpha / 2)
    if has_doubled and (not is_old or (strongest.share_lower is not None and strongest.share_lower > 1)):
        return "displaced", f"{said} The original model shows far less (AUC {before:.3f}): this contrast is new."
    return "residual", f"{said} It is the original model's own contrast (AUC {before:.3f})."


def _describe(metric: MetricFinding, strongest: StrongestFinding, contrast: Contrast) -> str:
    where = f" at {strongest.layer}" if strongest.layer and contrast.is_by_layer else ""
    p_value = f"corrected p = {metric.adjusted_p_value:.2g}"
    if strongest.part == "spread":
        side = "scatter more" if strongest.effect > 0.5 else "scatter less"
        return (
            f"Forget records {side} than held-out records{where} (AUC of distances {strongest.effect:.3f}, {p_value})."
        )
    side = "above" if strongest.effect > 0.5 else "below"
    return f"Forget records lie {side} held-out records{where} (AUC {strongest.effect:.3f}, {p_value})."


def _explain_doubt(metric: MetricFinding, strongest: StrongestFinding, settings: AuditSettings) -> str:
    if math.isnan(strongest.error):
        return "One side holds a single record or group, which cannot show equivalence; no difference is seen."
    return (
        f"No difference is seen (p = {metric.adjusted_p_value:.2g}), but one beyond the margin of {settings.margin:g} "
        f"is not ruled out (AUC {strongest.effect:.3f}, standard error {strongest.error:.3f})."
    )


def _explain_blindness(report: Report, *, is_tried: bool) -> str:
    if any(metric.original_effect is not None for metric in report.metrics.values()):
        return "Nothing could be seen before unlearning either: no contrast tells the original's forget records apart."
    if is_tried:
        return "No contrast tells records that the model was trained on from held-out ones, so none can clear it."
    return "It could not be tested whether any contrast sees what training leaves."


def _name(contrast: Contrast, *, is_inside: bool = False) -> str:
    return contrast.symbol or (contrast.title.lower() if is_inside else contrast.title)


def _name_control(sensitivity: Sensitivity | None) -> str:
    return "the original's" if sensitivity is not None and sensitivity.source == "original" else "known members'"
