"""What a verdict means and does not mean, in plain words, with the contrasts and layers that it speaks of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Control, Damage, GuardFinding, Interval, MetricFinding, Report
from ruler.auditing.report.display import count_records, format_interval, format_number
from ruler.auditing.settings import AuditSettings

DECLARED = "declared by whoever ran the audit, not verified"
_MOST_NAMED = 4

_HEADLINES = {
    "erased": "No trace beyond the margin was found, and the audit was shown able to see one.",
    "residual": "Traces of the forgotten records remain in the model.",
    "displaced": "Unlearning left a new mark on the forgotten records.",
    "damaged": "The model is damaged, so what it has forgotten cannot be judged.",
    "inconclusive": "The evidence does not settle whether the records were forgotten.",
    "invalid": "The evidence is unsound, so this audit gives no verdict.",
}
_WITHIN_MARGIN = "What is left of the forgotten records lies within the margin."

_LIMITS = {
    "erased": "It says nothing about other contrasts, other layers, other copies of the model, logs or backups. A weak "
    f"mark on a few records can be missed. It rests on an oracle and on held-out records that were {DECLARED}. It is a "
    "measurement, not a legal finding.",
    "residual": "It does not mean that the records can be read out of the model. It means that the model does not "
    "treat them like records it never learned from.",
    "displaced": "It does not mean that the old traces are still there, nor that they are gone. "
    "A new mark can itself give away which records were to be forgotten.",
    "damaged": "It does not mean that the records were forgotten: a model that no longer works can hide what it "
    "remembers. Nor does it mean that they are remembered.",
    "inconclusive": "It is not a sign of erasure, for no difference found is not the same as no difference; "
    "nor is it a sign of failure.",
    "invalid": "It does not mean that unlearning failed, nor that it worked. "
    "Mend the evidence as described and audit again.",
}
CONTROLS: dict[Control, str] = {
    "held-out": "held-out records, which no model was trained on",
    "none": "no other records",
}
CONTROL_NOTES: dict[Control, str] = {
    "held-out": "Held-out records are the fair comparison if they are of the same kind as the forget records: after "
    f"perfect erasure, the model has learned from neither. That no model was trained on them is {DECLARED}.",
    "none": "No held-out records were given, so there are numbers and guards but no test, and no verdict other than "
    "inconclusive.",
}
TESTS = {
    "permutation": "permutation test",
    "hybrid": "hybrid test, several oracles",
    "none": "no test",
}
SEVERITIES = {"fail": "Fails", "warn": "Warning", "note": "Note"}
SOURCES = {"original": "original model", "known members": "known members"}


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


def title_scores(name: str) -> str:
    """A contrast's score of one record as a heading."""
    return (CONTRASTS[name].score_title if name in CONTRASTS else "") or title_contrast(name)


def sort_guards(guards: Sequence[GuardFinding]) -> list[GuardFinding]:
    """The gravest first."""
    return sorted(guards, key=lambda guard: list(SEVERITIES).index(guard.severity))


def list_needs(report: Report) -> list[str]:
    """What would settle the verdict, the most useful first; empty where it is settled."""
    return report.needs if report.verdict == "inconclusive" else []


def list_metrics(report: Report, *, is_deciding: bool = False) -> list[MetricFinding]:
    """The findings in the order of the table of contrasts, unknown ones last; all, or only those that decide."""
    order = {name: place for place, name in enumerate(CONTRASTS)}
    found = sorted(report.metrics.values(), key=lambda metric: order.get(metric.name, len(order)))
    return [metric for metric in found if not is_deciding or metric.verdict != "descriptive"]


def name_verdict(metric: MetricFinding) -> str:
    """The verdict of one contrast, which alone erases nothing: within the margin, and whether it could have seen."""
    if metric.verdict != "erased":
        return metric.verdict
    return "within margin, blind" if choose_tone(metric) == "blind" else "within margin"


def choose_tone(metric: MetricFinding) -> str:
    """What colours a contrast: its verdict, except where it is within the margin but could have seen nothing."""
    is_seen = metric.sensitivity is not None and metric.sensitivity.is_seen
    return metric.verdict if is_seen or metric.verdict != "erased" else "blind"


def find_control(report: Report) -> Control:
    """Whom the deciding contrasts compared the forget records with."""
    controls = [metric.control for metric in list_metrics(report, is_deciding=True)]
    return next((control for control in controls if control != "none"), "none")


def find_layers(report: Report) -> list[str]:
    """Names of the layers that were read, in order; empty where they have none."""
    known = report.provenance.get("layers")
    if isinstance(known, list | tuple) and known:
        return [str(name) for name in known if name is not None]
    for metric in report.metrics.values():
        if metric.layers:
            return [one.layer for one in metric.layers]
    return list(dict.fromkeys(metric.layer for metric in report.metrics.values() if metric.layer is not None))


