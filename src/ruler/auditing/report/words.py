"""Every sentence of a report: codes and numbers in, English out."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ruler.auditing.contrasts import CONTRASTS, Contrast
from ruler.auditing.findings import (
    SEEN,
    Family,
    FamilyFinding,
    GuardFinding,
    MetricFinding,
    Remaining,
    Report,
    Scale,
    Verdict,
    find_worst,
)
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.report.display import count_records, format_estimate, format_interval, format_number, format_p
from ruler.auditing.rule import POWER, Judged, list_capable, list_remaining, may_clear
from ruler.auditing.settings import AuditSettings

NOT_KNOWN = "not known"
FAMILIES: dict[Family, str] = {"outputs": "What the model says", "layers": "What its layers hold"}
SCALES: dict[Scale, str] = {"original": "the original's scale", "members": "the members' scale"}
SEVERITIES = {"fail": "Failed", "warn": "Warning", "note": "Note"}
DECLARATIONS = {
    "run_by": "Audit run by",
    "run_for": "Run for",
    "request": "Request",
    "model": "Model",
    "oracle_made": "How the oracle was made",
    "oracle_declared_by": "Oracle declared by",
    "reference_made": "How the reference was made",
    "reference_declared_by": "Reference declared by",
    "held_out_declared_by": "Held-out records declared by",
}
GLOSSARY = {
    "AUC": "The chance that a forget record scores above a held-out record. 0.5 means that they cannot be told apart.",
    "Contrast": "One score per record by which forget and held-out records are compared. Some contrasts decide the "
    "verdict, others describe.",
    "Forget records": "Records that the model was asked to forget.",
    "Guard": "A check of the evidence itself: of the files, not of the model.",
    "Held-out records": "Records that no model was trained on. They show how a model treats what it never saw.",
    "Limit": "The most that may remain for a verdict of erased.",
    "Members": "Retain records, which the audited model was trained on.",
    "Oracle": "The same model, trained from the start without the forget records.",
    "Original": "The model before unlearning.",
    "p": "The chance of a difference at least this large if there were none.",
    "q": "p corrected for the number of records: the expected share of false alarms.",
    "Reference": "Another model that saw neither the forget nor the held-out records, such as the checkpoint before "
    "fine-tuning.",
    "Remaining": "How much the model still holds: 0% is like records that were never trained on, 100% is like records "
    "that were. Below 0%, forget records were pushed beyond records that were never trained on.",
    "Retain records": "Records that the model was trained on and may keep.",
    "Scale": "What 100% is: the same records in the original, or known members in the audited model.",
}
_UNCHECKED = (
    "Neither an oracle nor a reference was given, so nothing checked whether the held-out records are as typical as "
    "the forget records."
)
_MOST_NAMED = 4
_PRECISE = 0.05  # intervals that are shorter are written with a decimal
_LIMITS = {
    "erased": "It says nothing about other contrasts, other layers, other copies of the model, logs or backups. A weak "
    "mark on a few records can be missed. It is a measurement, not a legal finding.",
    "residual": "It does not mean that the records can be read out of the model. It means that the model does not "
    "treat them like records it never saw.",
    "displaced": "It does not mean that the old memory remains, nor that it is gone. The new mark can itself reveal "
    "which records were to be forgotten.",
    "damaged": "It does not mean that the records were forgotten: a model that no longer works can hide what it "
    "remembers. Nor does it mean that they are remembered.",
    "inconclusive": "It is not a sign of erasure: finding no difference does not show that there is none. Nor is it a "
    "sign of failure.",
    "invalid": "It does not mean that unlearning failed, nor that it worked. Correct the evidence as described and "
    "audit again.",
}
_PLAIN_HEADLINES = {
    "damaged": "The model is damaged, so what it has forgotten cannot be judged.",
    "invalid": "The evidence is unsound, so this audit gives no verdict.",
    "inconclusive": "The evidence does not settle whether the records were forgotten.",
}
_WHERE: dict[Family, str] = {"outputs": "in what the model says", "layers": "in what its layers hold"}
_AFTER_ATTACK = {
    "residual": "The forget records come back after an attack, so they were not erased.",
    "displaced": "An attack brings out a new mark on the forget records.",
}
_BRIEFLY: dict[str, dict[Family, str]] = {
    "residual": {"outputs": "in what it says", "layers": "in its layers"},
    "displaced": {"outputs": "in answers", "layers": "in layers"},
}


# Numbers


def format_percent(value: float, digits: int = 0) -> str:
    """A part in percent; what is infinite or not a number is not known.

    Example:
        >>> format_percent(0.04), format_percent(-0.004), format_percent(-0.004, 1), format_percent(math.inf)
        ('4%', '0%', '-0.4%', 'not known')
    """
    if not math.isfinite(value):
        return NOT_KNOWN
    text = f"{100 * value:.{digits}f}"
    return f"{text.lstrip('-') if float(text) == 0 else text}%"


def format_span(value: float, low: float, high: float) -> str:
    """What remains, and its interval; ends that are infinite are not known.

    Example:
        >>> format_span(0.04, -0.03, 0.11), format_span(0.004, -0.01, 0.011), format_span(0.4, -math.inf, math.inf)
        ('4% [-3%, 11%]', '0.4% [-1.0%, 1.1%]', 'not known')
    """
    if not math.isfinite(value) or not (math.isfinite(low) or math.isfinite(high)):
        return NOT_KNOWN
    digits = choose_percent_digits(low, high)
    return f"{format_percent(value, digits)} [{format_percent(low, digits)}, {format_percent(high, digits)}]"


def choose_percent_digits(low: float, high: float) -> int:
    """Decimals of a percentage with this interval."""
    return int(high - low < _PRECISE)


def format_remaining(remaining: Remaining | None) -> str:
    """What remains, and its interval.

    Example:
        >>> format_remaining(Remaining(0.04, -0.03, 0.11, -0.02, 0.1, "original", "loss")), format_remaining(None)
        ('4% [-3%, 11%]', 'not known')
    """
    return NOT_KNOWN if remaining is None else format_span(remaining.value, remaining.low, remaining.high)


# Names


def name_contrast(name: str) -> str:
    """A contrast in running text; one that is not installed here goes by its name.

    Example:
        >>> name_contrast("m2"), name_contrast("loss")
        ('M2', 'loss')
    """
    return CONTRASTS[name].symbol or name if name in CONTRASTS else name


def title_contrast(name: str) -> str:
    """A contrast as a heading; one that is not installed here goes by its name.

    Example:
        >>> title_contrast("m2"), title_contrast("loss"), title_contrast("mine")
        ('M2 calibration gap', 'Loss', 'mine')
    """
    if name not in CONTRASTS:
        return name
    contrast = CONTRASTS[name]
    return f"{contrast.symbol} {contrast.title.lower()}" if contrast.symbol else contrast.title


def name_verdict(metric: MetricFinding) -> str:
    """The verdict of one contrast. One contrast erases nothing: it lies within the limit."""
    return "within limit" if metric.verdict == "erased" else metric.verdict


def join_names(names: Sequence[str]) -> str:
    """Names in running text.

    Example:
        >>> join_names(["M2", "norm", "loss"])
        'M2, norm and loss'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def sort_guards(guards: Sequence[GuardFinding]) -> list[GuardFinding]:
    """The gravest first."""
    return sorted(guards, key=lambda guard: list(SEVERITIES).index(guard.severity))


