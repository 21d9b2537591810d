"""What a verdict means and does not mean, in plain words, with the contrasts and layers that it speaks of."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Control, Interval, MetricFinding, Report
from ruler.auditing.report.display import count_records, format_interval, format_number, format_p
from ruler.auditing.settings import AuditSettings

DECIDING = [name for name, contrast in CONTRASTS.items() if contrast.decides]
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

_NOT_MEANING = {
    "erased": "It says nothing about other contrasts, other layers, other copies of the model, logs or backups. A weak "
    "mark on a few records can be missed. It rests on an oracle and on held-out records that were {declared}. It is a "
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

_NO_LOSSES = "Losses were not known, so memory that shows in the model\u2019s answers alone was not looked for."

CONTROLS: dict[Control, str] = {
    "held-out": "held-out records, which no model was trained on",
    "none": "no other records",
}
CONTROL_NOTES: dict[Control, str] = {
    "held-out": "Held-out records are the fair comparison if they are of the same kind as the forget records: after "
    "perfect erasure, the model has learned from neither. That no model was trained on them is " + DECLARED + ".",
    "none": "No held-out records were given, so there are numbers and guards but no test, and no verdict other than "
    "inconclusive.",
}
TESTS = {
    "permutation": "permutation test",
    "hybrid": "hybrid test, several oracles",
    "none": "no test",
}


def name_contrast(name: str) -> str:
    """A contrast in running text.

    Example:
        >>> name_contrast("m2"), name_contrast("loss")
        ('M2', 'loss')
    """
    return name.upper() if re.fullmatch(r"m\d", name) else name


def title_contrast(name: str) -> str:
    """A contrast as a heading; one that this version does not know goes by its name.

    Example:
        >>> title_contrast("m2"), title_contrast("loss"), title_contrast("mine")
        ('M2 calibration gap', 'Loss', 'mine')
    """
    if name not in CONTRASTS:
        return name
    title = CONTRASTS[name].title
    return f"{name.upper()} {title.lower()}" if name_contrast(name) != name else title


def list_metrics(report: Report, *, is_deciding: bool = False) -> list[MetricFinding]:
    """The findings in the order of the table of contrasts, unknown ones last; all, or only those that decide."""
    order = list(CONTRASTS)
    found = sorted(report.metrics.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))
    return [metric for name, metric in found if not is_deciding or name in DECIDING]


def name_verdict(metric: MetricFinding) -> str:
    """The verdict of one contrast, which alone erases nothing: within the margin, and whether it could have seen."""
    if metric.verdict != "erased":
        return metric.verdict
    if choose_tone(metric) != "blind":
        return "within margin"
    return f"within margin, {'faint' if metric.sensitivity is not None and metric.sensitivity.is_seen else 'blind'}"


def choose_tone(metric: MetricFinding) -> str:
    """What colours a contrast: its verdict, except where it is within the margin but could not have seen enough."""
    is_clear = metric.sensitivity is not None and metric.sensitivity.is_clear
    return metric.verdict if is_clear or metric.verdict != "erased" else "blind"


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


def explain_scope(report: Report) -> str:
    """By which contrasts and at which layers the verdict speaks: the beginning of its sentence."""
    names = [name_contrast(metric.name) for metric in list_metrics(report, is_deciding=True)]
    if not names:
        return f"At {describe_layers(report)}"
    by = f"By these contrasts ({', '.join(names)})" if len(names) > 1 else f"By this contrast ({names[0]})"
    return f"{by}, at {describe_layers(report)}"


@dataclass(frozen=True)
class Telling:
    """The strongest contrast between forget and held-out records.

    Args:
        metric: Where it was seen.
        kind: Whether the forget records lie higher or lower, or scatter more or less.
        effect: Its AUC.
        interval: Of that AUC.
        is_only: No other contrast was measured.
    """

    metric: MetricFinding
    kind: Literal["place", "spread"]
    effect: float
    interval: Interval
    is_only: bool


def find_strongest(report: Report) -> Telling | None:
    """The largest contrast, in place or spread, among the metrics that carry the overall verdict if any does.

    None where there is none, or where it does not speak of forgetting: in invalid evidence, in a damaged model.
    """
    if report.verdict in ("invalid", "damaged"):
        return None
    measured = [m for m in list_metrics(report, is_deciding=True) if math.isfinite(m.effect)]
    carrying = [m for m in measured if m.verdict == report.verdict] or measured
    is_only = len(measured) == 1
    found = [Telling(m, "place", m.effect, m.effect_interval, is_only) for m in carrying]
    found += [Telling(m, "spread", m.spread, m.spread_interval, is_only) for m in carrying if math.isfinite(m.spread)]
    return max(found, key=lambda telling: abs(telling.effect - 0.5), default=None)


def choose_headline(report: Report) -> str:
    """The verdict as one plain sentence; erased records in which a difference was seen are not called traceless."""
    deciding = list_metrics(report, is_deciding=True)
    if report.verdict == "erased" and any(metric.p_value <= report.settings.alpha for metric in deciding):
        return _WITHIN_MARGIN
    return _HEADLINES[report.verdict]


def explain_meaning(report: Report) -> str:
    """What the verdict means for the forget records."""
    who = f"the {count_records(len(report.records), 'forgotten record')}"
    scope = explain_scope(report)
    if report.verdict == "erased":
        return (
            f"{scope}, {who} cannot be told from held-out records by more than the margin, and no single record stands "
            f"out. {_explain_sensitivity(report)}"
        )
    if report.verdict in ("residual", "displaced"):
        seen = [name_contrast(metric.name) for metric in report.metrics.values() if metric.verdict == report.verdict]
        where = f" ({_join(seen)})" if seen else ""
        if report.verdict == "residual":
            return f"{scope}, {who} still differ from held-out records{where}. {_explain_sign(report)}"
        return (
            f"{scope}, {who} differ from held-out records{where}, but not as memory made them differ. "
            f"{_explain_sign(report)}"
        )
    if report.verdict == "damaged":
        cause = report.damage.reason if report.damage is not None else ""
        return f"{cause} Erased means that a working model forgot; this model does not pass as a working one.".strip()
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
    n_failed = sum(guard.severity == "fail" for guard in report.guards)
    checks = "A check" if n_failed <= 1 else f"{n_failed} checks"
    return f"{checks} of the evidence failed, so the numbers below may not mean what they seem to."


def explain_guesses(report: Report) -> str:
    """How often a forget record is told from a held-out one, with chance and margin; empty where no metric says."""
    strongest = find_strongest(report)
    if strongest is None:
        return ""
    return (
        f"Shown one forget and one held-out record, {describe_telling(strongest)} tells them apart in "
        f"{count_right_guesses(strongest.effect)} of 100 tries; 50 is chance, and up to "
        f"{round(100 * (0.5 + report.settings.margin))} lie within the margin."
    )


def describe_telling(strongest: Telling) -> str:
    """By what the records are told apart, for the middle of a sentence."""
    metric = strongest.metric
    name = name_contrast(metric.name) if strongest.kind == "place" else f"the spread of {name_contrast(metric.name)}"
    where = f" at layer {metric.layer}" if metric.layer is not None else ""
    beyond = ", beyond what the oracles show too," if metric.test == "hybrid" else ""
    which = "this contrast" if strongest.is_only else "the most telling of these contrasts"
    return f"{which} ({name}{where}){beyond}"


def count_right_guesses(effect: float) -> int:
    """An AUC as right guesses among 100 pairs, whichever way it points; 100 only where none is wrong.

    Example:
        >>> count_right_guesses(0.24), count_right_guesses(0.001), count_right_guesses(1.0)
        (76, 99, 100)
    """
    share = max(effect, 1 - effect)
    return 100 if share == 1 else min(99, round(100 * share))


def explain_limits(report: Report) -> str:
    """What the verdict does not mean."""
    said = _NOT_MEANING[report.verdict].format(declared=DECLARED)
    is_silent = report.verdict == "erased" and "loss" not in report.metrics
    return f"{said} {_NO_LOSSES}" if is_silent else said


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
        f"The limit of the share left is {settings.share_limit:.0%}: of a contrast that was seen clearly in the "
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


@dataclass(frozen=True)
class SensitivityWords:
    """A deciding contrast in the positive control, as a row for a reader."""

    name: str
    title: str
    source: str
    effect: str
    p_value: str
    seen: str
    share_left: str
    share_interval: str
    share_upper: str
    words: str


_SOURCES = {"original": "original model", "known members": "known members"}


def describe_sensitivity(report: Report) -> list[SensitivityWords]:
    """For each deciding contrast: was it seen where it had to be, and how much of it is left?"""
    rows = []
    for metric in list_metrics(report, is_deciding=True):
        found = metric.sensitivity
        rows.append(
            SensitivityWords(
                name=metric.name,
                title=title_contrast(metric.name),
                source="not tried" if found is None else _SOURCES[found.source],
                effect=format_number(None if found is None else found.effect, 3),
                p_value=format_p(None if found is None else found.p_value),
                seen="no" if found is None or not found.is_seen else "yes" if found.is_clear else "faintly",
                share_left=_percent(metric.share_left),
                share_interval=_percents(metric.share_left_interval),
                share_upper=_percent(metric.share_left_upper),
                words=_judge_sensitivity(metric, report.settings),
            )
        )
    return rows


def _judge_sensitivity(metric: MetricFinding, settings: AuditSettings) -> str:
    if metric.sensitivity is None:
        return "It could not be tried, so it clears nothing."
    if not metric.sensitivity.is_seen:
        return "Blind here: it clears nothing."
    upper = metric.share_left_upper
    if upper is None or math.isnan(upper):
        return "Seen here; how much is left is not known."
    is_under = upper < settings.share_limit
    if not is_under and not metric.sensitivity.is_clear:
        return f"Seen here, but too faintly to show of any model that less than {settings.share_limit:.0%} is left."
    amount = f"at most {_percent(upper)} is left" if upper > 0 else "nothing is left"
    return (
        f"Seen here; {amount}, under the limit of {settings.share_limit:.0%}."
        if is_under
        else f"Seen here; up to {_percent(upper)} may be left, over the limit of {settings.share_limit:.0%}."
    )


def _percent(share: float | None) -> str:
    if share is not None and math.isinf(share):
        return "no limit"
    text = format_number(None if share is None else 100 * share, 0)
    return text if share is None or math.isnan(share) else f"{text}%"


def _percents(interval: Interval | None) -> str:
    if interval is None or any(map(math.isnan, interval)):
        return ""
    if all(map(math.isfinite, interval)):
        return f"{format_interval((100 * interval[0], 100 * interval[1]), 0)}%"
    return f"[{_percent(interval[0])}, {_percent(interval[1])}]"


def describe_damage(report: Report) -> list[tuple[str, str, str, str]]:
    """What was asked of the retain records: measure, value, least value that passes, and the answer in words."""
    if report.damage is None:
        return []
    damage = report.damage
    measures = (
        (
            "Linear CKA",
            damage.similarity,
            damage.least_similarity,
            "Similarity of the retain records to the oracle: 1 is the same up to rotation and scale, 0 is nothing in "
            "common.",
        ),
        (
            "Skill",
            damage.skill,
            damage.least_skill,
            "Accuracy on the retain records: 1 is as good as the oracle, 0 no better than always saying the most "
            "frequent label.",
        ),
    )
    return [
        (
            title,
            format_number(value, 2),
            format_number(least, 2),
            f"{'Not measured.' if math.isnan(value) else 'Passes.' if value >= least else 'Too low.'} {meaning}",
        )
        for title, value, least, meaning in measures
    ]


def explain_privacy(report: Report) -> list[str]:
    """What an attacker with the best contrast achieves: one sentence per number."""
    found = report.privacy
    if found is None:
        return []
    name = name_contrast(found.contrast)
    level = f"{found.confidence:.0%}"
    if found.epsilon > 0:
        bound = (
            f"By {name}, forget and held-out records are told apart so well that epsilon is at least "
            f"{format_number(found.epsilon, 2)}, with a confidence of {level}."
        )
    else:
        bound = f"The error rates of {name}, the best contrast, prove no epsilon above 0 (confidence {level})."
    if math.isnan(found.true_positive_rate):
        rate = "The true positive rate at 1% false positives needs at least 100 held-out records."
    else:
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


def _explain_sensitivity(report: Report) -> str:
    seen = [m for m in list_metrics(report, is_deciding=True) if m.sensitivity is not None and m.sensitivity.is_clear]
    if not seen:
        return ""
    sources = {m.sensitivity.source for m in seen if m.sensitivity is not None}
    whom = (
        "the forget records were told apart in the original model"
        if sources == {"original"}
        else "records that the model was trained on were told apart"
    )
    return f"The audit was able to see such records: by {_join([name_contrast(m.name) for m in seen])}, {whom}."


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


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
