"""What a verdict means and does not mean, and what each metric asks, in plain words."""

import math
from dataclasses import dataclass

from ruler.auditing.findings import Control, MetricFinding, Report
from ruler.auditing.report.display import count_records

DECIDING = ("m2", "m4")

_HEADLINES = {
    "erased": "No trace of the forgotten records was found, and the test was sharp enough to see one.",
    "residual": "Traces of the forgotten records remain in the model.",
    "displaced": "The forgotten records were pushed aside, not erased.",
    "inconclusive": "The evidence does not settle whether the records were forgotten.",
    "invalid": "The evidence is unsound, so this audit gives no verdict.",
}

_WITHOUT_ORACLE = "No trace of the forgotten records was found by the one measure that needs no oracle."
_WITHIN_MARGIN = "What is left of the forgotten records lies within the agreed margin."

_NOT_MEANING = {
    "erased": "It says nothing about other layers, the model\u2019s outputs, other copies of the model, logs or "
    "backups, and a single record can differ from the rest.{use} It is a measurement, not a legal finding.",
    "residual": "It does not mean that the records can be read out of the model or that its outputs reveal them. "
    "It means that the model does not treat them like records it never learned from.",
    "displaced": "It does not mean that the old traces are still there, nor that they are gone. "
    "A new mark can itself give away which records were to be forgotten.",
    "inconclusive": "It is not a sign of erasure, for no difference found is not the same as no difference; "
    "nor is it a sign of failure.",
    "invalid": "It does not mean that unlearning failed, nor that it worked. "
    "Mend the evidence as described and audit again.",
}

_USE_UNKNOWN = (
    " Nor does it say that the model still works, which this audit could not see: one that no longer tells any records "
    "apart would pass as well."
)

CONTROLS: dict[Control, str] = {
    "held-out": "records that no model was trained on",
    "placebo": "sets drawn at random from the forget and retain records together",
    "none": "no other records",
}

CONTROL_NOTES: dict[Control, str] = {
    "held-out": "Held-out records are the fair comparison: after perfect erasure, the model has learned from neither.",
    "placebo": "No held-out records were given, so random sets of the audit\u2019s own records stood in for them. "
    "This control is weaker: give held-out records for a verdict that carries more weight.",
    "none": "There was nothing to compare the forget records with.",
}


@dataclass(frozen=True)
class MetricWords:
    """A metric for a reader who never saw it.

    Args:
        title: Its name in the paper.
        question: What its number answers.
        reading: How to read the number.
        paper_rule: Why the paper's fixed null is not a valid one; empty where it has none.
    """

    title: str
    question: str
    reading: str
    paper_rule: str


METRICS = {
    "m1": MetricWords(
        "Oracle similarity",
        "Are the forget records where a model that never saw them would put them?",
        "Mean cosine similarity to the oracle, a model retrained without them; 1 is the same direction. "
        "It describes; it has no part in the verdict.",
        "",
    ),
    "m2": MetricWords(
        "Calibration gap",
        "Do the forget records agree with the oracle as well as other records do?",
        "Mean similarity of the forget records less the median of the retain records. The test compares the forget "
        "records\u2019 similarities with the control\u2019s.",
        "A mean less a median is not 0 for skewed similarities: perfectly unlearned models fall below 0 in most runs.",
    ),
    "m3": MetricWords(
        "Representation shift",
        "Did unlearning move the forget records towards the oracle?",
        "Above 0: towards; below 0: away. It needs the original model. It describes; it has no part in the verdict.",
        "A shift says which way records moved, not whether they arrived.",
    ),
    "m4": MetricWords(
        "Percentile rank",
        "Do the forget records lie unusually close to, or far from, the records that were kept?",
        "Rank of each forget record\u2019s nearest-retain similarity among the retain records\u2019 own. "
        "The test compares the nearest-retain similarities with the control\u2019s.",
        "All ranks share one gallery and ties take the top rank, so 0.5 is rejected too often even with nothing "
        "remembered; and which records were drawn moves it by itself.",
    ),
}