def list_metrics(report: Report, *, is_deciding: bool = False, family: Family | None = None) -> list[MetricFinding]:
    """The findings in the order of the table of contrasts, unknown ones last.

    Args:
        report: Whose.
        is_deciding: Only those that decide.
        family: Only those that speak of it.
    """
    order = {name: place for place, name in enumerate(CONTRASTS)}
    found = sorted(report.metrics.values(), key=lambda metric: order.get(metric.name, len(order)))
    return [
        metric
        for metric in found
        if (not is_deciding or metric.verdict != "descriptive") and family in (None, metric.family)
    ]


def find_layers(report: Report) -> list[str]:
    """Names of the layers that were read, in order; empty if they have none."""
    known = report.provenance.get("layers")
    return list(map(str, known)) if isinstance(known, list | tuple) else []


def describe_layers(report: Report) -> str:
    """Where the representations were read, for the middle of a sentence."""
    names = find_layers(report)
    if len(names) > _MOST_NAMED:
        return f"{len(names)} layers ({names[0]} to {names[-1]})"
    return f"layer{'s' if len(names) > 1 else ''} {join_names(names)}" if names else "one unnamed layer"


def name_chooser(settings: AuditSettings) -> str:
    """Who chose the limit.

    Example:
        >>> name_chooser(AuditSettings()), name_chooser(AuditSettings(limit=0.1))
        ('default of the software', 'whoever ran the audit, no name given')
    """
    if settings.limit_chosen_by is not None:
        return settings.limit_chosen_by
    is_default = settings.limit == AuditSettings.__dataclass_fields__["limit"].default
    return "default of the software" if is_default else "whoever ran the audit, no name given"


