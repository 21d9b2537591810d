import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from tests.auditing.report.factory import VERDICTS, attack, make_report

from ruler.auditing.findings import GuardFinding
from ruler.auditing.report.pipelines import write_junit, write_sarif
from ruler.auditing.settings import AuditSettings


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


def test_what_remains_and_the_limit_are_carried():
    report = make_report("residual")
    properties = json.loads(write_sarif(report))["runs"][0]["properties"]
    assert properties["limit"] == 0.2
    assert properties["layers"]["value"] == report.layers.remaining.value
    assert properties["remaining"] == properties["layers"]  # the less favourable one
    suite = ET.fromstring(write_junit(report))
    found = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert found == {
        "remaining": "84% [75%, 93%]",
        "outputs": "35% [26%, 44%]",
        "layers": "84% [75%, 93%]",
        "limit": "20%",
    }


def test_what_is_not_known_is_no_number():
    report = make_report("erased")
    found = replace(report.outputs.remaining, high=math.inf, at_most=math.inf)
    properties = json.loads(
        write_sarif(replace(report, outputs=replace(report.outputs, remaining=found))), parse_constant=pytest.fail
    )["runs"][0]["properties"]
    assert "high" not in properties["outputs"]
    untested = make_report("inconclusive", n_held_out=0)
    assert json.loads(write_sarif(untested))["runs"][0]["properties"]["remaining"] is None


def test_a_record_that_stands_out_fails_whatever_the_verdict():
    report = make_report("erased")
    report.records.loc[0, "finding"] = "answered better than held-out records"
    suite = ET.fromstring(write_junit(report))
    assert suite.find("testcase[@name='records']/failure") is not None
    assert [one for one in json.loads(write_sarif(report))["runs"][0]["results"] if one["ruleId"] == "records"]
    assert ET.fromstring(write_junit(make_report("erased"))).find("testcase[@name='records']") is None


def test_every_person_is_a_case_and_fails_if_residual():
    report = make_report("residual", n_groups=7)
    suite = ET.fromstring(write_junit(report))
    wanted = {"residual": "failure", "inconclusive": "skipped"}
    assert set(report.groups["verdict"]) == set(wanted)
    for row in report.groups.to_dict(orient="records"):
        case = suite.find(f"testcase[@name='group {row['group']}']")
        assert [child.tag for child in case] == [wanted[row["verdict"]]]


def test_an_attack_that_brings_records_back_fails():
    suite = ET.fromstring(write_junit(attack(make_report("erased"), n_flagged=3)))
    assert suite.find("testcase[@name='attack quantize']/failure") is not None
    flagged = suite.find("testcase[@name='records after quantize']/failure")
    assert flagged.get("message") == "residual: 3 forget records stand out after weights were rounded."


def test_layers_that_were_not_asked_are_no_case():
    report = make_report("erased", settings=AuditSettings(scope="outputs"))
    suite = ET.fromstring(write_junit(report))
    assert suite.find("testcase[@name='outputs']") is not None
    assert suite.find("testcase[@name='layers']") is None
