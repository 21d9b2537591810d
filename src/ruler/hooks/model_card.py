"""A report in the model card of a Hugging Face model: a section for people, and results in its metadata."""

import math
import re
from os import PathLike
from pathlib import Path
from typing import Any

from ruler.auditing.findings import Report
from ruler.auditing.report import words
from ruler.auditing.report.display import format_estimate, format_number, format_p
from ruler.auditing.verdict import count_flagged
from ruler.core.errors import InputError
from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.core.text import markdown_table, show_text

_BEGIN, _END = "<!-- ruler audit: begin -->", "<!-- ruler audit: end -->"
_TASK, _PREFIX = "machine-unlearning", "ruler-"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&$])")
_HEADER = ("contrast", "value", "held-out", "remaining", "AUC", "p", "verdict")


def render_section(report: Report, *, heading: str = "Unlearning audit") -> str:
    """A report as a section of a model card, in Markdown: verdict, what remains, what it means, numbers, guards.

    Records are counted, never named, since a card is public: guards appear by their names, without what they saw.

    Args:
        report: Of an audit.
        heading: Of the section.

    Example:
        >>> import numpy as np, ruler
        >>> rows = np.random.default_rng(0).normal(size=(60, 4))
        >>> print(render_section(ruler.audit((rows[:20], rows[20:]))).splitlines()[2])
        **Inconclusive.** The evidence does not settle whether the records were forgotten.
    """
    parts = [
        f"## {_escape(heading)}",
        f"**{report.verdict.capitalize()}.** {_escape(words.choose_headline(report))}",
        _escape(f"{words.explain_remaining(report)} {words.explain_meaning(report)}".strip()),
        f"*{_escape(words.explain_limits(report))}*",
    ]
    guards = [*report.guards, *(guard for attack in report.attacks.values() for guard in attack.guards)]
    if not any(guard.message in report.reason for guard in guards):
        parts.append(_escape(report.reason))
    if report.needs:
        needs = [f"{number}. {_escape(need)}" for number, need in enumerate(report.needs, 1)]
        parts.append("\n".join(["What would settle it:", "", *needs]))
    rows = [
        (
            words.title_contrast(metric.name),
            format_number(metric.value),
            format_number(metric.null),
            "; ".join(f"{words.format_remaining(one)} ({scale})" for scale, one in metric.remaining.items()) or "-",
            format_estimate(metric.effect, metric.place.interval),
            format_p(metric.p_value),
            words.name_verdict(metric),
        )
        for metric in words.list_metrics(report)
    ]
    if rows:
        parts.append("\n".join(markdown_table(_HEADER, [[_escape(cell) for cell in row] for row in rows])))
    parts.append(
        f"{len(report.records):,} forget records were audited at {_escape(words.describe_layers(report))}; "
        f"{count_flagged(report):,} stand out. {_escape(words.explain_limit(report.settings))}"
    )
    names = [f"{_escape(guard.name)} ({guard.severity})" for guard in words.sort_guards(guards)]
    parts.append(f"Checks of the evidence that found something: {', '.join(dict.fromkeys(names)) or 'none'}.")
    parts.append(_escape(f"Audited with RULER {report.provenance['ruler']} at {report.provenance['created_at']}."))
    return "\n\n".join(parts) + "\n"


def list_results(report: Report, *, dataset_name: str = "Forget records") -> list[Any]:
    """Verdict, what remains and numbers of each contrast as `huggingface_hub.EvalResult`, for the metadata of a card.

    Args:
        report: Of an audit.
        dataset_name: What the forget records are called there.

    Raises:
        MissingPackageError: huggingface_hub is not installed.
    """
    hub = load_optional("huggingface_hub", "a model card's metadata")
    found: list[tuple[str, str, Any]] = [("verdict", "Verdict", report.verdict)]
    wholes = (
        ("remaining", "Remaining", report.remaining),
        ("remaining-outputs", "Remaining in what the model says", report.outputs.remaining),
        ("remaining-layers", "Remaining in what its layers hold", report.layers.remaining),
    )
    found += [
        (f"{kind}{suffix}", title + ending, round(value, 6))
        for kind, title, one in wholes
        if one is not None
        for suffix, ending, value in (("", "", one.value), ("-low", ", low", one.low), ("-high", ", high", one.high))
        if math.isfinite(value)
    ]
    for metric in words.list_metrics(report):
        title = words.title_contrast(metric.name)
        numbers = (("", title, metric.value), ("-auc", f"{title}, AUC", metric.effect))
        found += [
            (f"{metric.name}{suffix}", name, round(float(value), 6))
            for suffix, name, value in numbers
            if math.isfinite(value)
        ]
    return [
        hub.EvalResult(
            task_type=_TASK,
            task_name="Machine unlearning",
            dataset_type="forget-records",
            dataset_name=dataset_name,
            metric_type=f"{_PREFIX}{kind}",
            metric_name=name,
            metric_value=value,
        )
        for kind, name, value in found
    ]


def update_card(
    report: Report,
    path: str | PathLike[str],
    *,
    model_name: str | None = None,
    dataset_name: str = "Forget records",
    heading: str = "Unlearning audit",
) -> Path:
    """Put a report into the card of a model: its section and its metadata. An earlier audit in the card is replaced.

    Args:
        report: Of an audit.
        path: ``README.md`` of the model, or its folder; made if it does not exist.
        model_name: Whose results they are; by default that of the card, or the folder's name.
        dataset_name: What the forget records are called in the metadata.
        heading: Of the section.

    Returns:
        The file.

    Raises:
        InputError: A card whose metadata cannot be read.
        MissingPackageError: huggingface_hub is not installed.
    """
    hub = load_optional("huggingface_hub", "a model card")
    path = Path(path)
    path = path / "README.md" if path.is_dir() else path
    before = path.read_text(encoding="utf-8") if path.exists() else "---\n{}\n---\n"
    try:
        card = hub.ModelCard(before)
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} must be a model card with sound metadata; got: {error}. Repair it.") from error
    others = [one for one in card.data.eval_results or [] if not one.metric_type.startswith(_PREFIX)]
    card.data.eval_results = [*others, *list_results(report, dataset_name=dataset_name)]
    card.data.model_name = model_name or card.data.model_name or path.resolve().parent.name
    card.data.tags = list(dict.fromkeys([*(card.data.tags or []), _TASK]))
    section = f"{_BEGIN}\n{render_section(report, heading=heading)}\n{_END}"
    earlier = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
    if earlier.search(card.text):
        card.text = earlier.sub(lambda _: section, card.text, count=1)
    else:
        card.text = f"{card.text.rstrip()}\n\n{section}\n"
    write_atomically(path, str(card))
    return path


def _escape(text: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(show_text(text).split()))