def list_trusted(report: Report, family: Family) -> list[MetricFinding]:
    """Contrasts that may clear a family: of layers only with an oracle, or after relearning."""
    return [one for one in list_metrics(report, is_deciding=True, family=family) if may_clear(one, report)]


def can_judge(report: Report, family: Family) -> bool:
    """Whether a contrast that may clear this family can show the limit."""
    return any(list_capable(metric, report.settings.limit) for metric in list_trusted(report, family))


# One contrast


def explain_contrast(metric: MetricFinding, judged: Judged, contrast: Contrast, report: Report) -> str:
    """Why a contrast has its verdict."""
    limit = format_percent(report.settings.limit)
    amounts = _list_amounts(_list_judged(metric, report))
    if judged.cause == "no control":
        return "No held-out records were given, so nothing was tested."
    if judged.cause in ("guard", "blocked"):
        named = join_names([g.name for g in report.guards if g.severity == "fail" or g.blocks])
        return f"The evidence allows no verdict ({named})."
    if judged.cause == "differs":
        return f"{_describe_parts(metric, judged.by)} {_explain_side(metric, judged, contrast, report)}"
    if judged.cause == "within":
        where = "is no more than" if contrast.knows_original else "lies within"
        return f"{amounts}. This {where} the limit of {limit}."
    if judged.cause == "not within":
        return f"{amounts}. This is not shown to lie within the limit of {limit}."
    found = _explain_nothing_found(metric, contrast, limit)
    if not contrast.is_ruler:
        return f"{found} This contrast can accuse a model, but it does not measure how much remains."
    if not metric.remaining:
        return f"{found} Neither the original nor comparable members show what 100% would be."
    known = list_remaining(metric)
    needed, seen = POWER / report.settings.limit, max(one.resolution for one in known)
    if seen >= needed:
        needed, seen = SEEN, max(one.visibility for one in known if one.resolution >= needed)
    return (
        f"{found} It does not decide, because {_explain_weakness('it', known, report)}: what training leaves is "
        f"{seen:.1f} standard errors, and {needed:.1f} are needed. {amounts}."
    )


def _list_judged(metric: MetricFinding, report: Report) -> list[Remaining]:
    """The amounts that decide, by scale the least favourable of any layer; all amounts of a contrast without any."""
    capable = list_capable(metric, report.settings.limit)
    worst = [find_worst(one for one in capable if one.scale == scale) for scale in SCALES]
    return [one for one in worst if one is not None] or list(metric.remaining.values())


def _explain_nothing_found(metric: MetricFinding, contrast: Contrast, limit: str) -> str:
    """That a contrast shows no difference, as far as it was tested."""
    tested = [not math.isnan(part.p_value) for part in metric.parts.values() if not math.isnan(part.effect)]
    if not any(tested):
        return (
            "It was not tested: with held-out records that are unlike the forget records, several oracles tell only "
            "by how much measured amounts differ."
        )
    if contrast.knows_original:
        return f"It does not show that more than the limit of {limit} remains."
    if not all(tested):
        return "No difference between the means was found. Nothing else was tested."
    if any(not one.low <= 0 <= one.high for one in metric.remaining.values()):
        return "No difference was found by a test that allows for all contrasts, which intervals do not."
    return "No difference was found."


def _explain_weakness(named: str, found: Sequence[Remaining], report: Report) -> str:
    """Why contrasts with these amounts do not decide, for the middle of a sentence."""
    names, needed = {one.contrast for one in found}, POWER / report.settings.limit
    if names == {one.contrast for one in found if one.resolution >= needed}:
        return f"what training leaves is too faint in {named} to measure how much of it remains"
    return (
        f"with these records, {named} would show in fewer than four of five audits that a model in which nothing "
        f"remains lies within the limit of {format_percent(report.settings.limit)}"
    )


def _list_amounts(found: Iterable[Remaining]) -> str:
    """How much remains on each scale."""
    said = [f"{format_remaining(one)} remains on {SCALES[one.scale]}{_name_layer(one)}" for one in found]
    return join_names(said) or "How much remains is not known"


def _name_layer(remaining: Remaining) -> str:
    return "" if remaining.layer is None else f" (at {remaining.layer})"


