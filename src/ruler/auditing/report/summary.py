"""The report in a terminal, as plain text that reads the same without colour, and in a notebook."""

import textwrap
from collections.abc import Iterator
from html import escape

from ruler.auditing.findings import Report
from ruler.auditing.report import wording
from ruler.auditing.report.display import count_records, format_estimate, format_number, format_p
from ruler.auditing.report.wording import list_metrics, name_contrast
from ruler.core.text import show_text

_WIDTH = 100
_MOST_NAMED = 5
_LONGEST_NAME = 40
_ASCII = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2019": "'"})  # terminals that know no more are about
_HEADER = ("", "value", "held-out", "AUC", "AUC of spread", "p", "equiv. p", "verdict")


def summarise(report: Report) -> str:
    """The verdict, what would settle it, what was compared, the numbers, the guards and the records that stand out.

    Lines have at most 100 characters; names from outside cannot move the cursor or change colours.
    """
    blocks = [
        [f"RULER audit: {report.verdict.upper()}", wording.choose_headline(report)],
        _wrap(f"{wording.explain_meaning(report)} {wording.explain_guesses(report)}"),
        _wrap(wording.explain_limits(report)),
        _wrap(report.reason),
        _list_needs(report),
        [line for text in _say_comparison(report) for line in _wrap(text)],
        _tabulate(report),
        _say_attacks(report),
        _say_sensitivity(report),
        _wrap(_say_damage(report)) + _wrap(" ".join(wording.explain_privacy(report))),
        _list_guards(report),
        _wrap(_name_records(report)),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines).translate(_ASCII)


def render_notebook(report: Report) -> str:
    """The verdict, what would settle it, the numbers and the guards as HTML without scripts; all text is escaped."""

    def show(value: object) -> str:
        return escape(show_text(value))

    parts = [
        f"<p><strong>RULER audit: {show(report.verdict)}.</strong> {show(wording.choose_headline(report))}</p>",
        f"<p>{show(wording.explain_meaning(report))} {show(wording.explain_guesses(report))}</p>",
        f"<p><em>{show(wording.explain_limits(report))}</em></p>",
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
            for guard in wording.sort_guards(report.guards)
        )
        parts.append(f"<ul>{items}</ul>")
    parts.append(f"<p>{show(_name_records(report))}</p>")
    return f'<div class="ruler-report">{"".join(parts)}</div>'


def _list_needs(report: Report) -> list[str]:
    lines = ["What would settle it, the most useful first"] if report.needs else []
    for number, need in enumerate(report.needs, start=1):
        lines += _wrap(need, f"  {number}. ", "     ")
    return lines


def _say_comparison(report: Report) -> Iterator[str]:
    records = count_records(len(report.records), "forget record")
    control = " with held-out records" if wording.has_held_out(report) else "; no held-out records were given"
    aligned = ", aligned before comparing" if report.pairing is not None and report.pairing.is_aligned else ""
    oracle = "not given" if report.pairing is None else f"given{aligned}"
    original = "given" if wording.has_original(report) else "not given"
    yield f"Compared: {records}{control}. Oracle: {oracle}. Original model: {original}."
    given = ["held-out records"] if wording.has_held_out(report) else []
    given += ["oracle", "seed pairing"] if report.pairing is not None else []
    if given:
        yield f"{wording.join_names(given).capitalize()}: {wording.DECLARED}."
    yield wording.explain_margin(report.settings)
    yield wording.explain_share_limit(report.settings)


def _tabulate(report: Report) -> list[str]:
    if not report.metrics:
        return []
    settings = report.settings
    rows = [_HEADER, *_list_rows(report)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    key = ", ".join(wording.title_contrast(metric.name) for metric in list_metrics(report))
    tests = [wording.TESTS[name] for name in sorted({metric.test for metric in report.metrics.values()} - {"none"})]
    test = f"{' and '.join(tests)}, not corrected for the number of contrasts" if tests else wording.TESTS["none"]
    notes = _wrap(f"{key}. Brackets: {100 * (1 - settings.alpha):g}% intervals. p: {test}.")
    if any(row[-1] == "insensitive" for row in rows):
        notes += _wrap("Insensitive: within the margin, but not able to clear the model.")
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
            format_number(metric.value),
            format_number(metric.null),
            format_estimate(metric.effect, metric.effect_interval),
            format_estimate(metric.spread, metric.spread_interval),
            format_p(metric.p_value),
            format_p(metric.equivalence_p_value),
            wording.name_verdict(metric),
        )
        for metric in list_metrics(report)
    ]


def _say_attacks(report: Report) -> list[str]:
    if not report.attacks:
        return []
    lines = ["After attacks on all models alike"]
    for attack in report.attacks.values():
        lines += _wrap(f"{attack.name}: {attack.verdict}, after {attack.words}. {attack.reason}", "  ", "    ")
    return lines + _wrap(wording.explain_attacks(report), "  ", "  ")


def _say_sensitivity(report: Report) -> list[str]:
    if not any(metric.sensitivity for metric in report.metrics.values()):
        return []
    lines = ["Could the audit have seen it?"]
    for metric in list_metrics(report, is_deciding=True):
        name, found = name_contrast(metric.name), metric.sensitivity
        if found is not None:
            numbers = f"AUC {format_number(found.effect, 3)}, p {format_p(found.p_value)}"
            name += f" ({wording.SOURCES[found.source]}: {numbers})"
        lines += _wrap(f"{name}: {wording.explain_sensitivity(metric, report.settings)}", "  ", "    ")
    return lines


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
    for guard in wording.sort_guards(report.guards):
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
        return f"{found}."
    names = [show_text(name) for name in flagged["id"].head(_MOST_NAMED)]
    names = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..." for name in names]
    rest = f", and {len(flagged) - _MOST_NAMED:,} more" if len(flagged) > _MOST_NAMED else ""
    return f"{found}: {', '.join(names)}{rest}."


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(show_text(text), _WIDTH, initial_indent=first, subsequent_indent=rest)
