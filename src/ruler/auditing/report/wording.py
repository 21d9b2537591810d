"""What a verdict means and does not mean, in plain words, with the contrasts and layers that it speaks of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import GuardFinding, Interval, MetricFinding, Report
from ruler.auditing.report.display import count_records, format_interval, format_number
from ruler.auditing.settings import AuditSettings

DECLARED = "declared by whoever ran the audit, not verified"
TESTS = {"permutation": "permutation test", "hybrid": "hybrid test (several oracles)", "none": "no test"}
SEVERITIES = {"fail": "Failed", "warn": "Warning", "note": "Note"}
SOURCES = {"original": "original model", "known members": "known members"}
DECLARATIONS = {
    "run_by": "Audit run by",
    "run_for": "Run for",
    "request": "Request",
    "model": "Model",
    "oracle_made": "How the oracle was made",
    "oracle_declared_by": "Oracle declared by",
    "held_out_declared_by": "Held-out records declared by",
}
GLOSSARY = {
    "AUC": "The chance that a forget record scores above a held-out record; 0.5 means that they cannot be told apart.",
    "Contrast": "One score per record by which forget and held-out records are compared. Some contrasts decide the "
    "verdict, others describe.",
    "Equivalence": "A difference that is shown to be smaller than the margin, not one that was merely not found.",
    "Forget records": "Records that the model was asked to forget.",
    "Guard": "A check of the evidence itself: of the files, not of the model.",
    "Held-out records": "Records that no model was trained on: how a model treats what it never saw.",
    "Margin": "The largest distance of an AUC from 0.5 that counts as no difference.",
    "Oracle": "The same model, trained from the start without the forget records.",
    "Original model": "The model before unlearning.",
    "p": "The chance of a difference at least this large if there were none.",
    "Positive control": "Records that training must have marked. A contrast that is blind to them proves nothing by "
    "seeing nothing elsewhere.",
    "q": "p corrected for the number of records: the expected share of false alarms.",
    "Retain records": "Records that the model was trained on and may keep.",
    "Share left": "How much of the contrast in the positive control is still there: 0% none, 100% all.",
    "Spread": "How far scores scatter around their middle.",
}
_MOST_NAMED = 4

_HEADLINES = {
    "erased": "No trace beyond the margin was found, and the audit was shown to detect such traces.",
    "residual": "Traces of the forget records remain in the model.",
    "displaced": "Unlearning left a new mark on the forget records.",
    "damaged": "The model is damaged, so what it has forgotten cannot be judged.",
    "inconclusive": "The evidence does not settle whether the records were forgotten.",
    "invalid": "The evidence is unsound, so this audit gives no verdict.",
}
_WITHIN_MARGIN = "A difference was found, but it was shown to lie within the margin."

_LIMITS = {
    "erased": "It says nothing about other contrasts, other layers, other copies of the model, logs or backups. A weak "
    f"mark on a few records can be missed. The oracle and the held-out records were {DECLARED}. It is a measurement, "
    "not a legal finding.",
    "residual": "It does not mean that the records can be read out of the model. It means that the model does not "
    "treat them like records it never saw.",
    "displaced": "It does not mean that the old traces remain, nor that they are gone. The new mark can itself reveal "
    "which records were to be forgotten.",
    "damaged": "It does not mean that the records were forgotten: a model that no longer works can hide what it "
    "remembers. Nor does it mean that they are remembered.",
    "inconclusive": "It is not a sign of erasure: finding no difference does not show that there is none. Nor is it a "
    "sign of failure.",
    "invalid": "It does not mean that unlearning failed, nor that it worked. Correct the evidence as described and "
    "audit again.",
}


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


def sort_guards(guards: Sequence[GuardFinding]) -> list[GuardFinding]:
    """The gravest first."""
    return sorted(guards, key=lambda guard: list(SEVERITIES).index(guard.severity))


def list_metrics(report: Report, *, is_deciding: bool = False) -> list[MetricFinding]:
    """The findings in the order of the table of contrasts, unknown ones last; all, or only those that decide."""
    order = {name: place for place, name in enumerate(CONTRASTS)}
    found = sorted(report.metrics.values(), key=lambda metric: order.get(metric.name, len(order)))
    return [metric for metric in found if not is_deciding or metric.verdict != "descriptive"]


def name_verdict(metric: MetricFinding) -> str:
    """The verdict of one contrast, which alone erases nothing: within the margin, if it is sensitive."""
    if metric.verdict != "erased":
        return metric.verdict
    return "within margin" if _is_seen(metric) else "insensitive"


def choose_tone(metric: MetricFinding) -> str:
    """What colours a contrast: its verdict, except where it is within the margin but could have seen nothing."""
    return metric.verdict if _is_seen(metric) or metric.verdict != "erased" else "insensitive"


def _is_seen(metric: MetricFinding) -> bool:
    return metric.sensitivity is not None and metric.sensitivity.is_seen


def has_held_out(report: Report) -> bool:
    """Whether the forget records were compared with held-out records."""
    return any(metric.control == "held-out" for metric in report.metrics.values())


def has_original(report: Report) -> bool:
    """Whether the original model was compared, too."""
    return any(metric.original_effect is not None for metric in report.metrics.values())


def find_layers(report: Report) -> list[str]:
    """Names of the layers that were read, in order; empty where they have none."""
    known = report.provenance.get("layers")
    return list(map(str, known)) if isinstance(known, list | tuple) else []


def describe_layers(report: Report) -> str:
    """Where the representations were read, for the middle of a sentence."""
    names = find_layers(report)
    if len(names) > _MOST_NAMED:
        return f"{len(names)} layers ({names[0]} to {names[-1]})"
    return f"layer{'s' if len(names) > 1 else ''} {join_names(names)}" if names else "one unnamed layer"


@dataclass(frozen=True)
class Strongest:
    """The strongest contrast between forget and held-out records.

    Args:
        name: Of the contrast, for the middle of a sentence.
        chance: Of telling a forget record from a held-out one, from 0.5 up.
        interval: Of that chance; the chance itself where it has none.
    """

    name: str
    chance: float
    interval: Interval

    @property
    def n_right(self) -> int:
        """Right guesses among 100 pairs; 100 only where none is wrong.

        Example:
            >>> [Strongest("", chance, (0, 1)).n_right for chance in (0.76, 0.999, 1.0)]
            [76, 99, 100]
        """
        return 100 if self.chance == 1 else min(99, round(100 * self.chance))


def find_strongest(report: Report) -> Strongest | None:
    """The largest contrast, in place or spread, among the metrics that carry the overall verdict if any does.

    None where there is none, or where it does not speak of forgetting: in invalid evidence, in a damaged model.
    """
    measured = [m for m in list_metrics(report, is_deciding=True) if math.isfinite(m.effect)]
    if not measured or report.verdict in ("invalid", "damaged"):
        return None
    carrying = [m for m in measured if m.verdict == report.verdict] or measured
    found = [(m.effect, m.effect_interval, name_contrast(m.name), m) for m in carrying]
    found += [
        (m.spread, m.spread_interval, f"spread of {name_contrast(m.name)}", m)
        for m in carrying
        if math.isfinite(m.spread)
    ]
    effect, (low, high), name, metric = max(found, key=lambda one: abs(one[0] - 0.5))
    if not (math.isfinite(low) and math.isfinite(high)):
        low = high = effect
    which = "only" if len(measured) == 1 else "strongest"
    where = f" at layer {metric.layer}" if metric.layer is not None else ""
    beyond = ", after subtracting what the oracles show" if metric.test == "hybrid" else ""
    return Strongest(
        name=f"the {which} deciding contrast ({name}{where}{beyond})",
        chance=max(effect, 1 - effect),
        interval=(1 - high, 1 - low) if effect < 0.5 else (low, high),
    )


def choose_headline(report: Report) -> str:
    """The verdict as one plain sentence; erased records in which a difference was seen are not called traceless."""
    deciding = list_metrics(report, is_deciding=True)
    if report.verdict == "erased" and any(metric.p_value <= report.settings.alpha for metric in deciding):
        return _WITHIN_MARGIN
    return _HEADLINES[report.verdict]


def explain_attacks(report: Report) -> str:
    """How plain and attacked audits share the error rate."""
    n_audits = 1 + len(report.attacks)
    alpha = report.settings.alpha
    return (
        f"The verdict is the worst of {n_audits} audits. Each was made at an error rate of {alpha:.3g}, so that all "
        f"together err at most at {n_audits * alpha:.3g}."
    )


def explain_meaning(report: Report) -> str:
    """What the verdict means for the forget records."""
    if report.verdict == "damaged":
        cause = report.damage.reason if report.damage is not None else ""
        return f"{cause} Forgetting can only be judged in a model that still works.".strip()
    if report.verdict == "invalid":
        n_failed = sum(guard.severity == "fail" for guard in report.guards)
        checks = "A check" if n_failed <= 1 else f"{n_failed} checks"
        return f"{checks} of the evidence failed, so the numbers below cannot be relied on."
    who = f"the {count_records(len(report.records), 'forget record')}"
    if not has_held_out(report):
        return (
            f"{who.capitalize()} could not be compared with anything, because no held-out records were given. "
            "The numbers describe the records but decide nothing."
        )
    deciding = list_metrics(report, is_deciding=True)
    names = join_names([name_contrast(metric.name) for metric in deciding])
    scope = f"Judged by {names} at {describe_layers(report)}"
    if report.verdict == "inconclusive":
        states = "is remembered nor that it was" if len(report.records) == 1 else "are remembered nor that they were"
        unsettled = f"{scope}, the audit could show neither that {who} {states} erased."
        powers = [m.minimum_detectable_effect for m in deciding if math.isfinite(m.minimum_detectable_effect)]
        if not powers:
            return unsettled
        least = round(100 * (0.5 + min(max(powers), 0.5)))
        if least == 100:
            return f"{unsettled} With so few records, any difference but a complete one may have been missed."
        return f"{unsettled} A difference that gives fewer than {least} right guesses in 100 may have been missed."
    if report.verdict == "erased":
        return (
            f"{scope}, {who} cannot be told from held-out records by more than the margin, and no single record stands "
            f"out. {_explain_detection(deciding)}"
        ).strip()
    seen = join_names([name_contrast(metric.name) for metric in deciding if metric.verdict == report.verdict])
    where = f" (seen in {seen})" if seen else ""
    if report.verdict == "residual":
        difference = f"{who} still differ from held-out records{where}."
        origin = "The original model showed the same contrast before unlearning."
    else:
        difference = f"{who} differ from held-out records{where}, but not in the way that remembered records do."
        origin = "The original model did not show this contrast before unlearning."
    if not has_original(report):
        origin = "The original model was not given, so this is inferred from the direction of the difference alone."
    return f"{scope}, {difference} {origin}"


def _explain_detection(metrics: Sequence[MetricFinding]) -> str:
    seen = [(m.name, m.sensitivity.source) for m in metrics if m.sensitivity is not None and m.sensitivity.is_seen]
    if not seen:
        return ""
    names = join_names([name_contrast(name) for name, _ in seen])
    is_original = all(source == "original" for _, source in seen)
    whom = "the forget records apart in the original model" if is_original else "known members from held-out records"
    return f"The audit detects what training leaves: {names} told {whom}."


def explain_guesses(report: Report) -> str:
    """How often a forget record is told from a held-out one, with chance and margin; empty where no metric says."""
    strongest = find_strongest(report)
    if strongest is None:
        return ""
    return (
        f"Given one forget and one held-out record, {strongest.name} tells which is which in {strongest.n_right} of "
        f"100 tries. Chance is 50; up to {round(100 * (0.5 + report.settings.margin))} is within the margin."
    )


def explain_limits(report: Report) -> str:
    """What the verdict does not mean."""
    unseen = [contrast.if_absent for name, contrast in CONTRASTS.items() if name not in report.metrics]
    return " ".join(filter(None, [_LIMITS[report.verdict], *(unseen if report.verdict == "erased" else [])]))


def list_limitations(report: Report) -> list[str]:
    """All that limits what this report shows, the verdict's own limits first."""
    deciding = join_names([name_contrast(metric.name) for metric in list_metrics(report, is_deciding=True)])
    found = [
        explain_limits(report),
        f"It covers {deciding or 'no contrast'} at {describe_layers(report)}. Nothing else was looked at: no "
        "other layer, and no other attack.",
        "RULER measured the files that it was given. Whether they belong to the model in use, whether the oracle was "
        "trained without the forget records, and whether no model was trained on the held-out records, was "
        f"{DECLARED}.",
    ]
    if report.verdict != "erased":
        found += [contrast.if_absent for name, contrast in CONTRASTS.items() if name not in report.metrics]
    if n_unmatched := report.provenance.get("n_unmatched"):
        found.append(f"{n_unmatched} held-out records were left out so that forget and held-out records match.")
    if report.settings.n_reference is not None:
        found.append(f"M4 was ranked among {report.settings.n_reference:,} retain records drawn at random, not all.")
    return [*filter(None, found), "It is a measurement of one model at one time, not a legal finding."]


