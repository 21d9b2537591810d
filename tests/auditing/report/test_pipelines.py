import json
import xml.etree.ElementTree as ET

import pytest
from tests.auditing.report.factory import VERDICTS, make_report

from ruler.auditing.findings import GuardFinding
from ruler.auditing.report.pipelines import write_junit, write_sarif


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_verdict_decides_how_grave_the_first_result_is(verdict):
    run = json.loads(write_sarif(make_report(verdict)))["runs"][0]
    first = run["results"][0]
    assert first["ruleId"] == "verdict"
    assert first["level"] == {"erased": "note", "inconclusive": "warning"}.get(verdict, "error")
    assert {one["ruleId"] for one in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    suite = ET.fromstring(write_junit(make_report(verdict)))
    case = suite.find("testcase[@name='verdict']")
    assert case is not None
    wanted = {"erased": "system-out", "inconclusive": "skipped"}.get(verdict, "failure")
    assert [child.tag for child in case] == [wanted]
    assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
    assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
    assert int(suite.get("skipped", "")) == len(suite.findall("testcase/skipped"))


def test_names_from_outside_stay_text():
    guard = GuardFinding("odd\x1b[31m", "warn", '<script>\x00\uffff"&', "]]>")
    report = make_report(guards=[guard])
    assert "\x1b" not in write_sarif(report).decode()
    text = write_junit(report).decode()
    assert "\x00" not in text
    assert "<script>" in "".join(ET.fromstring(text).itertext())
