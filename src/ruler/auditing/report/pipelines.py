"""Report -> report.sarif and junit.xml, which continuous integration shows beside the results of other checks."""

import json
import xml.etree.ElementTree as ET
from math import isfinite
from typing import Any, Literal

from ruler.auditing.findings import Remaining, Report, Severity, Verdict
from ruler.auditing.report import words
from ruler.auditing.report.display import count_records
from ruler.auditing.verdict import count_flagged
from ruler.core import __version__
from ruler.core.text import show_text

Level = Literal["error", "warning", "note"]
_LEVELS: dict[Severity, Level] = {"fail": "error", "warn": "warning", "note": "note"}
_VERDICT_LEVELS: dict[Verdict, Level] = {"erased": "note", "inconclusive": "warning"}  # any other is an error
_NOT_IN_XML = {0xFFFE: "\\u{fffe}", 0xFFFF: "\\u{ffff}"}


def write_sarif(report: Report) -> bytes:
    """The verdict, what stands out and every guard as SARIF 2.1.0; all of them point at report.html.

    The properties of the run hold what remains in outputs and layers, and the limit.
    """
    headline = f"{report.verdict.capitalize()}. {words.choose_headline(report)}"
    found: list[tuple[str, Level, str]] = [
        ("verdict", _VERDICT_LEVELS.get(report.verdict, "error"), f"{headline} {report.reason}")
    ]
    found += [(name, "error", message) for name, message in _list_flagged(report)]
    found += [
        (guard.name, _LEVELS[guard.severity], f"{guard.message} {guard.cure}".strip())
        for guard in words.sort_guards(report.guards)
    ]
    place = {"physicalLocation": {"artifactLocation": {"uri": "report.html"}}}
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "RULER",
                "version": __version__,
                "rules": [{"id": show_text(name)} for name in dict.fromkeys(name for name, _, _ in found)],
            }
        },
        "properties": {
            "limit": report.settings.limit,
            "confidence": report.settings.confidence,
            "scope": report.settings.scope,
            "remaining": _describe(report.remaining),
            "outputs": _describe(report.outputs.remaining),
            "layers": _describe(report.layers.remaining),
        },
        "results": [
            {"ruleId": show_text(name), "level": level, "message": {"text": show_text(text)}, "locations": [place]}
            for name, level, text in found
        ],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return (json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n").encode()


def write_junit(report: Report) -> bytes:
    """The verdict, outputs, layers, every deciding contrast, person and guard as test cases.

    Residual, displaced, damaged and invalid are failures, and so are records or persons that stand out. Inconclusive is
    skipped: nothing was shown. Properties hold what remains and the limit.
    """
    cases: list[tuple[str, str, str]] = [("verdict", report.verdict, report.reason)]
    cases += [("outputs", report.outputs.verdict, report.outputs.reason)]
    if report.settings.scope == "layers":
        cases += [("layers", report.layers.verdict, report.layers.reason)]
    cases += [
        (f"contrast {metric.name}", metric.verdict, metric.reason)
        for metric in words.list_metrics(report, is_deciding=True)
    ]
    cases += [(f"attack {name}", one.verdict, one.reason) for name, one in report.attacks.items()]
    cases += [(name, "residual", message) for name, message in _list_flagged(report)]
    if report.groups is not None:
        cases += [
            (f"group {row['group']}", row["verdict"], words.format_span(row["remaining"], row["low"], row["high"]))
            for row in report.groups.to_dict(orient="records")
        ]
    cases += [
        (f"guard {guard.name}", "invalid" if guard.severity == "fail" else "passed", guard.message)
        for guard in words.sort_guards(report.guards)
    ]
    failed = [verdict not in ("erased", "inconclusive", "passed") for _, verdict, _ in cases]
    counts = {"tests": len(cases), "failures": sum(failed), "skipped": sum(one[1] == "inconclusive" for one in cases)}
    suite = ET.Element("testsuite", {"name": "ruler audit"} | {name: str(count) for name, count in counts.items()})
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("remaining", words.format_remaining(report.remaining)),
        ("outputs", words.format_remaining(report.outputs.remaining)),
        ("layers", words.format_remaining(report.layers.remaining)),
        ("limit", words.format_percent(report.settings.limit)),
    ):
        ET.SubElement(properties, "property", name=name, value=value)
    for (name, verdict, message), is_failed in zip(cases, failed, strict=True):
        case = ET.SubElement(suite, "testcase", classname="ruler.audit", name=_for_xml(name))
        if is_failed or verdict == "inconclusive":
            tag = "failure" if is_failed else "skipped"
            ET.SubElement(case, tag, message=_for_xml(f"{verdict}: {message}"))
        else:
            ET.SubElement(case, "system-out").text = _for_xml(message)
    ET.indent(suite)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(suite, 'unicode')}\n".encode()


def _list_flagged(report: Report) -> list[tuple[str, str]]:
    """Records that stand out, in the model as it is and after attacks: a name and what to say."""
    counts = {"records": ("", count_flagged(report))}
    counts |= {f"records after {name}": (f" after {one.words}", one.n_flagged) for name, one in report.attacks.items()}
    return [
        (name, f"{count_records(n, 'forget record')} {'stands' if n == 1 else 'stand'} out{after}.")
        for name, (after, n) in counts.items()
        if n
    ]


def _describe(remaining: Remaining | None) -> dict[str, Any] | None:
    """What remains as JSON; ends that are not known are left out."""
    if remaining is None:
        return None
    return {name: value for name, value in vars(remaining).items() if not isinstance(value, float) or isfinite(value)}


def _for_xml(text: str) -> str:
    return show_text(text).translate(_NOT_IN_XML)
