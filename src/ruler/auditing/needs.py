"""What would settle an inconclusive verdict: records, models, losses or layers, and how many."""

import math
from collections.abc import Mapping, Sequence

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding
from ruler.auditing.measure import Measurement
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import UNTOUCHED, leaves_too_much
from ruler.stats.auc import normal_quantile
from ruler.stats.equivalence import count_needed
from ruler.stats.hybrid import LEAST_ORACLES


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
    if any(one.adjusted_p_value <= settings.alpha < one.beyond_oracle_p_value for one in found.values()):
        needs.append(
            f"Held-out {unit} drawn as the forget {unit} were, or {LEAST_ORACLES} oracles from several seeds: a "
            f"difference is seen that may come from which {unit} were chosen."
        )
    is_blind = not any(one.sensitivity and one.sensitivity.is_seen for one in found.values())
    too_much = any(
        leaves_too_much(one.sensitivity, one.share_upper, one.adjusted_p_value, settings) for one in found.values()
    )
    if evidence.has_held_out and not evidence.has_original and (is_blind or too_much):
        needs.append("The original model: it shows how well its forget records can be told apart.")
    if evidence.has_held_out and is_blind:
        if not evidence.has_losses:
            needs.append("Losses of all records in every model (as `losses` beside the embeddings).")
        if len(evidence.layers) == 1:
            needs.append('Other layers: read them with layer="all".')
        needs.append(f"More {unit}: with these, no trace of training could be seen.")
    needs += _ask_for_more(evidence, found, unit)
    if n_flagged:
        needs.append("Another round of unlearning for the records that stand out, or a reason why they should.")
    if evidence.has_held_out and 5 * settings.alpha * (len(evidence.ids["held_out"]) + 1) < len(evidence.ids["forget"]):
        n_held_out = math.ceil(len(evidence.ids["forget"]) / (5 * settings.alpha))
        needs.append(f"At least {n_held_out:,} held-out records, to find as few as five memorised records one by one.")
    return needs


def _ask_for_more(evidence: Evidence, found: Mapping[str, Measurement], unit: str) -> list[str]:
    """More oracles, or as many records as all claims need if they are true."""
    settings, n_forget = evidence.settings, evidence.count_units("forget")
    if any(one.test == "hybrid" for one in found.values()):
        n_oracles = len(evidence.oracles)
        return [f"More oracles (now {n_oracles}): they tell how much retraining alone moves a contrast."]
    wanted = [
        _count_wanted(one, settings, sum(one.contrast.decides for one in found.values()))
        for one in found.values()
        if one.contrast.decides and one.strands
    ]
    most = max((n for n in wanted if n is not None), default=0)
    if not evidence.has_held_out or most <= n_forget:
        return []
    n_held_out = evidence.count_units("held_out")
    n_wanted = math.ceil(max(1.0, n_held_out / n_forget) * most)
    return [
        f"About {most:,} forget {unit} with {n_wanted:,} held-out ones (now {n_forget:,} with {n_held_out:,}), or a "
        "wider margin that you can defend."
    ]


def _count_wanted(found: Measurement, settings: AuditSettings, n_contrasts: int) -> int | None:
    """Forget records that all claims of this contrast need, if they are true: the margin, and the share left."""
    effect = found.place.effect
    wanted = count_needed(effect, settings.margin, alpha=settings.alpha, power=settings.power, n_tests=2 * n_contrasts)
    p_value = found.adjusted_p_value
    if found.sensitivity is None or not leaves_too_much(found.sensitivity, found.share_upper, p_value, settings):
        return wanted
    allowed = settings.share_limit * abs(found.sensitivity.effect - 0.5)
    reach = (normal_quantile(1 - settings.alpha) + normal_quantile(settings.power)) * effect.error
    if allowed == 0 or math.isnan(reach):
        return wanted
    by_share = math.ceil(effect.n_first * (reach * math.hypot(1, settings.share_limit) / allowed) ** 2)
    return max(wanted or 0, by_share)
