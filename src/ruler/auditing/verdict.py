"""What the contrasts mean: residual, displaced, damaged, erased or inconclusive, and what would settle it."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Damage, GuardFinding, MetricVerdict, Verdict
from ruler.auditing.measure import Measurement
from ruler.auditing.settings import AuditSettings
from ruler.stats.auc import normal_quantile
from ruler.stats.equivalence import count_needed

UNTOUCHED = "identical_to_original"
"""The guard that rules erasure out: whatever cannot be seen of the records, nothing was done about them."""

NO_CONTROL = "No held-out records were given, so there is nothing to compare the forget records with."


def decide_metric(found: Measurement, settings: AuditSettings) -> tuple[MetricVerdict, str]:
    """The verdict of one contrast that decides, and the reason for it.

    Residual and displaced need a difference that holds after correction for all contrasts. One that is shown to lie
    within the margin is excused, unless most of the original's contrast is shown to be left. Erased needs place and
    spread shown to be within the margin and, of the contrast that was seen best in the positive control, a small share
    left. A contrast that was seen only just could not show that of any model.

    Args:
        found: The contrast with its control.
        settings: Alpha, margin and share limit.
    """
    if not found.strands:
        return "inconclusive", NO_CONTROL
    equivalence_p = found.show_equivalence(settings.margin)
    is_within = equivalence_p <= settings.alpha
    is_left = found.share is not None and found.share.lower > settings.share_limit
    if found.share is not None and found.strongest.before is not None:  # the original may show most elsewhere
        is_left = is_left or found.strongest.share(settings.alpha).lower > settings.share_limit
    if found.adjusted_p_value <= settings.alpha and (is_left or not is_within):
        return _trace(found, settings)
    if not is_within:
        return "inconclusive", _explain_doubt(found, settings)
    within = f"Place and spread of the scores are shown to lie within the margin of {settings.margin:g} around AUC 0.5."
    if found.leaves_too_much(settings.share_limit):
        assert found.share is not None
        return "inconclusive", (
            f"{within} But up to {found.share.upper:.0%} of {_name_control(found)} contrast may be left, "
            f"and at most {settings.share_limit:.0%} may."
        )
    return "erased", within


def decide_overall(
    evidence: Evidence,
    found: Mapping[str, Measurement],
    verdicts: Mapping[str, tuple[MetricVerdict, str]],
    guards: Sequence[GuardFinding],
    damage: Damage | None,
    n_flagged: int,
) -> tuple[Verdict, str]:
    """The verdict of all deciding contrasts together.

    Erased is a strong claim: an oracle, every deciding contrast within the margin, at least one that was seen in
    the positive control, a small share left of the one that was seen best, no flagged record, a model that still works
    and was changed.
    """
    failed = [guard for guard in guards if guard.severity == "fail"]
    if failed:
        return "invalid", f"The evidence cannot carry a verdict: {failed[0].message}"
    alarms = [(verdict, f"{found[name].contrast.title}: {reason}") for name, (verdict, reason) in verdicts.items()]
    if damage is not None and damage.is_damaged:
        return "damaged", damage.reason
    if not evidence.has_held_out:
        return "inconclusive", NO_CONTROL
    blocking = [guard for guard in guards if guard.blocks]
    if blocking:
        return "inconclusive", blocking[0].message
    for verdict in ("residual", "displaced"):
        reasons = [reason for one, reason in alarms if one == verdict]
        if reasons:
            return verdict, reasons[0]
    untouched = [guard for guard in guards if guard.name == UNTOUCHED]
    if untouched:
        return "inconclusive", f"A model that was not changed cannot be cleared. {untouched[0].message}"
    doubts = [reason for one, reason in alarms if one != "erased"]
    if not any(one.sensitivity is not None and one.sensitivity.is_seen for one in found.values()):
        doubts.insert(0, _explain_blindness(evidence, found))
    if not evidence.has_oracle:
        doubts.insert(0, "Without an oracle no model is called erased.")
    if any(guard.name == "not_exchangeable" for guard in guards):
        doubts.insert(0, "Held-out records are unfair, so that single records could not be judged.")
    if n_flagged:
        doubts.insert(
            0,
            f"{n_flagged} forget record{'s stand' if n_flagged > 1 else ' stands'} out from the held-out ones"
            f"{', alone or with their group' if 'forget' in evidence.groups else ''}.",
        )
    if doubts:
        return "inconclusive", " ".join(doubts[:3])
    names = ", ".join(found[name].contrast.title.lower() for name in verdicts)
    seen = [
        one.contrast.title.lower() for one in found.values() if one.sensitivity is not None and one.sensitivity.is_seen
    ]
    layers = f" at {', '.join(evidence.layers)}" if all(evidence.layers) else ""
    strands = [strand.effect for name in verdicts for strand in found[name].strands]
    reach = normal_quantile(1 - evidence.settings.alpha)
    missed = min(1.0, 2 * max(abs(effect.value - 0.5) + reach * effect.error for effect in strands))
    return "erased", (
        f"By {names}{layers}, forget records are like records that were never trained on, within the margin; "
        f"{_name_control(next(one for one in found.values() if one.sensitivity and one.sensitivity.is_seen))} "
        f"records could be told apart by {', '.join(seen)}. A mark on up to {missed:.0%} of them is not excluded."
    )


def list_needs(
    evidence: Evidence, found: Mapping[str, Measurement], guards: Sequence[GuardFinding], n_flagged: int
) -> list[str]:
    """What would settle an inconclusive verdict, the most useful first."""
    settings = evidence.settings
    n_forget = evidence.count_units("forget")
    unit = "groups" if "forget" in evidence.groups else "records"
    needs = [guard.cure for guard in guards if guard.blocks]
    if not evidence.has_held_out:
        needs.append(
            f"Held-out {unit}: at least {max(2 * n_forget, 100)} that no model was trained on, drawn as the forget "
            f"{unit} were, embedded with every model."
        )
    if not evidence.has_oracle:
        needs.append("An oracle: the same model retrained without the forget records, from the original's seed.")
    if any(guard.name == UNTOUCHED for guard in guards):
        needs.append("The unlearned model: the one that was given is the original.")
    is_blind = not any(one.sensitivity and one.sensitivity.is_seen for one in found.values())
    too_much = any(one.leaves_too_much(settings.share_limit) for one in found.values())
    if evidence.has_held_out and not evidence.has_original and (is_blind or too_much):
        needs.append("The original model, so that it can be seen how well its forget records can be told apart.")
    if evidence.has_held_out and is_blind:
        if not evidence.has_losses:
            needs.append("Losses of all records in every model (as `losses` beside the embeddings).")
        if len(evidence.layers) == 1:
            needs.append('Other layers: read them with layer="all".')
        needs.append(f"More {unit}: nothing that training leaves could be seen with these.")
    wanted = [
        _count_wanted(one, settings, sum(one.contrast.decides for one in found.values()))
        for one in found.values()
        if one.contrast.decides and one.strands
    ]
    most = max((n for n in wanted if n is not None), default=0)
    is_hybrid = any(one.test == "hybrid" for one in found.values())
    if is_hybrid:
        needs.append(
            f"More oracles (now {len(evidence.oracles)}): they tell how much retraining alone moves a contrast."
        )
    if evidence.has_held_out and not is_hybrid and most > n_forget:
        per_forget = max(1.0, evidence.count_units("held_out") / n_forget)
        needs.append(
            f"About {most:,} forget {unit} with {math.ceil(per_forget * most):,} held-out ones (now {n_forget:,} with "
            f"{evidence.count_units('held_out'):,}), or a wider margin that you can defend."
        )
    if n_flagged:
        needs.append("Another round of unlearning for the records that stand out, or a reason why they should.")
    if evidence.has_held_out and 5 * settings.alpha * (len(evidence.ids["held_out"]) + 1) < len(evidence.ids["forget"]):
        n_held_out = math.ceil(len(evidence.ids["forget"]) / (5 * settings.alpha))
        needs.append(f"At least {n_held_out:,} held-out records, to find as few as five memorised records one by one.")
    return needs


def _count_wanted(found: Measurement, settings: AuditSettings, n_contrasts: int) -> int | None:
    """Forget records that all claims of this contrast need, if they are true: the margin, and the share left."""
    effect = found.place.effect
    wanted = count_needed(effect, settings.margin, alpha=settings.alpha, power=settings.power, n_tests=2 * n_contrasts)
    if found.sensitivity is None or not found.leaves_too_much(settings.share_limit):
        return wanted
    allowed = settings.share_limit * abs(found.sensitivity.effect - 0.5)
    reach = (normal_quantile(1 - settings.alpha) + normal_quantile(settings.power)) * effect.error
    if allowed == 0 or math.isnan(reach):
        return wanted
    by_share = math.ceil(effect.n_first * (reach * math.hypot(1, settings.share_limit) / allowed) ** 2)
    return max(wanted or 0, by_share)


def _trace(found: Measurement, settings: AuditSettings) -> tuple[MetricVerdict, str]:
    """A difference that was shown: the original's own, or a new one?"""
    strand = found.strongest
    effect = strand.effect
    said = _describe(found)
    if strand.before is None:
        side = found.contrast.residual_side if strand.part == "place" else 0
        verdict: MetricVerdict = "displaced" if side and np.sign(effect.value - 0.5) == -side else "residual"
        return verdict, (
            f"{said} The original model was not given, so that '{verdict}' is a reading of the side alone: records "
            "memorised as exceptions can stand on the other one."
        )
    before = strand.effect_before
    if np.sign(before.value - 0.5) != np.sign(effect.value - 0.5):
        return "displaced", f"{said} The original model's contrast lies on the other side: this one is new."
    has_doubled = abs(effect.value - 0.5) > 2 * abs(before.value - 0.5)
    is_old = abs(before.statistic) >= normal_quantile(1 - settings.alpha / 2)
    if has_doubled and (not is_old or strand.share(settings.alpha).lower > 1):
        return "displaced", f"{said} The original model shows far less (AUC {before.value:.3f}): this contrast is new."
    return "residual", f"{said} It is the original model's own contrast (AUC {before.value:.3f})."