def _describe_parts(metric: MetricFinding, parts: Sequence[str]) -> str:
    said = {
        "place": "score above" if metric.place.effect > 0.5 else "score below",
        "spread": "scatter more than" if metric.spread.effect > 0.5 else "scatter less than",
        "tail": "are unusually high more often than",
    }
    described = [
        f"{said[name]} held-out ones (AUC {format_number(metric.parts[name].effect, 2)}, "
        f"p {format_p(metric.parts[name].p_value)})"
        for name in parts
    ]
    return f"Forget records {join_names(described)}."


def _explain_side(metric: MetricFinding, judged: Judged, contrast: Contrast, report: Report) -> str:
    """Why a difference counts as memory or as a new mark."""
    control = metric.control
    is_known = not math.isnan(control.original_p_value)
    is_seen = is_known and control.original_p_value <= report.settings.alpha
    above = [one for one in metric.remaining.values() if one.low > 0]
    if judged.verdict == "residual":
        if above:
            return f"{_list_amounts(above)}."
        if "tail" in judged.by:
            return "This is what memory of a few records looks like."
        if "place" not in judged.by:
            told = "the original, too, tells these records apart" if is_seen else "nothing shows that it is new"
            return f"This counts as memory, because {told}."
        if is_seen and (metric.place.effect > 0.5) == (control.original_effect > 0.5):
            return "The original shows a difference, too, so it is old."
        side = "This is the side of memory." if contrast.residual_side else "This counts as memory."
        return f"{side} The original does not tell whether the difference is old."
    if contrast.is_ruler and "place" in judged.by:
        return "They lie beyond records that were never trained on."
    if is_known and not is_seen:
        return "The original does not show this difference, so it is new."
    return "This is not how the model treats records that it remembers."


# What the model says, what its layers hold


def explain_family(family: Family, judged: Judged, worst: Remaining | None, report: Report) -> str:
    """Why the outputs, or the layers, have their verdict, and how much remains by those that decided."""
    subject, limit = FAMILIES[family], format_percent(report.settings.limit)
    if judged.cause == "no control":
        return f"{subject} was not tested: no held-out records were given."
    if judged.cause in ("guard", "blocked"):
        return f"{subject} was measured, but the evidence allows no verdict."
    named = join_names([name_contrast(name) for name in judged.by])
    amount = f" By {name_contrast(worst.contrast)}, {format_remaining(worst)} remains." if worst is not None else ""
    if judged.cause == "residual":
        return f"{subject} shows memory of the forget records, seen in {named}.{amount}"
    if judged.cause == "displaced":
        if worst is not None and worst.high < 0:
            beyond = "they lie beyond records that were never trained on"
            amount = f" By {name_contrast(worst.contrast)}, {beyond}: {format_remaining(worst)}."
        return f"{subject} bears a new mark on the forget records, seen in {named}.{amount}"
    if judged.cause == "not judged":
        return _explain_blindness(family, named, report)
    if judged.cause == "not within":
        return (
            f"{subject} is not shown to lie within the limit of {limit}: by {named}, {format_remaining(worst)} remains."
        )
    return f"{bound_remaining(worst, 'erased')} {_WHERE[family]}, by {named}: {format_remaining(worst)}."


def bound_remaining(remaining: Remaining | None, verdict: Verdict = "inconclusive") -> str:
    """At most, at least or less than nothing: what is known of what remains, as the beginning of a sentence.

    Example:
        >>> bound_remaining(Remaining(0.08, 0.01, 0.15, 0.02, 0.14, "original", "loss"))
        'At least 2% remains'
        >>> bound_remaining(Remaining(0.08, 0.01, 0.15, 0.02, 0.14, "original", "loss"), "erased")
        'At most 14% remains'
    """
    if remaining is None or not (math.isfinite(remaining.at_least) or math.isfinite(remaining.at_most)):
        return "How much remains is not known"
    digits = choose_percent_digits(remaining.low, remaining.high)
    if remaining.low > 0 and verdict != "erased":
        return f"At least {format_percent(remaining.at_least, digits)} remains"
    if remaining.high < 0:
        return "Less than nothing remains"
    if math.isinf(remaining.at_most):
        return "How much remains has no upper limit"
    return f"At most {format_percent(max(0.0, remaining.at_most), digits)} remains"


def _explain_blindness(family: Family, named: str, report: Report) -> str:
    """Why a family could not be judged."""
    subject = f"{FAMILIES[family]} could not be judged:"
    if not named:
        return f"{subject} {'no losses were given' if family == 'outputs' else 'nothing that reads them was measured'}."
    trusted = list_trusted(report, family)
    scaled = [metric for metric in trusted if metric.remaining]
    if scaled:
        known = [one for metric in scaled for one in list_remaining(metric)]
        return f"{subject} {_explain_weakness(join_names([name_contrast(one.name) for one in scaled]), known, report)}."
    if family == "outputs":
        return f"{subject} {named} has no scale without the original or comparable members."
    if trusted:
        return (
            f"{subject} {named} can accuse, but measuring how much remains takes class labels, the original beside the "
            "oracle, or losses after relearning."
        )
    return (
        f"{subject} {named} can accuse, but without an oracle or losses after relearning, layers that look clean may "
        "have been made to."
    )


