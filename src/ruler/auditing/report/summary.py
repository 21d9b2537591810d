"""The report in a terminal, as plain text that reads the same without colour, and in a notebook."""

import textwrap
from html import escape

from ruler.auditing.findings import GuardFinding, MetricFinding, Report
from ruler.auditing.report.display import (
    count_records,
    format_interval,
    format_number,
    format_p,
    show_text,
)
from ruler.auditing.report.wording import (
    CONTROLS,
    DECLARED,
    TESTS,
    choose_headline,
    describe_damage,
    describe_sensitivity,
    explain_guesses,
    explain_limits,
    explain_margin,
    explain_meaning,
    explain_privacy,
    explain_share_limit,
    find_control,
    list_metrics,
    name_contrast,
    name_verdict,
    title_contrast,
)

_WIDTH = 100
_MOST_NAMED = 5
_LONGEST_NAME = 40
_ASCII = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2019": "'"})  # terminals that know no more are about
_SEVERITIES = {"fail": "FAIL", "warn": "WARN", "note": "NOTE"}


def summarise(report: Report) -> str:
    """The verdict, what would settle it, what was compared, the numbers, the doubts and the records that stand out.

    Args:
        report: Of an audit.

    Returns:
        Lines of at most 100 characters; names from outside cannot move the cursor or change colours.
    """
    blocks = [
        _say_verdict(report),
        _list_needs(report),
        _say_comparison(report),
        _tabulate(report),
        _say_sensitivity(report),
        _say_damage_and_privacy(report),
        _list_guards(report.guards),
        _name_records(report),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines).translate(_ASCII)


def render_notebook(report: Report) -> str:
    """The verdict, what would settle it, the numbers and the doubts as a piece of HTML for a notebook.

    Args:
        report: Of an audit.

    Returns:
        HTML without scripts; all text in it is escaped.
    """

    def show(value: object) -> str:
        return escape(show_text(value))

    parts = [
        f"<p><strong>RULER audit: {show(report.verdict)}.</strong> {show(choose_headline(report))}</p>",
        f"<p>{show(explain_meaning(report))} {show(explain_guesses(report))}</p>",
        f"<p><em>{show(explain_limits(report))}</em></p>",
        f"<p>{show(report.reason)}</p>",
    ]
    if _has_needs(report):
        items = "".join(f"<li>{show(need)}</li>" for need in report.needs)
        parts.append(f"<p><strong>What would settle it</strong></p><ol>{items}</ol>")
    if report.metrics:
        header, *rows = _lay_out(report)
        head = "".join(f'<th scope="col">{show(cell)}</th>' for cell in header)
        body = "".join(f"<tr>{''.join(f'<td>{show(cell)}</td>' for cell in row)}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    if report.guards:
        ranked = sorted(report.guards, key=lambda guard: list(_SEVERITIES).index(guard.severity))
        items = "".join(
            f"<li><strong>{_SEVERITIES[guard.severity]} {show(guard.name)}</strong>: {show(guard.message)}</li>"
            for guard in ranked
        )
        parts.append(f"<ul>{items}</ul>")
    parts.append(f"<p>{show(' '.join(_name_records(report)))}</p>")
    return f'<div class="ruler-report">{"".join(parts)}</div>'


def _say_verdict(report: Report) -> list[str]:
    lines = [f"RULER audit: {report.verdict.upper()}", choose_headline(report)]
    for text in (f"{explain_meaning(report)} {explain_guesses(report)}", explain_limits(report), report.reason):
        lines += ["", *_wrap(text)]
    return lines


def _has_needs(report: Report) -> bool:
    return report.verdict == "inconclusive" and bool(report.needs)


def _list_needs(report: Report) -> list[str]:
    if not _has_needs(report):
        return []
    lines = ["What would settle it, the most useful first"]
    for number, need in enumerate(report.needs, start=1):
        lines += _wrap(need, first=f"  {number}. ", rest="     ")
    return lines


def _say_comparison(report: Report) -> list[str]:
    oracle = "without an oracle"
    if report.pairing is not None:
        oracle = "with an oracle, aligned first" if report.pairing.is_aligned else "with an oracle"
    original = "with" if any(m.original_effect is not None for m in report.metrics.values()) else "without"
    records = count_records(len(report.records), "forget record")
    control = find_control(report)
    lines = _wrap(f"Compared: {records} with {CONTROLS[control]}; {oracle}, {original} the original model.")
    given = [
        *(["held-out records"] if control == "held-out" else []),
        *(["oracle", "seed pairing"] if report.pairing is not None else []),
    ]
    if given:
        names = " and ".join([", ".join(given[:-1]), given[-1]] if len(given) > 1 else given).capitalize()
        lines += _wrap(f"{names}: {DECLARED}.")
    return lines + _wrap(explain_margin(report.settings)) + _wrap(explain_share_limit(report.settings))


def _tabulate(report: Report) -> list[str]:
    if not report.metrics:
        return []
    rows = _lay_out(report)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    key = ", ".join(title_contrast(metric.name) for metric in list_metrics(report))
    tests = {metric.test for metric in report.metrics.values() if metric.test != "none"}
    test = " and ".join(TESTS[name] for name in sorted(tests)) or TESTS["none"]
    level = f"{100 * (1 - report.settings.alpha):g}%"
    notes = _wrap(f"{key}. Brackets: {level} intervals. p: {test}, before correction for several contrasts.")
    m4 = report.metrics.get("m4")
    if m4 is not None and m4.reference_error is not None and report.settings.n_reference is not None:
        notes += _wrap(
            f"M4 ranks among {report.settings.n_reference:,} retain records drawn at random: its value is within "
            f"{m4.reference_error:.4f} of that among all, at a confidence of {1 - report.settings.alpha:.0%}."
        )
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], *notes]