def list_declarations(report: Report) -> list[tuple[str, str]]:
    """What whoever ran the audit declares about it, and who chose the margin."""
    known = [(DECLARATIONS.get(name, name.replace("_", " ")), text) for name, text in report.declared.items()]
    return [*known, ("Margin chosen by", name_chooser("margin", report.settings))]


def explain_margin(settings: AuditSettings) -> str:
    """What the margin is, what it means, and who chose it."""
    return (
        f"The margin is {settings.margin:g}: a contrast lies within it if it is shown to tell a forget record from a "
        f"held-out one in at most {round(100 * (0.5 + settings.margin))} of 100 pairs. Chosen by: "
        f"{name_chooser('margin', settings)}."
    )


def explain_share_limit(settings: AuditSettings) -> str:
    """What the limit of the share left is, what it means, and who chose it."""
    return (
        f"The limit of the share left is {settings.share_limit:.0%}: for a verdict of erased, less than that may be "
        f"left of the contrast that is seen best in the positive control, and of every other that is seen there and in "
        f"the audited model (confidence {1 - settings.alpha:.0%}). "
        f"Chosen by: {name_chooser('share_limit', settings)}."
    )


def name_chooser(name: Literal["margin", "share_limit"], settings: AuditSettings) -> str:
    """Who chose a setting that the verdict rests on.

    Example:
        >>> name_chooser("margin", AuditSettings()), name_chooser("margin", AuditSettings(margin=0.05))
        ('default of the software', 'whoever ran the audit, no name given')
    """
    if name == "margin" and settings.margin_chosen_by is not None:
        return settings.margin_chosen_by
    is_default = getattr(settings, name) == AuditSettings.__dataclass_fields__[name].default
    return "default of the software" if is_default else "whoever ran the audit, no name given"