# The whole


def explain_report(judged: Judged, report: Report, n_flagged: int) -> str:
    """Why the report has its verdict."""
    stands_out = f"{count_records(n_flagged, 'forget record')} {'stands' if n_flagged == 1 else 'stand'} out."
    if judged.cause == "guard":
        failed = next(guard for guard in report.guards if guard.severity == "fail")
        return f"A check of the evidence failed: {failed.message}"
    if judged.cause == "damage":
        return report.damage.reason if report.damage is not None else ""
    if judged.cause == "no control":
        return "No held-out records were given, so nothing was tested."
    if judged.cause == "blocked":
        return next(guard.message for guard in report.guards if guard.blocks)
    if judged.cause == "untouched":
        return (
            "The audited model and the original are the same, so nothing was unlearned. That no difference was found "
            "does not make the records erased."
        )
    if judged.cause == "flagged":
        return f"{stands_out} See the records."
    if judged.cause == "untested":
        return (
            "The held-out records are unlike the forget records. Several oracles then tell only by how much measured "
            "amounts differ, and nothing else was tested, so the model cannot be cleared."
        )
    if judged.cause == "contradicted":
        return _explain_contradiction(judged.by, report)
    reasons = [(report.outputs if name == "outputs" else report.layers).reason for name in judged.by]
    if judged.cause in ("residual", "displaced") and not has_neutral(report):
        reasons.append(_UNCHECKED)
    return " ".join(reasons)


def _explain_contradiction(names: Sequence[str], report: Report) -> str:
    """That contrasts without a part in the verdict show more than the limit."""
    shown = [max(list_remaining(report.metrics[name]), key=lambda one: one.at_least) for name in names]
    said = [f"by {name_contrast(one.contrast)}{_name_layer(one)}, {format_remaining(one)} remains" for one in shown]
    text = join_names(said)
    return (
        f"{text[:1].upper()}{text[1:]}, more than the limit of {format_percent(report.settings.limit)}. This does not "
        "decide that the model remembers, but as long as it is so, the model cannot be cleared."
    )


def choose_headline(report: Report) -> str:
    """The verdict as one or two plain sentences that state their scope."""
    found: dict[Family, str] = {"outputs": report.outputs.verdict, "layers": report.layers.verdict}
    if report.verdict in ("residual", "displaced"):
        own = [family for family, finding in found.items() if finding == report.verdict]
        if not own:
            return _AFTER_ATTACK[report.verdict]
        rest = _explain_scope(report) if "layers" not in own else ""
        where = join_names([_BRIEFLY[report.verdict][family] for family in own])
        what = "The model remembers" if report.verdict == "residual" else "Unlearning left a new mark on"
        return f"{what} the forget records, {where}.{rest}"
    if report.verdict == "erased":
        return f"{bound_remaining(report.remaining, 'erased')}, {_name_scope(report)}.{_explain_scope(report)}"
    plain = _PLAIN_HEADLINES[report.verdict]
    if report.verdict != "inconclusive" or not report.given.held_out or any(guard.blocks for guard in report.guards):
        return plain
    if report.settings.scope == "layers" and (report.outputs.verdict, report.layers.verdict) == (
        "erased",
        "inconclusive",
    ):
        return f"{bound_remaining(report.outputs.remaining, 'erased')} {_WHERE['outputs']}.{_explain_scope(report)}"
    return f"{plain}{_explain_scope(report)}"


def _name_scope(report: Report) -> str:
    both = report.settings.scope == "layers"
    return join_names([_WHERE["outputs"], *([_WHERE["layers"]] if both else [])])


def _explain_scope(report: Report) -> str:
    """What was not asked or could not be judged, as a further sentence; empty if both families were judged."""
    if report.settings.scope == "outputs":
        return " Only what the model says was asked, not what its layers hold."
    if report.layers.verdict == "inconclusive":
        is_able = can_judge(report, "layers")
        return f" What its layers hold {'was not shown to lie within the limit' if is_able else 'could not be judged'}."
    return ""