def _lay_out(report: Report) -> list[tuple[str, ...]]:
    header = ("", "value", "held-out", "AUC", "AUC of spread", "p", "equiv. p", "verdict")
    return [header, *(_row(metric) for metric in list_metrics(report))]


def _row(metric: MetricFinding) -> tuple[str, ...]:
    return (
        name_contrast(metric.name),
        format_number(metric.value),
        format_number(metric.null),
        f"{format_number(metric.effect, 2)} {format_interval(metric.effect_interval, 2)}".rstrip(),
        f"{format_number(metric.spread, 2)} {format_interval(metric.spread_interval, 2)}".rstrip(),
        format_p(metric.p_value),
        format_p(metric.equivalence_p_value),
        name_verdict(metric),
    )


def _say_sensitivity(report: Report) -> list[str]:
    rows = describe_sensitivity(report)
    if not any(metric.sensitivity for metric in report.metrics.values()):
        return []
    lines = ["Could the audit have seen it?"]
    for row in rows:
        seen = f" ({row.source}: AUC {row.effect}, p {row.p_value})" if row.source != "not tried" else ""
        lines += _wrap(f"{name_contrast(row.name)}: {row.words}{seen}", first="  ", rest="    ")
    return lines


def _say_damage_and_privacy(report: Report) -> list[str]:
    lines = []
    if report.damage is not None:
        measured = ", ".join(
            f"{title} {value} (at least {least})" for title, value, least, _ in describe_damage(report)
        )
        lines += _wrap(f"Does the model still work? {report.damage.reason} Measured: {measured}.")
    return lines + _wrap(" ".join(explain_privacy(report)))


def _list_guards(guards: list[GuardFinding]) -> list[str]:
    if not guards:
        return ["Guards: none raised a doubt."]
    lines = ["Guards"]
    for guard in sorted(guards, key=lambda guard: list(_SEVERITIES).index(guard.severity)):
        blocking = " Blocks the verdict." if guard.blocks else ""
        lines += _wrap(
            f"{guard.name}: {guard.message}{blocking}", first=f"  {_SEVERITIES[guard.severity]}  ", rest="        "
        )
        lines += _wrap(guard.cure, first="        Cure: ", rest="        ")
    return lines


def _name_records(report: Report) -> list[str]:
    records, alpha = report.records, report.settings.alpha
    if "q_value" not in records or not records["q_value"].notna().any():
        return ["Records: none could be judged by itself."]
    flagged = records[records["q_value"] <= alpha].sort_values("q_value", kind="stable")
    found = f"Records: {len(flagged):,} of {len(records):,} stand out at a false discovery rate of {alpha:g}"
    if flagged.empty:
        return _wrap(f"{found}.")
    names = [_clip(show_text(name)) for name in flagged["id"].head(_MOST_NAMED)]
    rest = f", and {len(flagged) - _MOST_NAMED:,} more" if len(flagged) > _MOST_NAMED else ""
    return _wrap(f"{found}: {', '.join(names)}{rest}.")


def _clip(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(show_text(text), _WIDTH, initial_indent=first, subsequent_indent=rest)