def _describe(found: Measurement) -> str:
    strand = found.strongest
    where = f" at {strand.layer}" if strand.layer and found.contrast.is_by_layer else ""
    p_value = f"p = {found.adjusted_p_value:.2g} for all contrasts"
    if strand.part == "spread":
        side = "scatter more" if strand.effect.value > 0.5 else "scatter less"
        shown = f"AUC of distances {strand.effect.value:.3f}, {p_value}"
        return f"Forget records {side} than held-out records{where} ({shown})."
    side = "above" if strand.effect.value > 0.5 else "below"
    return f"Forget records lie {side} held-out records{where} (AUC {strand.effect.value:.3f}, {p_value})."


def _explain_doubt(found: Measurement, settings: AuditSettings) -> str:
    effect = found.strongest.effect
    if math.isnan(effect.standard_error):
        return "One side holds a single record or group, which cannot show equivalence; no difference is seen."
    return (
        f"No difference is seen (p = {found.adjusted_p_value:.2g}), but one beyond the margin of {settings.margin:g} "
        f"is not ruled out (AUC {effect.value:.3f}, standard error {effect.error:.3f})."
    )


def _explain_blindness(evidence: Evidence, found: Mapping[str, Measurement]) -> str:
    if evidence.has_original:
        return "Nothing could be seen before unlearning either: no contrast tells the original's forget records apart."
    if any(one.sensitivity is not None for one in found.values()):
        return "No contrast tells records that the model was trained on from held-out ones, so none can clear it."
    return "Whether any contrast sees what training leaves could not be tried."


def _name_control(found: Measurement) -> str:
    assert found.sensitivity is not None
    return "the original's" if found.sensitivity.source == "original" else "known members'"