def explain_remaining(report: Report) -> str:
    """How much remains at most or at least in what was asked, with interval, contrast, scale and limit."""
    asked: dict[Family, FamilyFinding] = {"outputs": report.outputs}
    if report.settings.scope == "layers":
        asked["layers"] = report.layers
    said = [
        f"{bound_remaining(one.remaining, one.verdict)} {_WHERE[family]}: {describe_amount(one.remaining)}."
        if format_remaining(one.remaining) != NOT_KNOWN
        else f"How much remains {_WHERE[family]} is not known."
        for family, one in asked.items()
    ]
    limit, confidence = format_percent(report.settings.limit), format_percent(report.settings.confidence)
    return f"{' '.join(said)} The limit is {limit}, at a confidence of {confidence}."


def describe_amount(remaining: Remaining | None) -> str:
    """What remains with its two-sided interval, and by which contrast on which scale it was measured."""
    if remaining is None:
        return NOT_KNOWN
    where = f"by {name_contrast(remaining.contrast)}{_name_layer(remaining)}, on {SCALES[remaining.scale]}"
    return f"{format_remaining(remaining)} {where}"


def explain_meaning(report: Report) -> str:
    """What the verdict means for the forget records."""
    if report.verdict == "damaged":
        cause = report.damage.reason if report.damage is not None else ""
        return f"{cause} Forgetting can only be judged in a model that still works.".strip()
    if report.verdict == "invalid":
        n_failed = sum(guard.severity == "fail" for guard in report.guards)
        checks = "A check" if n_failed <= 1 else f"{n_failed} checks"
        return f"{checks} of the evidence failed, so the numbers below cannot be relied on."
    is_one = len(report.records) == 1
    who = "the forget record" if is_one else f"the {count_records(len(report.records), 'forget record')}"
    if not report.given.held_out:
        return (
            f"{who.capitalize()} could not be compared with anything, because no held-out records were given. "
            "The numbers describe the records but decide nothing."
        )
    scope = f"Judged by {_name_tested(report)} at {describe_layers(report)}"
    if report.verdict == "inconclusive":
        states = "is remembered nor that it was" if is_one else "are remembered nor that they were"
        return f"{scope}, the audit could show neither that {who} {states} erased."
    if report.verdict == "erased":
        like = "is like a record" if is_one else "are like records"
        confidence = format_percent(report.settings.confidence)
        return (
            f"{scope}, {who} {like} that the model was never trained on, to within the limit of "
            f"{format_percent(report.settings.limit)} at a confidence of {confidence}. {_explain_records(report)}"
        )
    carrying = [m for m in list_metrics(report, is_deciding=True) if m.verdict == report.verdict]
    seen = join_names([name_contrast(metric.name) for metric in carrying])
    where = f" (seen in {seen})" if seen else ""
    differs = "differs" if is_one else "differ"
    if report.verdict == "residual":
        said = f"{scope}, {who} still {differs} from records that the model was never trained on{where}."
    else:
        said = f"{scope}, {who} {differs} from held-out records{where}, but not in the way that remembered records do."
    if not report.given.original:
        said += " The original was not given, so whether a difference is old is inferred from its side."
    return said if has_neutral(report) else f"{said} {_UNCHECKED}"


def _name_tested(report: Report) -> str:
    """The contrasts that decide, except those that could be neither tested nor measured."""
    tested = [
        name_contrast(metric.name)
        for metric in list_metrics(report, is_deciding=True)
        if metric.remaining or not all(math.isnan(part.p_value) for part in metric.parts.values())
    ]
    return join_names(tested) or "no contrast"


def _explain_records(report: Report) -> str:
    """Whether single records stand out, as far as they were judged."""
    found = report.records["finding"]
    if (found == NOT_JUDGED).all():
        return "Single records were not judged."
    if not found.isin([ALIKE, NOT_JUDGED]).all():
        return "Some records stand out."
    return f"No record stands out{explain_few_held_out(report)}."


def explain_few_held_out(report: Report) -> str:
    """How many held-out records it takes to tell a single record, in brackets; empty if there are as many."""
    # p-values are ranks among held-out records, doubled if amounts were compared as well
    n_ranks = 1 + int(report.records["remaining"].notna().any())
    n_needed = math.ceil(n_ranks * len(report.records) / report.settings.alpha - 1e-9)
    held_out = report.distributions.rank_counts.get("held_out")
    if held_out is None or held_out.sum() + 1 >= n_needed:
        return ""
    return f" (single records can only be told with about {n_needed:,} held-out ones)"