def describe_layers(report: Report) -> str:
    """Where the representations were read, for the middle of a sentence."""
    names = find_layers(report)
    if not names:
        return "the layer that was read"
    if len(names) == 1:
        return f"the layer {names[0]}"
    if len(names) <= _MOST_NAMED:
        return f"these layers ({', '.join(names)})"
    return f"these layers ({len(names)}, from {names[0]} to {names[-1]})"


@dataclass(frozen=True)
class Telling:
    """The strongest contrast between forget and held-out records.

    Args:
        by: By what the records are told apart, for the middle of a sentence.
        chance: To tell a forget record from a held-out one, from 0.5 up.
        interval: Of that chance; the chance itself where it has none.
    """

    by: str
    chance: float
    interval: Interval

    @property
    def n_right(self) -> int:
        """Right guesses among 100 pairs; 100 only where none is wrong.

        Example:
            >>> [Telling("", chance, (0, 1)).n_right for chance in (0.76, 0.999, 1.0)]
            [76, 99, 100]
        """
        return 100 if self.chance == 1 else min(99, round(100 * self.chance))


def find_strongest(report: Report) -> Telling | None:
    """The largest contrast, in place or spread, among the metrics that carry the overall verdict if any does.

    None where there is none, or where it does not speak of forgetting: in invalid evidence, in a damaged model.
    """
    measured = [m for m in list_metrics(report, is_deciding=True) if math.isfinite(m.effect)]
    if not measured or report.verdict in ("invalid", "damaged"):
        return None
    carrying = [m for m in measured if m.verdict == report.verdict] or measured
    found = [(m.effect, m.effect_interval, name_contrast(m.name), m) for m in carrying]
    found += [
        (m.spread, m.spread_interval, f"the spread of {name_contrast(m.name)}", m)
        for m in carrying
        if math.isfinite(m.spread)
    ]
    effect, (low, high), name, metric = max(found, key=lambda one: abs(one[0] - 0.5))
    if not (math.isfinite(low) and math.isfinite(high)):
        low = high = effect
    which = "this contrast" if len(measured) == 1 else "the most telling of these contrasts"
    where = f" at layer {metric.layer}" if metric.layer is not None else ""
    beyond = ", beyond what the oracles show too," if metric.test == "hybrid" else ""
    return Telling(
        by=f"{which} ({name}{where}){beyond}",
        chance=max(effect, 1 - effect),
        interval=(1 - high, 1 - low) if effect < 0.5 else (low, high),
    )


def choose_headline(report: Report) -> str:
    """The verdict as one plain sentence; erased records in which a difference was seen are not called traceless."""
    deciding = list_metrics(report, is_deciding=True)
    if report.verdict == "erased" and any(metric.p_value <= report.settings.alpha for metric in deciding):
        return _WITHIN_MARGIN
    return _HEADLINES[report.verdict]


def explain_meaning(report: Report) -> str:
    """What the verdict means for the forget records."""
    if report.verdict == "damaged":
        cause = report.damage.reason if report.damage is not None else ""
        return f"{cause} Erased means that a working model forgot; this model does not pass as a working one.".strip()
    if report.verdict == "invalid":
        n_failed = sum(guard.severity == "fail" for guard in report.guards)
        checks = "A check" if n_failed <= 1 else f"{n_failed} checks"
        return f"{checks} of the evidence failed, so the numbers below may not mean what they seem to."
    who = f"the {count_records(len(report.records), 'forgotten record')}"
    names = [name_contrast(metric.name) for metric in list_metrics(report, is_deciding=True)]
    by = f"By these contrasts ({', '.join(names)})" if len(names) > 1 else f"By this contrast ({''.join(names)})"
    scope = f"{by}, at {describe_layers(report)}" if names else f"At {describe_layers(report)}"
    if report.verdict == "erased":
        return (
            f"{scope}, {who} cannot be told from held-out records by more than the margin, and no single record stands "
            f"out. {_explain_sensitivity(report)}"
        )
    if report.verdict == "inconclusive":
        if find_control(report) == "none":
            return (
                f"{scope}, {who} could not be compared with anything, for no held-out records were given. "
                "The numbers describe; they decide nothing."
            )
        return (
            f"{scope}, the audit could show neither that {who} are remembered nor that they were erased. "
            f"{_explain_power(report)}"
        ).strip()
    seen = [name_contrast(metric.name) for metric in report.metrics.values() if metric.verdict == report.verdict]
    where = f" ({join_names(seen)})" if seen else ""
    if report.verdict == "residual":
        return f"{scope}, {who} still differ from held-out records{where}. {_explain_sign(report)}"
    return (
        f"{scope}, {who} differ from held-out records{where}, but not as memory made them differ. "
        f"{_explain_sign(report)}"
    )


def _explain_sensitivity(report: Report) -> str:
    seen = [m for m in list_metrics(report, is_deciding=True) if m.sensitivity is not None and m.sensitivity.is_seen]
    if not seen:
        return ""
    sources = {m.sensitivity.source for m in seen if m.sensitivity is not None}
    whom = (
        "the forget records were told apart in the original model"
        if sources == {"original"}
        else "records that the model was trained on were told apart"
    )
    return f"The audit was able to see such records: by {join_names([name_contrast(m.name) for m in seen])}, {whom}."