def find_control(report: Report) -> Control:
    """Whom the deciding metrics compared the forget records with."""
    controls = [report.metrics[name].control for name in DECIDING if name in report.metrics]
    return next((control for control in controls if control != "none"), "none")


def find_strongest(report: Report) -> MetricFinding | None:
    """The metric with the largest contrast, among those that carry the overall verdict if any does."""
    measured = [m for n, m in report.metrics.items() if n in DECIDING and math.isfinite(m.effect)]
    carrying = [m for m in measured if m.verdict == report.verdict]
    return max(carrying or measured, key=lambda metric: abs(metric.effect - 0.5), default=None)


def choose_headline(report: Report) -> str:
    """The verdict as one plain sentence; erased records in which a difference was seen are not called traceless."""
    deciding = [metric for name, metric in report.metrics.items() if name in DECIDING]
    if report.verdict == "erased" and any(metric.p_value <= report.settings.alpha for metric in deciding):
        return _WITHIN_MARGIN
    if report.verdict == "erased" and "m2" not in report.metrics:
        return _WITHOUT_ORACLE
    return _HEADLINES[report.verdict]


def explain_meaning(report: Report) -> str:
    """What the verdict means for the forget records."""
    who = f"the {count_records(len(report.records), 'forgotten record')}"
    control = CONTROLS[find_control(report)]
    if report.verdict == "erased":
        return f"In the layer that was examined, {who} cannot be told from {control} by more than the agreed margin."
    if report.verdict == "residual":
        return f"In the layer that was examined, {who} still differ from {control}. {_explain_sign(report)}"
    if report.verdict == "displaced":
        return (
            f"In the layer that was examined, {who} differ from {control} in a way that unlearning itself made. "
            f"{_explain_sign(report)}"
        )
    if report.verdict == "inconclusive":
        return (
            f"In the layer that was examined, {who} could neither be told from {control} nor be shown to be like them. "
            f"{_explain_power(report)}"
        )
    n_failed = sum(guard.severity == "fail" for guard in report.guards)
    checks = "A check" if n_failed <= 1 else f"{n_failed} checks"
    return f"{checks} of the evidence failed, so the numbers below may not mean what they seem to."


def explain_guesses(report: Report) -> str:
    """How often a forget record is told from a control record, with chance and margin; empty where no metric says."""
    strongest = find_strongest(report)
    if strongest is None or report.verdict == "invalid":
        return ""
    return (
        f"Shown one forget and one control record, whoever sees the representations tells them apart in "
        f"{count_right_guesses(strongest.effect)} of 100 tries; 50 is chance, and up to "
        f"{round(100 * (0.5 + report.settings.margin))} count as erased."
    )


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
    is_use_known = "retain_accuracy" in report.outputs.get("unlearned", {})
    return _NOT_MEANING[report.verdict].format(use="" if is_use_known else _USE_UNKNOWN)


def _explain_sign(report: Report) -> str:
    if all(metric.original_effect is None for metric in report.metrics.values()):
        return (
            "The original model was not given, so this is the paper\u2019s reading of the difference\u2019s direction."
        )
    if report.verdict == "residual":
        return "The original model showed the same contrast before unlearning."
    return "The original model did not show this contrast before unlearning."


def _explain_power(report: Report) -> str:
    metrics = [report.metrics[name] for name in DECIDING if name in report.metrics]
    blind = [m.minimum_detectable_effect for m in metrics if math.isfinite(m.minimum_detectable_effect)]
    needed = [m.n_needed for m in metrics if m.n_needed is not None and m.n_needed > m.n_forget]
    noun = "forget group" if report.groups is not None else "forget record"
    sentences = []
    if blind:
        least = round(100 * (0.5 + min(max(blind), 0.5)))
        sentences.append(f"Fewer than {least} right guesses in 100 were likely to be missed.")
    if needed:
        sentences.append(f"About {count_records(max(needed), noun)} would show erasure, if it is true.")
    return " ".join(sentences)
