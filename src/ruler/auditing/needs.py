"""What would settle an inconclusive verdict: models, losses, labels or as many records as can be had."""

import math
from collections.abc import Iterator

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Family, Remaining, Report
from ruler.auditing.report.words import FAMILIES, can_judge, list_trusted, name_contrast
from ruler.auditing.rule import POWER, is_above, list_capable, list_remaining
from ruler.auditing.verdict import UNTOUCHED, count_flagged

MOST_TIMES = 20
"""Nobody is sent for more than this many times the records that there are."""


def list_needs(report: Report, evidence: Evidence) -> list[str]:
    """What would settle an inconclusive verdict, the most useful first. Only what somebody can do is named.

    Args:
        report: With its verdicts.
        evidence: What it was made from.
    """
    unit = "groups" if report.given.groups else "records"
    needs = [guard.cure for guard in report.guards if guard.blocks]
    if not evidence.has_held_out:
        n_held_out = max(2 * evidence.count_units("forget"), 100)
        needs.append(
            f"Held-out {unit}: at least {n_held_out:,} that no model was trained on, chosen as the forget {unit} were, "
            "embedded with every model."
        )
        return needs
    if any(guard.name == UNTOUCHED for guard in report.guards):
        needs.append("The unlearned model: the one that was given is the original.")
    if count_flagged(report):
        needs.append("Another round of unlearning for the records that stand out, or a reason why they should.")
    against = [
        one
        for metric in report.metrics.values()
        if metric.verdict == "descriptive" and report.settings.scope == "layers"
        for one in list_remaining(metric)
        if is_above(one, report)
    ]
    if against:
        worst = max(against, key=lambda one: one.at_least)
        needs.append(_ask_for_another_round(worst, FAMILIES["layers"].lower()))
    asked: tuple[Family, ...] = ("outputs", "layers") if report.settings.scope == "layers" else ("outputs",)
    findings = {"outputs": report.outputs, "layers": report.layers}
    for family in asked:
        if findings[family].verdict != "erased":
            needs += _ask_for_models(family, report, evidence)
            needs += _ask_for_records(family, report, evidence, unit)
    if evidence.run_freedom is not None:
        needs.append(
            f"Held-out {unit} that are like the forget {unit}: with others, several oracles can accuse a model, but "
            "not clear it."
        )
    elif report.settings.scope == "layers" and report.outputs.verdict == "erased":
        needs.append("A narrower question, scope='outputs': only what the model says. The headline then says so.")
    return list(dict.fromkeys(needs))


def _ask_for_models(family: Family, report: Report, evidence: Evidence) -> Iterator[str]:
    """What was not given and would let a contrast of this family measure, or measure better."""
    given = report.given
    if family == "outputs" and not given.losses:
        yield "Losses of all records in every model (as `losses` beside the embeddings)."
    if family == "layers" and not can_judge(report, family):
        if not given.oracle:
            yield "An oracle: without one, layers that look clean may have been made to."
        if not evidence.has(("classes",)):
            yield "Class labels of all records, if they have classes: a head fitted to the layers then reads them."
        if not evidence.has(("classes",)) and not given.original:
            yield "The original: with an oracle, it measures how much the layers hold."
        if not evidence.has(("relearned",)):
            yield "Losses after every model relearned half of the records: what returns in the other half was inside."
    if family == "outputs" and not given.original:
        yield "The original: it shows what there was to forget."
    if family == "outputs" and not given.oracle and not given.reference:
        yield (
            "An oracle, or a reference that never saw forget or held-out records (the checkpoint before fine-tuning, "
            "an earlier release, a smaller model): it shows how hard each record is."
        )
    if evidence.run_freedom is not None:
        yield f"More oracles (now {given.oracle}) from other seeds: they show how much retraining moves a contrast."


def _ask_for_records(family: Family, report: Report, evidence: Evidence, unit: str) -> Iterator[str]:
    """How many records the best contrast of this family needs, or the limit that it can show with these."""
    limit = report.settings.limit
    own = list_trusted(report, family)
    capable = [one for metric in own for one in list_capable(metric, limit)]
    open_ones = [metric for metric in own if metric.verdict != "erased"]
    pending = [one for metric in open_ones for one in list_capable(metric, limit) if not one.is_within(limit)]
    known = [one for metric in own for one in metric.remaining.values() if one.resolution > 0]
    chosen = pending or ([] if capable else sorted(known, key=lambda one: -one.resolution)[:1])
    if not chosen or evidence.run_freedom is not None:
        return
    found = max(chosen, key=lambda one: _count_times(one, limit))
    where = FAMILIES[family].lower()
    if abs(found.value) >= limit and capable:
        yield _ask_for_another_round(found, where)
        return
    times = _count_times(found, limit)
    if times == 1.0 and not pending:  # sharp enough, were the trace itself seen more clearly
        return
    n, m = evidence.count_units("forget"), evidence.count_units("held_out")
    n_held_out = _count_held_out(n, m, times)
    if n_held_out <= MOST_TIMES * m:
        n_wanted = _round_up(n_held_out)
        yield f"About {n_wanted:,} held-out {unit} (now {m:,}), to show a limit of {limit:.0%} for {where}."
    elif times <= MOST_TIMES and n > 1:  # the request of one record or person has no more of them
        yield (
            f"About {_round_up(times * n):,} forget {unit} with {_round_up(times * m):,} held-out ones (now {n:,} with "
            f"{m:,}), to show a limit of {limit:.0%} for {where}."
        )
    else:
        shown = max(POWER / found.resolution, found.reach)  # the least limit at which this evidence clears the model
        if shown < 1:
            yield (
                f"A limit of {math.ceil(100 * shown)}%, if that is enough: this request shows no lower one for "
                f"{where}. See the per-record results."
            )
        else:
            yield f"This request is too small to show any limit for {where}. See the per-record results."


def _ask_for_another_round(found: Remaining, where: str) -> str:
    amount = f"by {name_contrast(found.contrast)}, {found.value:.0%} remains in {where}"
    return f"Another round of unlearning: {amount}."


def _count_times(found: Remaining, limit: float) -> float:
    """How many times the records are needed, both sides alike, to show the limit."""
    times = (POWER / (limit * found.resolution)) ** 2
    width = found.high - found.low
    if abs(found.value) < limit and math.isfinite(width):
        # the interval that was found must fit as well
        above, below = found.high - found.value, found.value - found.low
        times = max(times, (above / (limit - found.value)) ** 2, (below / (limit + found.value)) ** 2)
    return max(1.0, times)


def _count_held_out(n: int, m: int, times: float) -> float:
    """How many held-out records do as well as ``times`` as many of both; infinite if no number does.

    Example:
        >>> _count_held_out(10, 10, 1.5), _count_held_out(10, 10, 3.0)
        (30.0, inf)
    """
    room = (1 / n + 1 / m) / times - 1 / n
    return round(1 / room, 6) if room > 1e-12 else math.inf


def _round_up(number: float) -> int:
    """Up to two digits.

    Example:
        >>> _round_up(2341.2), _round_up(7)
        (2400, 7)
    """
    whole = math.ceil(number - 1e-9)
    step = int(10 ** max(0, len(str(whole)) - 2))
    return -(-whole // step) * step