def _explain_sign(report: Report) -> str:
    if all(metric.original_effect is None for metric in report.metrics.values()):
        return "The original model was not given, so this is read from the direction of the difference."
    if report.verdict == "residual":
        return "The original model showed the same contrast before unlearning."
    return "The original model did not show this contrast before unlearning."


def _explain_power(report: Report) -> str:
    metrics = list_metrics(report, is_deciding=True)
    blind = [m.minimum_detectable_effect for m in metrics if math.isfinite(m.minimum_detectable_effect)]
    if not blind:
        return ""
    least = round(100 * (0.5 + min(max(blind), 0.5)))
    return f"A contrast of under {least} right guesses in 100 was likely to be missed."


def explain_guesses(report: Report) -> str:
    """How often a forget record is told from a held-out one, with chance and margin; empty where no metric says."""
    strongest = find_strongest(report)
    if strongest is None:
        return ""
    return (
        f"Shown one forget and one held-out record, {strongest.by} tells them apart in {strongest.n_right} of 100 "
        f"tries; 50 is chance, and up to {round(100 * (0.5 + report.settings.margin))} lie within the margin."
    )


def explain_limits(report: Report) -> str:
    """What the verdict does not mean."""
    unseen = [contrast.if_absent for name, contrast in CONTRASTS.items() if name not in report.metrics]
    return " ".join(filter(None, [_LIMITS[report.verdict], *(unseen if report.verdict == "erased" else [])]))


def explain_margin(settings: AuditSettings) -> str:
    """What the margin is, what it means, and who chose it."""
    return (
        f"The margin is {settings.margin:g}: a contrast counts as erased only if it is shown to tell a forget record "
        f"from a held-out one in at most {round(100 * (0.5 + settings.margin))} of 100 pairs. Chosen by: "
        f"{name_chooser('margin', settings)}."
    )


def explain_share_limit(settings: AuditSettings) -> str:
    """What the limit of the share left is, what it means, and who chose it."""
    return (
        f"The limit of the share left is {settings.share_limit:.0%}: of the contrast that is seen best in the "
        f"positive control, less than that may be left, with a confidence of {1 - settings.alpha:.0%}, for a model to "
        f"count as erased. Chosen by: {name_chooser('share_limit', settings)}."
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
    if metric.sensitivity is None:
        return "It could not be tried, so it clears nothing."
    if not metric.sensitivity.is_seen:
        return "Blind here: it clears nothing."
    upper = metric.share_left_upper
    if upper is None or math.isnan(upper):
        return "Seen here; how much is left is not known."
    amount = (
        "how much is left cannot be limited"
        if math.isinf(upper)
        else f"at most {format_share(upper)} is left"
        if upper > 0
        else "nothing is left"
    )
    if not metric.sensitivity.is_strongest:
        return f"Seen here, but another contrast sees better, and its share decides; {amount}."
    side = "under" if upper < settings.share_limit else "not under"
    return f"Seen best here: {amount}, {side} the limit of {settings.share_limit:.0%}."


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


def describe_damage(damage: Damage) -> list[tuple[str, str, str, str]]:
    """What was asked of the retain records: measure, value, least value that passes, and whether it does."""
    measures = (
        ("Linear CKA", damage.similarity, damage.least_similarity),
        ("Skill", damage.skill, damage.least_skill),
    )
    return [
        (
            title,
            format_number(value, 2),
            format_number(least, 2),
            "Not measured." if math.isnan(value) else "Passes." if value >= least else "Too low.",
        )
        for title, value, least in measures
    ]


def explain_privacy(report: Report) -> list[str]:
    """What an attacker with the best contrast achieves: one sentence per number."""
    found = report.privacy
    if found is None:
        return []
    name = name_contrast(found.contrast)
    level = f"{found.confidence:.0%}"
    bound = f"The error rates of {name}, the best contrast, prove no epsilon above 0 (confidence {level})."
    if found.epsilon > 0:
        bound = (
            f"By {name}, forget and held-out records are told apart so well that epsilon is at least "
            f"{format_number(found.epsilon, 2)}, with a confidence of {level}."
        )
    rate = "The true positive rate at 1% false positives needs at least 100 held-out records."
    if not math.isnan(found.true_positive_rate):
        low, high = found.true_positive_interval
        interval = format_interval((100 * low, 100 * high), 1)
        rate = (
            f"At 1% false positives, {name} finds {100 * found.true_positive_rate:.1f}% of the forget records"
            f"{f' {interval}%' if interval else ''}; guessing finds 1%."
        )
    return [
        bound,
        rate,
        "For epsilon, contrast, side and threshold were chosen on one half of the records and judged on the other. "
        "Another attack may achieve more.",
    ]


def join_names(names: Sequence[str]) -> str:
    """Names in running text.

    Example:
        >>> join_names(["M2", "norm", "loss"])
        'M2, norm and loss'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