def explain_sensitivity(metric: MetricFinding, settings: AuditSettings) -> str:
    """Was a contrast seen where it had to be, and how much of it is left?"""
    limit, upper = f"{settings.share_limit:.0%}", metric.share_left_upper
    if metric.sensitivity is None:
        return "Not tried, so this contrast cannot clear the model."
    if not metric.sensitivity.is_seen:
        return "Not seen here, so this contrast cannot clear the model."
    if upper is None or math.isnan(upper):
        return "Seen here. How much of it is left is not known."
    amount = f"At most {format_share(upper)} of it is left" if upper > 0 else "Nothing of it is left"
    if math.isinf(upper):
        amount = "No upper limit can be given for how much of it is left"
    is_again = metric.adjusted_p_value <= settings.alpha
    if not metric.sensitivity.is_strongest and not is_again:
        return f"Seen here. {amount}. The share of the contrast that is seen best decides."
    seen = "Seen best here" if metric.sensitivity.is_strongest else "Seen here, and again in the audited model"
    if math.isinf(upper):
        return f"{seen}. {amount}, so it may exceed the limit of {limit}."
    side = "under" if upper < settings.share_limit else "not under"
    return f"{seen}. {amount}, which is {side} the limit of {limit}."


def format_share(share: float | None) -> str:
    """The share of a contrast that is left, in percent.

    Example:
        >>> format_share(0.314), format_share(math.inf), format_share(None)
        ('31%', 'no limit', '\u2013')
    """
    if share is None or math.isnan(share):
        return format_number(None)
    return "no limit" if math.isinf(share) else f"{format_number(100 * share, 0)}%"


def format_share_interval(interval: Interval | None) -> str:
    """The interval of a share, in percent; empty where it is not known."""
    if interval is None or any(map(math.isnan, interval)):
        return ""
    if all(map(math.isfinite, interval)):
        return f"{format_interval((100 * interval[0], 100 * interval[1]), 0)}%"
    return f"[{format_share(interval[0])}, {format_share(interval[1])}]"


def explain_privacy(report: Report) -> list[str]:
    """What an attacker with the best contrast achieves: epsilon, the true positive rate, and how they were found."""
    found = report.privacy
    if found is None:
        return []
    name, level = name_contrast(found.contrast), f"{found.confidence:.0%}"
    bound = f"The error rates of {name}, the best contrast, prove no epsilon above 0 (confidence {level})."
    if found.epsilon > 0:
        bound = (
            f"{name} tells forget from held-out records so well that epsilon is at least "
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


def join_names(names: Sequence[str]) -> str:
    """Names in running text.

    Example:
        >>> join_names(["M2", "norm", "loss"])
        'M2, norm and loss'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
