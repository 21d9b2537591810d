"""The rule: from the numbers of a report to its verdicts, by tables of (verdict, condition): the first that holds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Any, TypeVar

from ruler.auditing.contrasts import Contrast
from ruler.auditing.findings import SEEN, Family, MetricFinding, Remaining, Report, Verdict

T = TypeVar("T")
BAD: tuple[Verdict, ...] = ("residual", "displaced")

POWER = 2.93
"""Standard errors between 0 and the limit at which a clean model is shown to lie within it in four of five audits."""


@dataclass(frozen=True)
class Judged:
    """A verdict, the code of its cause, and the names of the parts, contrasts or families that decided."""

    verdict: Verdict
    cause: str
    by: tuple[str, ...] = ()


def first(rows: Iterable[tuple[T, bool]]) -> T:
    """The first entry whose condition holds."""
    return next(entry for entry, holds in rows if holds)


def list_remaining(metric: MetricFinding) -> list[Remaining]:
    """What remains on every scale, and at every layer."""
    return [one for layer in metric.layers for one in layer.remaining.values()] or list(metric.remaining.values())


def list_capable(metric: MetricFinding, limit: float) -> list[Remaining]:
    """Of these, what can show the limit."""
    return [one for one in list_remaining(metric) if one.visibility >= SEEN and one.resolution >= POWER / limit]


def is_above(found: Remaining, report: Report) -> bool:
    """More than the limit is shown to remain."""
    return found.visibility >= SEEN and found.at_least > report.settings.limit


def judge_contrast(metric: MetricFinding, contrast: Contrast, report: Report) -> Judged:
    """One contrast, from its own numbers."""
    limit, alpha = report.settings.limit, report.settings.alpha
    capable = list_capable(metric, limit)
    least = -inf if contrast.knows_original else -limit  # a model that was trained otherwise may well lie below zero
    within = bool(capable) and all(least < one.at_least and one.at_most < limit for one in capable)
    # a difference in place is excused if it is shown to be small, and no other scale or layer shows it to be large
    small = within and all(one.at_least <= limit and one.at_most >= least for one in list_remaining(metric))
    # chance of one training run can move a clean model a little towards the original
    clear = not contrast.knows_original or any(one.at_least > limit for one in list_remaining(metric))
    found = metric.parts.items() if clear else ()
    parts = [part for part, one in found if one.p_value <= alpha and not (part == "place" and small)]
    return first(
        (
            (Judged("inconclusive", "no control"), metric.control.kind == "none"),
            (Judged(judge_side(metric, contrast, parts, alpha), "differs", tuple(parts)), bool(parts)),
            (Judged("erased", "within"), within),
            (Judged("inconclusive", "not within"), bool(capable)),
            (Judged("inconclusive", "cannot show"), True),
        )
    )


def judge_side(metric: MetricFinding, contrast: Contrast, parts: Sequence[str], alpha: float) -> Verdict:
    """Is a difference in these parts old memory, or a mark that is new?"""
    control, above, side = metric.control, metric.place.effect > 0.5, contrast.residual_side
    known, seen = not isnan(control.original_p_value), control.original_p_value <= alpha
    is_old = seen and above == (control.original_effect > 0.5) if known else side == 0 or above == (side > 0)
    return first(
        (
            ("residual", "tail" in parts),
            ("residual", "place" in parts and contrast.is_ruler and above),
            ("displaced", "place" in parts and contrast.is_ruler),
            ("residual", "place" in parts and is_old),
            ("displaced", "place" in parts),
            ("residual", any(one.low > 0 for one in metric.remaining.values())),
            ("displaced", known and not seen),
            ("residual", True),
        )
    )


def may_clear(metric: MetricFinding, report: Report) -> bool:
    """Layers that are compared with no oracle and after no relearning may look clean because they were made to."""
    return metric.family == "outputs" or report.given.oracle > 0 or metric.name == "relearned"


def judge_family(family: Family, judged: Mapping[str, Judged], report: Report) -> Judged:
    """What the model says, or what its layers hold, from the contrasts that speak of it."""
    own = {name: one for name, one in judged.items() if report.metrics[name].family == family}
    named = {word: tuple(name for name, one in own.items() if one.verdict == word) for word in BAD}
    trusted = [report.metrics[name] for name in own if may_clear(report.metrics[name], report)]
    capable = tuple(one.name for one in trusted if list_capable(one, report.settings.limit))
    open_ones = tuple(name for name in capable if own[name].verdict != "erased")
    return first(
        (
            (Judged("residual", "residual", named["residual"]), bool(named["residual"])),
            (Judged("displaced", "displaced", named["displaced"]), bool(named["displaced"])),
            (Judged("inconclusive", "not judged", tuple(own)), not capable),
            (Judged("inconclusive", "not within", open_ones), bool(open_ones)),
            (Judged("erased", "within", capable), True),
        )
    )


def judge_report(report: Report, outputs: Judged, layers: Judged, facts: Mapping[str, Any]) -> Judged:
    """The whole: the worse of what the model says and what its layers hold, if the evidence allows a verdict."""
    asked = {"outputs": outputs} | ({"layers": layers} if report.settings.scope == "layers" else {})
    both = {"outputs": outputs, "layers": layers}
    worst = {
        word: tuple(name for name, one in both.items() if one.verdict == word) for word in ("residual", "displaced")
    }
    pending = tuple(name for name, one in asked.items() if one.verdict != "erased")
    return first(
        (
            (Judged("invalid", "guard"), facts["invalid"]),
            (Judged("damaged", "damage"), facts["damaged"]),
            (Judged("inconclusive", "no control"), facts["no control"]),
            (Judged("inconclusive", "blocked"), facts["blocked"]),
            (Judged("residual", "residual", worst["residual"]), bool(worst["residual"])),
            (Judged("displaced", "displaced", worst["displaced"]), bool(worst["displaced"])),
            (Judged("inconclusive", "untouched"), facts["untouched"]),
            (Judged("inconclusive", "flagged"), facts["flagged"]),
            (Judged("inconclusive", "untested"), facts["untested"]),
            (Judged("inconclusive", "contradicted", facts["contradicted"]), bool(facts["contradicted"])),
            (Judged("inconclusive", "pending", pending), bool(pending)),
            (Judged("erased", "erased", tuple(asked)), True),
        )
    )
