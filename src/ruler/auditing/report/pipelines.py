"""Report -> report.sarif and junit.xml, which continuous integration shows beside the results of other checks."""

import json
import xml.etree.ElementTree as ET
from typing import Any, Literal

from ruler.auditing.findings import Report, Severity, Verdict
from ruler.auditing.report import wording
from ruler.core import __version__
from ruler.core.text import show_text

Level = Literal["error", "warning", "note"]
_LEVELS: dict[Severity, Level] = {"fail": "error", "warn": "warning", "note": "note"}
_VERDICT_LEVELS: dict[Verdict, Level] = {"erased": "note", "inconclusive": "warning"}  # any other is an error
_NOT_IN_XML = {0xFFFE: "\\u{fffe}", 0xFFFF: "\\u{ffff}"}


def write_sarif(report: Report) -> bytes:
    """The verdict and every guard as SARIF 2.1.0; all of them point at report.html."""
    headline = f"{report.verdict.capitalize()}. {wording.choose_headline(report)}"
    found: list[tuple[str, Level, str]] = [
        ("verdict", _VERDICT_LEVELS.get(report.verdict, "error"), f"{headline} {report.reason}")
    ]
    found += [
        (guard.name, _LEVELS[guard.severity], f"{guard.message} {guard.cure}".strip())
        for guard in wording.sort_guards(report.guards)
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
        "results": [
            {"ruleId": show_text(name), "level": level, "message": {"text": show_text(text)}, "locations": [place]}
            for name, level, text in found
        ],
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return (json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n").encode()


def write_junit(report: Report) -> bytes:
    """The verdict, every deciding contrast and every guard as test cases.

    Residual, displaced, damaged and invalid are failures; inconclusive is skipped: nothing was shown.
    """
    cases: list[tuple[str, str, str]] = [("verdict", report.verdict, report.reason)]
    cases += [
        (f"contrast {metric.name}", metric.verdict, metric.reason)
        for metric in wording.list_metrics(report, is_deciding=True)
    ]
    cases += [
        (f"guard {guard.name}", "invalid" if guard.severity == "fail" else "passed", guard.message)
        for guard in wording.sort_guards(report.guards)
    ]
    failed = [verdict not in ("erased", "inconclusive", "passed") for _, verdict, _ in cases]
    counts = {"tests": len(cases), "failures": sum(failed), "skipped": sum(one[1] == "inconclusive" for one in cases)}
    suite = ET.Element("testsuite", {"name": "ruler audit"} | {name: str(count) for name, count in counts.items()})
    for (name, verdict, message), is_failed in zip(cases, failed, strict=True):
        case = ET.SubElement(suite, "testcase", classname="ruler.audit", name=_for_xml(name))
        if is_failed or verdict == "inconclusive":
            tag = "failure" if is_failed else "skipped"
            ET.SubElement(case, tag, message=_for_xml(f"{verdict}: {message}"))
        else:
            ET.SubElement(case, "system-out").text = _for_xml(message)
    ET.indent(suite)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(suite, 'unicode')}\n".encode()


def _for_xml(text: str) -> str:
    return show_text(text).translate(_NOT_IN_XML)