def show_p(metric: MetricFinding) -> str:
    """The p-value over all parts and layers; a dash where it says nothing.

    Scores of contrasts that know the original differ between forget and held-out records even if nothing remains.
    """
    contrast = CONTRASTS.get(metric.name)
    knows = contrast is not None and (contrast.knows_original or "original" in contrast.needs)
    return format_p(None if knows and metric.verdict == "descriptive" else metric.p_value)


def has_neutral(report: Report) -> bool:
    """Whether a model was given that saw neither forget nor held-out records."""
    return report.given.oracle + report.given.reference > 0


def explain_limit(settings: AuditSettings) -> str:
    """What the limit is, what it means, and who chose it."""
    return (
        f"The limit is {format_percent(settings.limit)}: for a verdict of erased, no more may remain, at a confidence "
        f"of {format_percent(settings.confidence)}. 0% is like records that were never trained on, 100% is like "
        f"records that were. Chosen by: {name_chooser(settings)}."
    )


def explain_attacks(report: Report) -> str:
    """How plain and attacked audits share the error rate."""
    n_audits = 1 + len(report.attacks)
    alpha = report.settings.alpha
    return (
        f"The verdict is the worst of {n_audits} audits. Each was made at an error rate of {alpha:.3g}, so that all "
        f"together err at most at {n_audits * alpha:.3g}."
    )


def explain_privacy(report: Report) -> list[str]:
    """What an attacker with the best contrast achieves: epsilon, the true positive rate, and how they were found."""
    found = report.privacy
    if found is None:
        return []
    name, level = name_contrast(found.contrast), f"{found.confidence:.0%}"
    bound = f"The error rates of {name}, the best contrast, prove no epsilon above 0 (confidence {level})."
    if found.epsilon > 0:
        bound = (
            f"{name[:1].upper()}{name[1:]} tells forget from held-out records so well that epsilon is at least "
            f"{format_number(found.epsilon, 2)} (confidence {level})."
        )
    rate = "The true positive rate at 1% false positives can only be measured with at least 100 held-out records."
    if not math.isnan(found.true_positive_rate):
        low, high = found.true_positive_interval
        interval = format_interval((100 * low, 100 * high), 1)
        rate = (
            f"At 1% false positives, {name} finds {100 * found.true_positive_rate:.1f}% of the forget records"
            f"{f' {interval}%' if interval else ''}; guessing finds 1%."
        )
    method = (
        "For epsilon, the contrast, side and threshold were chosen on one half of the records and evaluated on the "
        "other. Another attack may achieve more."
    )
    return [bound, rate, method]


def describe_part(metric: MetricFinding, part: str) -> str:
    """AUC and interval of place, spread or tail."""
    found = metric.parts[part]
    return format_estimate(found.effect, found.interval)


def explain_resolution(remaining: Remaining) -> str:
    """How well a contrast sees the trace that is 100%, and the least limit that it can show with it."""
    least = POWER / remaining.resolution if remaining.resolution > 0 else math.inf
    shown = "cannot be shown to lie within any limit"
    if least < 1:
        shown = f"is shown to lie within {format_percent(least)} in four of five audits"
    return (
        f"On {SCALES[remaining.scale]}, what training leaves is {format_number(remaining.visibility, 1)} standard "
        f"errors. A model in which nothing remains {shown}."
    )


# Persons


def explain_group(row: Mapping[str, Any], report: Report) -> str:
    """What would settle one person's row, or that nothing is to be done."""
    if row["verdict"] == "erased":
        return "Nothing."
    if row["verdict"] != "inconclusive":
        return "Another round of unlearning, or a reason why the records should stand out."
    reach = max(abs(row["at_least"]), abs(row["at_most"]))
    if reach < 1:
        return f"A limit of {math.ceil(100 * reach)}%, if that is enough."
    if any(guard.blocks for guard in report.guards):
        return "What the guards ask for."
    return "More held-out records." if has_neutral(report) else "An oracle, a reference, or more held-out records."


def explain_group_rates(report: Report) -> str:
    """The error rates of the rows, for each and for all."""
    settings = report.settings
    return (
        f"Each interval holds at a confidence of {format_percent(settings.confidence)} for its own row. Of all rows "
        f"that are called residual or displaced, at most {format_percent(settings.alpha)} are expected to be false "
        "alarms."
    )


# What was given, and what limits it


