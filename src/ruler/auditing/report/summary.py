"""The report in a terminal, as plain text that reads the same without colour, and in a notebook."""

import textwrap
from collections.abc import Iterator
from html import escape

from ruler.auditing.findings import MetricFinding, Report, Scale
from ruler.auditing.report import words
from ruler.auditing.report.display import count_records, format_number
from ruler.auditing.report.figures.scale import ORDER
from ruler.auditing.report.words import list_metrics, name_contrast
from ruler.core.text import show_text

_WIDTH = 100
_MOST_NAMED = 5
_LONGEST_NAME = 40
_MOST_GROUPS = 20
_ASCII = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2019": "'"})  # terminals that know no more are about
_HEADER = ("", "remaining (original)", "remaining (members)", "AUC", "p", "verdict")


def summarise(report: Report) -> str:
    """The verdict, how much remains, what would settle it, what was compared, the numbers, the guards, the records.

    Lines have at most 100 characters; names from outside cannot move the cursor or change colours.
    """
    blocks = [
        [*_wrap(f"RULER audit: {report.verdict.upper()}. {words.choose_headline(report)}"), *_say_remaining(report)],
        _tabulate(report),
        _list_groups(report),
        _wrap(words.explain_meaning(report)),
        _wrap(words.explain_limits(report)),
        _wrap(report.reason),
        _list_needs(report),
        [line for text in _say_comparison(report) for line in _wrap(text)],
        _say_attacks(report),
        _wrap(_say_damage(report)) + _wrap(" ".join(words.explain_privacy(report))),
        _list_guards(report),
        _wrap(_name_records(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines).translate(_ASCII)


def render_notebook(report: Report) -> str:
    """The verdict, what would settle it, the numbers and the guards as HTML without scripts; all text is escaped."""

    def show(value: object) -> str:
        return escape(show_text(value))

    parts = [
        f"<p><strong>RULER audit: {show(report.verdict)}.</strong> {show(words.choose_headline(report))}</p>",
        f"<p>{show(' '.join(_say_remaining(report)))}</p>",
        f"<p>{show(words.explain_meaning(report))}</p>",
        f"<p><em>{show(words.explain_limits(report))}</em></p>",
        f"<p>{show(report.reason)}</p>",
    ]
    if report.needs:
        items = "".join(f"<li>{show(need)}</li>" for need in report.needs)
        parts.append(f"<p><strong>What would settle it</strong></p><ol>{items}</ol>")
    if report.metrics:
        head = "".join(f'<th scope="col">{show(cell)}</th>' for cell in _HEADER)
        body = "".join(f"<tr>{''.join(f'<td>{show(cell)}</td>' for cell in row)}</tr>" for row in _list_rows(report))
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    if report.guards:
        items = "".join(
            f"<li><strong>{guard.severity.upper()} {show(guard.name)}</strong>: {show(guard.message)}</li>"
            for guard in words.sort_guards(report.guards)
        )
        parts.append(f"<ul>{items}</ul>")
    parts.append(f"<p>{show(_name_records(report))}</p>")
    return f'<div class="ruler-report">{"".join(parts)}</div>'


def _say_remaining(report: Report) -> list[str]:
    """How much remains in outputs and layers, each with its interval, and their verdicts."""
    limit, confidence = (words.format_percent(one) for one in (report.settings.limit, report.settings.confidence))
    outputs, layers = (words.format_remaining(one.remaining) for one in (report.outputs, report.layers))
    asked = "" if report.settings.scope == "layers" else ", not asked"
    return [
        f"Remaining (limit {limit}): {outputs} in what it says, {layers} in its layers.",
        f"What it says: {report.outputs.verdict}. Its layers: {report.layers.verdict}{asked}. Intervals: {confidence}.",
    ]


def _list_needs(report: Report) -> list[str]:
    lines = ["What would settle it, the most useful first"] if report.needs else []
    for number, need in enumerate(report.needs, start=1):
        lines += _wrap(need, f"  {number}. ", "     ")
    return lines


def _say_comparison(report: Report) -> Iterator[str]:
    records = count_records(len(report.records), "forget record")
    if report.groups is not None:
        n = len(report.groups)
        records = f"{n:,} {'person (group)' if n == 1 else 'people (groups)'} with {records}"
    yield f"Compared: {records}."
    for name, count, meaning in words.list_given(report):
        yield f"{name}: {count}. {meaning}"
    yield words.explain_limit(report.settings)


def _tabulate(report: Report) -> list[str]:
    if not report.metrics:
        return []
    settings = report.settings
    rows = [_HEADER, *_list_rows(report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    key = ", ".join(words.title_contrast(metric.name) for metric in list_metrics(report))
    notes = _wrap(
        f"{key}. Remaining: 0% is like records that were never trained on, 100% like records that were. Brackets: "
        f"{words.format_percent(settings.confidence)} intervals. p: over all parts and layers, not corrected for the "
        "number of contrasts."
    )
    for metric in list_metrics(report):
        if metric.reference_error is not None and settings.n_reference is not None:
            notes += _wrap(
                f"{name_contrast(metric.name)} was computed with {settings.n_reference:,} retain records drawn at "
                f"random. Its value is within {metric.reference_error:.4f} of that with all of them "
                f"(confidence {1 - settings.alpha:.0%})."
            )
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], *notes]


def _list_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            name_contrast(metric.name),
            _say_scale(metric, "original"),
            _say_scale(metric, "members"),
            words.describe_part(metric, "place"),
            words.show_p(metric),
            words.name_verdict(metric),
        )
        for metric in list_metrics(report)
    ]


