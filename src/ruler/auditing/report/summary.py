"""The report in a terminal: plain text that reads the same without colour."""

import textwrap

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
    METRICS,
    choose_headline,
    explain_guesses,
    explain_limits,
    explain_meaning,
    find_control,
)

_WIDTH = 100
_MOST_NAMED = 5
_LONGEST_NAME = 40
_ASCII = str.maketrans({"\u2212": "-", "\u2013": "-", "\u2019": "'"})  # terminals that know no more are about
_SEVERITIES = {"fail": "FAIL", "warn": "WARN", "note": "NOTE"}


def summarise(report: Report) -> str:
    """The verdict, what was compared, the numbers, the doubts and the records that stand out.

    Args:
        report: Of an audit.

    Returns:
        Lines of at most 100 characters; names from outside cannot move the cursor or change colours.
    """
    blocks = [_say_verdict(report), _say_comparison(report), _tabulate(report), _list_guards(report.guards)]
    blocks.append(_name_records(report))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines).translate(_ASCII)


def _say_verdict(report: Report) -> list[str]:
    lines = [f"RULER audit: {report.verdict.upper()}", choose_headline(report)]
    for text in (f"{explain_meaning(report)} {explain_guesses(report)}", explain_limits(report), report.reason):
        lines += ["", *_wrap(text)]
    return lines


def _say_comparison(report: Report) -> list[str]:
    oracle = "no oracle"
    if report.pairing is not None:
        oracle = "with an oracle, aligned first" if report.pairing.is_aligned else "with an oracle"
    original = "with" if any(m.original_effect is not None for m in report.metrics.values()) else "without"
    records = count_records(len(report.records), "forget record")
    control = CONTROLS[find_control(report)]
    return _wrap(f"Compared: {records} with {control}; {oracle}, {original} the original model.")


def _tabulate(report: Report) -> list[str]:
    if not report.metrics:
        return []
    level = f"{100 * (1 - report.settings.alpha):g}%"
    header = ("", "value", "control", f"AUC [{level} interval]", "p", "equiv. p", "verdict")
    rows = [header, *(_row(metric) for _, metric in sorted(report.metrics.items()))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:], *_say_reference(report)]


def _say_reference(report: Report) -> list[str]:
    m4 = report.metrics.get("m4")
    if m4 is None or m4.reference_error is None:
        return []
    return _wrap(
        f"M4 ranks among {report.settings.n_reference:,} retain records drawn at random: its value is within "
        f"{m4.reference_error:.4f} of that among all, at a confidence of {1 - report.settings.alpha:.0%}."
    )


def _row(metric: MetricFinding) -> tuple[str, ...]:
    title = METRICS[metric.name].title.lower() if metric.name in METRICS else ""
    return (
        f"{metric.name.upper()} {title}".rstrip(),
        format_number(metric.value),
        format_number(metric.null),
        f"{format_number(metric.effect, 3)} {format_interval(metric.effect_interval, 3)}".rstrip(),
        format_p(metric.p_value),
        format_p(metric.equivalence_p_value),
        metric.verdict,
    )


def _list_guards(guards: list[GuardFinding]) -> list[str]:
    if not guards:
        return ["Guards: none raised a doubt."]
    lines = ["Guards"]
    for guard in sorted(guards, key=lambda guard: list(_SEVERITIES).index(guard.severity)):
        lines += _wrap(f"{guard.name}: {guard.message}", first=f"  {_SEVERITIES[guard.severity]}  ", rest="        ")
        lines += _wrap(guard.cure, first="        Cure: ", rest="        ")
    return lines


def _name_records(report: Report) -> list[str]:
    records, alpha = report.records, report.settings.alpha
    if "q_value" not in records or not len(records):
        return []
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
