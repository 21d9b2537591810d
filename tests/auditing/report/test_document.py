"""report.json follows the published schema, and what does not is refused."""

import json
import math
from dataclasses import replace

import jsonschema
import pytest
from tests.auditing.report.factory import CASES, edit, make_report

from ruler.auditing.findings import Report
from ruler.auditing.report.document import SCHEMA_PATH, describe_schema
from ruler.auditing.report.page import render_page
from ruler.core.errors import FileFormatError

SCHEMA = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text()))
FEW = {"n_retain": 20}  # the schema looks at every number


@pytest.mark.parametrize("case", CASES, ids=str)
def test_json_follows_the_published_schema(case, tmp_path):
    content = json.loads((make_report(**FEW | case).save(tmp_path) / "report.json").read_text())
    SCHEMA.validate(content)
    assert (content["format"], content["version"]) == ("ruler-report", 4)


@pytest.mark.parametrize("change", [{"verdict": "fine"}, {"version": 1}, {"more": 1}, {"pairing": {}}], ids=str)
def test_schema_refuses_other_content(change, tmp_path):
    content = json.loads((make_report(n_retain=2).save(tmp_path) / "report.json").read_text())
    SCHEMA.validate(content)
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({**content, **change})


def test_published_schema_is_up_to_date():
    SCHEMA.check_schema(SCHEMA.schema)
    assert json.loads(SCHEMA_PATH.read_text()) == describe_schema(), "run: python -m ruler.auditing.report.document"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be a RULER report"),
        (b"{", "must be a RULER report"),
        (b"[" * 100_000, "must be a RULER report"),
        (b"\xff\xfe", "must be a RULER report"),
        (b"null", "must be a RULER report"),
        (b'{"format": "ruler-report", "version": 5}', "version"),
        (b'{"format": "ruler-report", "version": 1}', "got version 1, .* Audit again"),
        (b'{"format": "ruler-report", "version": 3, "metrics": 7}', "got version 3, .* Audit again"),
    ],
    ids=["empty", "cut", "deep", "binary", "null", "future", "past", "previous"],
)
def test_broken_json(content, message, tmp_path):
    folder = make_report().save(tmp_path)
    (folder / "report.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        Report.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "fine"}, "verdict"),
        ({"surprise": 1}, "surprise"),
        ({"metrics": {"m9": {}}}, "metrics"),
        ({"metrics": {"<b>": {}}}, "metrics"),
        ({"needs": "one"}, "needs"),
        ({"guards": [{"name": "a", "severity": "fail", "message": "b", "cure": "c", "more": 1}]}, "guards"),
        ({"settings": {"alpha": 7.0}}, "settings"),
        ({"settings": {"beta": 0.1}}, "settings"),
        ({"records": {"file": "../../secret", "sha256": "0" * 64, "n_records": 1, "columns": []}}, "records.file"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_json_with_foreign_content(changes, message, tmp_path):
    folder = make_report().save(tmp_path)
    edit(folder, **changes)
    with pytest.raises(FileFormatError, match=message):
        Report.load(folder)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metrics", "m2", "p_value"), 7.0),
        (("metrics", "m2", "p_value"), "Infinity"),
        (("metrics", "m2", "place", "effect"), -3.0),
        (("metrics", "m2", "place", "interval"), [0.2, 9.0]),
        (("metrics", "m2", "control", "original_effect"), 1.5),
        (("metrics", "m2", "layers", 0, "effect"), 2.0),
        (("metrics", "loss", "remaining", "original", "resolution"), -1.0),
        (("metrics", "readout", "layers", 0, "remaining", "members", "visibility"), -1.0),
        (("outputs", "remaining", "visibility"), -2.0),
        (("given", "oracle"), -1),
        (("damage", "similarity"), -0.2),
        (("privacy", "epsilon"), -1.0),
        (("privacy", "true_positive_rate"), 15.0),
        (("groups", 0, "q_value"), 1.2),
        (("distributions", "roc", "m2"), [[0.0, 1.0], [0.0]]),
        (("distributions", "plane", "shares"), [0.7, 1.2]),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(path, value, tmp_path):
    folder = make_report(n_layers=2, n_groups=2, n_held_out=20, **FEW).save(tmp_path)
    content = json.loads((folder / "report.json").read_text())
    SCHEMA.validate(content)
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (folder / "report.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"must lie between|must hold as many"):
        Report.load(folder)
    if path[:2] != ("distributions", "roc"):
        with pytest.raises(jsonschema.ValidationError):
            SCHEMA.validate(content)


def test_a_report_from_before_the_plane_is_read(tmp_path):
    folder = make_report().save(tmp_path)
    content = json.loads((folder / "report.json").read_text())
    points = content["distributions"]["plane"]["points"]["forget"]
    points[0][0] = "NaN"
    (folder / "report.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match="finite number"):
        Report.load(folder)
    del content["distributions"]["plane"]
    (folder / "report.json").write_text(json.dumps(content))
    SCHEMA.validate(content)
    report = Report.load(folder)
    assert report.distributions.plane is None
    assert "plane-title" not in render_page(report)


def test_numbers_that_are_not_known_are_allowed(tmp_path):
    report = make_report("erased")
    loss = report.metrics["loss"]
    unknown = replace(loss.remaining["original"], low=-math.inf, high=math.inf, visibility=math.nan)
    report.metrics["loss"] = replace(loss, p_value=math.nan, remaining={"original": unknown})
    loaded = Report.load(report.save(tmp_path))
    assert repr(loaded.metrics["loss"]) == repr(report.metrics["loss"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_dictionary_holds_what_the_file_holds(case, tmp_path):
    report = make_report(**case)
    content = json.loads((report.save(tmp_path) / "report.json").read_text())
    del content["records"]["sha256"]
    assert report.to_dict() == content