def _say_scale(metric: MetricFinding, scale: Scale) -> str:
    return words.format_remaining(metric.remaining[scale]) if scale in metric.remaining else format_number(None)


def _list_groups(report: Report) -> list[str]:
    """One line per person, the gravest first."""
    if report.groups is None:
        return []
    ordered = report.groups.sort_values("q_value", kind="stable").to_dict(orient="records")
    rows = sorted(ordered, key=lambda row: ORDER.index(row["verdict"]))
    lines = [f"Groups: {len(rows):,}"]
    for row in rows[:_MOST_GROUPS]:
        name = _shorten(show_text(row["group"]))
        amount = words.format_span(row["remaining"], row["low"], row["high"])
        said = "; how much remains is not known" if amount == words.NOT_KNOWN else f", {amount} remains"
        lines += _wrap(f"{name}: {row['verdict']}{said}.", "  ", "    ")
    if len(rows) > _MOST_GROUPS:
        lines.append(f"  and {len(rows) - _MOST_GROUPS:,} more in report.groups")
    return lines + _wrap(words.explain_group_rates(report), "  ", "  ")


def _say_attacks(report: Report) -> list[str]:
    if not report.attacks:
        return []
    lines = ["After attacks on all models alike"]
    for attack in report.attacks.values():
        lines += _wrap(f"{attack.name}: {attack.verdict}, after {attack.words}. {attack.reason}", "  ", "    ")
    return lines + _wrap(words.explain_attacks(report), "  ", "  ")


def _say_damage(report: Report) -> str:
    damage = report.damage
    if damage is None:
        return ""
    measures = (
        ("linear CKA", damage.similarity, damage.least_similarity),
        ("skill", damage.skill, damage.least_skill),
    )
    measured = [f"{title} {value:.2f} (at least {least:.2f})" for title, value, least in measures if value == value]
    return f"Does the model still work? {damage.reason} Measured: {', '.join(measured)}."


def _list_guards(report: Report) -> list[str]:
    if not report.guards:
        return ["Guards: no problem found."]
    lines = ["Guards"]
    for guard in words.sort_guards(report.guards):
        blocking = " Blocks the verdict." if guard.blocks else ""
        lines += _wrap(f"{guard.name}: {guard.message}{blocking}", f"  {guard.severity.upper()}  ", "        ")
        lines += _wrap(guard.cure, "        What to do: ", "        ")
    return lines


def _name_records(report: Report) -> str:
    records, alpha = report.records, report.settings.alpha
    if "q_value" not in records or not records["q_value"].notna().any():
        return "Records: none could be judged individually."
    flagged = records[records["q_value"] <= alpha].sort_values("q_value", kind="stable")
    found = f"Records: {len(flagged):,} of {len(records):,} stand out at a false discovery rate of {alpha:g}"
    if flagged.empty:
        return f"{found}{words.explain_few_held_out(report)}."
    names = [_shorten(show_text(name)) for name in flagged["id"].head(_MOST_NAMED)]
    rest = f", and {len(flagged) - _MOST_NAMED:,} more" if len(flagged) > _MOST_NAMED else ""
    return f"{found}: {', '.join(names)}{rest}."


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(show_text(text), _WIDTH, initial_indent=first, subsequent_indent=rest)