def list_given(report: Report) -> list[tuple[str, str, str]]:
    """What the audit was given: its name, whether it was, and what it supports and does not support."""
    given = report.given
    n_oracles, n_references = given.oracle, given.reference
    oracle = (
        "The original's training procedure without the forget records. It supports judging what the model says and "
        f"what its layers hold. {_tell_origin(report, 'oracle')}"
        if n_oracles
        else "Without it, the layers can be accused, but cleared only by relearning."
    )
    reference = (
        "It shows how hard each record is for a model that never saw it, so it supports judging what the model says. "
        "What the layers hold it can only help to show by a readout, which can accuse, or after relearning. "
        f"{_tell_origin(report, 'reference')}"
        if n_references
        else "Without an oracle or a reference, nothing shows how hard each record is."
        if not n_oracles
        else "The oracle takes its place."
    )
    original = _explain_scales(report)
    held_out = (
        f"They show what 0% is. {_tell_origin(report, 'held_out')}" if given.held_out else "So nothing could be tested."
    )
    losses = "They show what the model says." if given.losses else "So what the model says could not be judged."
    return [
        ("Held-out records", _say_count(given.held_out), held_out),
        ("Oracle", _say_count(n_oracles), oracle),
        ("Reference", _say_count(n_references), reference),
        ("Original", _say_count(given.original), original),
        ("Losses", _say_count(given.losses), losses),
    ]


def _explain_scales(report: Report) -> str:
    """What the original was good for, and what 100% is."""
    rulers = [metric for metric in list_metrics(report, is_deciding=True) if metric.remaining]
    by_original = [name_contrast(metric.name) for metric in rulers if "original" in metric.remaining]
    has_members = any("members" in metric.remaining for metric in rulers)
    if not report.given.original:
        known = "So 100% is what known members show in the audited model, and old" if has_members else "So old"
        return f"{known} differences are not told from new ones."
    if by_original:
        where = "" if len(by_original) == len(rulers) else f" (of {join_names(by_original)})"
        return f"It shows what there was to forget: 100% on the original's scale{where}."
    said = " The contrasts that decide use the members' scale instead: 100% is what known members show."
    return f"It shows what there was to forget.{said if has_members else ''}"


def _say_count(number: int) -> str:
    return f"{number} given" if number > 1 else "given" if number else "not given"


def _tell_origin(report: Report, what: str) -> str:
    """Where something came from: as declared, or that nobody declared it."""
    declared = {name: text for name, text in report.declared.items() if name.startswith(f"{what}_")}
    if what == "held_out" and report.settings.control == "same-rule":
        return "They were declared to be chosen by the rule that chose the forget records. That was not verified."
    if not declared:
        return "Nobody declared where it came from." if what != "held_out" else "Nobody declared where they came from."
    return (
        f"Its origin was declared, not verified: {'; '.join(declared.values())}."
        if what != "held_out"
        else (f"Their origin was declared, not verified: {'; '.join(declared.values())}.")
    )


def list_declarations(report: Report) -> list[tuple[str, str]]:
    """What whoever ran the audit declares about it, and who chose the limit."""
    known = [(DECLARATIONS.get(name, name.replace("_", " ")), text) for name, text in report.declared.items()]
    if report.settings.control == "same-rule":
        known.append(("Held-out records chosen by", "the rule that chose the forget records"))
    return [*known, ("Limit chosen by", name_chooser(report.settings))]


def explain_limits(report: Report) -> str:
    """What the verdict does not mean."""
    unseen = [contrast.if_absent for name, contrast in CONTRASTS.items() if name not in report.metrics]
    return " ".join(filter(None, [_LIMITS[report.verdict], *(unseen if report.verdict == "erased" else [])]))


def list_limitations(report: Report) -> list[str]:
    """All that limits what this report shows, the verdict's own limits first."""
    found = [
        explain_limits(report),
        _explain_scope(report).strip(),
        f"It covers {_name_tested(report)} at {describe_layers(report)}. Nothing else was looked at: no other "
        f"layer, and no {'other ' if report.attacks else ''}attack.",
        "RULER measured the files that it was given. It cannot verify that they belong to the model in use, nor that "
        "models were trained as somebody says.",
    ]
    if not has_neutral(report):
        found.append(_UNCHECKED)
    if report.verdict != "erased":
        found += [contrast.if_absent for name, contrast in CONTRASTS.items() if name not in report.metrics]
    if n_unmatched := report.provenance.get("n_unmatched"):
        found.append(f"{n_unmatched} held-out records were left out so that forget and held-out records match.")
    if report.settings.n_reference is not None:
        found.append(f"M4 was ranked among {report.settings.n_reference:,} retain records drawn at random, not all.")
    return [*filter(None, found), "It is a measurement of one model at one time, not a legal finding."]
