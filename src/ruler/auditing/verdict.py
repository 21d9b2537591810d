"""A report's verdicts, read from its own numbers by the rule; an audit ends with it, and `ruler verify` repeats it."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ruler.auditing.attacks import combine_verdicts
from ruler.auditing.contrasts import CONTRASTS, Contrast, list_deciding
from ruler.auditing.damage import conclude_damage
from ruler.auditing.findings import AttackFinding, Family, FamilyFinding, Remaining, Report, find_worst
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.report import words
from ruler.auditing.rule import (
    BAD,
    Judged,
    is_above,
    judge_contrast,
    judge_family,
    judge_report,
    list_capable,
    list_remaining,
)

if TYPE_CHECKING:
    import pandas as pd

UNTOUCHED = "identical_to_original"
"""The guard that rules erasure out: whatever cannot be seen of the records, nothing was done about them."""

UNFAIR = "not_exchangeable"
"""The guard that finds the held-out records no fair comparison: single records are then not judged."""


def decide(report: Report, contrasts: Mapping[str, Contrast] = CONTRASTS) -> Report:
    """The report with every verdict, and the reason for it, read from its numbers.

    Args:
        report: With all numbers, records and guards; verdicts and reasons in it do not matter.
        contrasts: The table that the metrics come from.

    Raises:
        UnknownNameError: A metric that is not in the table.
    """
    plain = _decide_plain(report, contrasts, count_flagged(report))
    attacks = {name: _decide_attack(attack, plain, contrasts) for name, attack in report.attacks.items()}
    verdict, reason = combine_verdicts(plain.verdict, plain.reason, attacks)
    return replace(plain, verdict=verdict, reason=reason, attacks=attacks)


def _decide_attack(attack: AttackFinding, report: Report, contrasts: Mapping[str, Contrast]) -> AttackFinding:
    """The verdict of an attacked model by the same rule, from the attack's own numbers."""
    asked = replace(report, metrics=attack.metrics, guards=attack.guards, damage=None, attacks={})
    own = _decide_plain(asked, contrasts, attack.n_flagged)
    return replace(attack, verdict=own.verdict, reason=own.reason, metrics=own.metrics)


def _decide_plain(report: Report, contrasts: Mapping[str, Contrast], n_flagged: int) -> Report:
    damage = report.damage
    if damage is not None:
        damage = conclude_damage(damage.similarity, damage.skill, damage.lost, report.settings)
    guards = report.guards
    deciding = {name: report.metrics[name] for name in list_deciding(report.metrics, contrasts)}
    judged = {name: judge_contrast(one, contrasts[name], report) for name, one in deciding.items()}
    families: dict[Family, Judged] = {name: judge_family(name, judged, report) for name in ("outputs", "layers")}
    facts: dict[str, Any] = {
        "invalid": any(guard.severity == "fail" for guard in guards),
        "damaged": damage is not None and damage.is_damaged,
        "no control": not report.given.held_out,
        "blocked": any(guard.blocks for guard in guards),
        "untouched": any(guard.name == UNTOUCHED for guard in guards),
        "flagged": n_flagged > 0,
        "untested": any(
            math.isnan(one.spread.p_value) and not contrasts[name].knows_original for name, one in deciding.items()
        ),
        "contradicted": _list_contradicting(report, deciding) if report.settings.scope == "layers" else (),
    }
    report = replace(report, damage=damage)
    whole = judge_report(report, families["outputs"], families["layers"], facts)
    stop = whole if whole.cause in ("guard", "blocked", "no control") else None
    metrics = {
        name: replace(one, verdict="descriptive", reason=contrasts[name].why_descriptive)
        if name not in judged
        else replace(
            one,
            verdict=(stop or judged[name]).verdict,
            reason=words.explain_contrast(one, stop or judged[name], contrasts[name], report),
        )
        for name, one in report.metrics.items()
    }
    report = replace(report, metrics=metrics, groups=_judge_groups(report))
    chosen = {name: choose_remaining(one, report) for name, one in families.items()}
    found = {
        name: FamilyFinding(
            (stop or one).verdict, chosen[name], words.explain_family(name, stop or one, chosen[name], report)
        )
        for name, one in families.items()
    }
    report = replace(report, outputs=found["outputs"], layers=found["layers"], verdict=whole.verdict)
    return replace(report, reason=words.explain_report(whole, report, n_flagged))


def _list_contradicting(report: Report, deciding: Collection[str]) -> tuple[str, ...]:
    """Contrasts that do not decide, but show more than the limit."""
    others = {name: one for name, one in report.metrics.items() if name not in deciding}
    return tuple(name for name, one in others.items() if any(is_above(r, report) for r in list_remaining(one)))


def choose_remaining(judged: Judged, report: Report) -> Remaining | None:
    """The number that stands for a family: the least favourable of what can show the limit, else the most precise one.

    Only contrasts that decided count. If they accuse by amounts that cannot show the limit, these amounts count.
    """
    metrics = [report.metrics[name] for name in judged.by]
    found = [one for metric in metrics for one in list_remaining(metric)]
    capable = [one for metric in metrics for one in list_capable(metric, report.settings.limit)]
    accusing = [one for one in found if judged.verdict in BAD and not one.low <= 0 <= one.high]
    if accusing and not any(one in accusing for one in capable):
        capable = accusing
    precise = min(found, key=lambda one: one.at_most - one.at_least, default=None)
    return find_worst(capable) if capable else precise


def _judge_groups(report: Report) -> "pd.DataFrame | None":
    """The verdict of each group: residual if it stands out, erased if its interval lies inside the limit."""
    groups, limit = report.groups, report.settings.limit
    if groups is None:
        return None
    stands_out = ~groups["finding"].isin([ALIKE, NOT_JUDGED])
    is_within = (groups["at_least"] > -limit) & (groups["at_most"] < limit) & ~stands_out
    is_above = stands_out & ~(groups["high"] < 0)
    verdict = groups["verdict"].mask(groups["verdict"].notna(), "inconclusive").mask(is_within, "erased")
    return groups.assign(verdict=verdict.mask(stands_out, "displaced").mask(is_above, "residual"))


def count_flagged(report: Report) -> int:
    """Forget records that stand out alone or, where held-out groups are named to compare with, with their group."""
    is_flagged = ~report.records["finding"].isin([ALIKE, NOT_JUDGED])
    groups = report.groups
    if groups is not None and "held_out" in report.provenance.get("grouped", ()):  # else likeness may be all there is
        is_flagged |= report.records["group"].isin(groups["group"][~groups["finding"].isin([ALIKE, NOT_JUDGED])])
    return int(is_flagged.sum())


def is_flagged(report: Report) -> bool:
    """Whether a record or a person stands out, in the model as it is or after an attack: whatever else is allowed."""
    return count_flagged(report) > 0 or any(attack.n_flagged for attack in report.attacks.values())
