import hashlib
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
from tests.auditing.report.factory import CASES, edit, make_report

from ruler.auditing.audit import audit
from ruler.auditing.findings import Report
from ruler.auditing.report import files
from ruler.auditing.report.document import SCHEMA_PATH
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import FileFormatError, InputError


def assert_same(one: Report, other: Report) -> None:
    assert (one.verdict, one.reason, one.settings) == (other.verdict, other.reason, other.settings)
    assert repr(dict(one.metrics)) == repr(dict(other.metrics))  # NaN is not equal to itself, its text is
    for name in ("pairing", "damage", "privacy", "outputs", "layers", "given", "declared"):
        assert repr(getattr(one, name)) == repr(getattr(other, name))
    assert one.needs == other.needs
    assert one.guards == other.guards
    assert dict(one.provenance) == dict(other.provenance)
    assert one.answers == other.answers
    pd.testing.assert_frame_equal(one.records, other.records)
    assert (one.groups is None) == (other.groups is None)
    if one.groups is not None:
        pd.testing.assert_frame_equal(one.groups, other.groups)
    for before, after in (
        *zip(one.distributions.scores.values(), other.distributions.scores.values(), strict=True),
        (one.distributions.rank_counts, other.distributions.rank_counts),
    ):
        assert before.keys() == after.keys()
        for side in before:
            np.testing.assert_array_equal(before[side], after[side])
    assert one.distributions.scores.keys() == other.distributions.scores.keys()
    assert one.distributions.roc.keys() == other.distributions.roc.keys()
    for name, rates in one.distributions.roc.items():
        np.testing.assert_array_equal(rates, other.distributions.roc[name])
    np.testing.assert_array_equal(one.distributions.rank_edges, other.distributions.rank_edges)
    for side, places in one.distributions.plane.points.items():
        np.testing.assert_array_equal(places, other.distributions.plane.points[side])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_round_trip(case, tmp_path):
    report = make_report(**case)
    folder = report.save(tmp_path / "deep" / "out")
    assert sorted(path.name for path in folder.iterdir()) == sorted(files.NAMES)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["out"]
    assert_same(report, Report.load(folder))


@pytest.mark.parametrize("has_everything", [True, False])
def test_a_real_audit_survives(has_everything, tmp_path, random):
    oracle = tuple(random.normal(size=(n, 8)) for n in (30, 120, 60))
    unlearned, original = (
        tuple(rows + spread * random.normal(size=rows.shape) for rows in oracle) for spread in (0.1, 0.4)
    )
    settings = AuditSettings(n_permutations=99)
    extras = {"oracle": oracle, "original": original, "groups": [f"person {row // 3}" for row in range(30)]}
    models = (unlearned, extras) if has_everything else (unlearned[:2], {})
    report = audit(models[0], **models[1], settings=settings)
    folder = report.save(tmp_path)
    assert_same(report, Report.load(folder))
    content = json.loads((folder / "report.json").read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text())).validate(content)


def test_same_report_same_bytes(tmp_path):
    one, other = make_report().save(tmp_path / "a"), make_report().save(tmp_path / "b")
    for name in files.NAMES:
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_one_more_file_needs_no_list(tmp_path):
    assert (make_report().save(tmp_path, also="junit") / "junit.xml").is_file()


def test_save_again_leaves_other_files(tmp_path):
    make_report("residual").save(tmp_path)
    (tmp_path / "mine.txt").write_text("keep")
    make_report("erased").save(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"
    assert Report.load(tmp_path).verdict == "erased"


def test_nothing_is_written_when_a_part_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("ruler.auditing.report.page.render_page", lambda report, **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_report().save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_when_the_disk_fails(tmp_path, monkeypatch):
    make_report("residual").save(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def fail(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space"):
        make_report("erased").save(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_save_refuses_a_file_and_a_folder_in_the_way(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        make_report().save(tmp_path / "taken")
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    with pytest.raises(InputError, match="must be a file or free"):
        make_report().save(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_odd_ids_and_text_survive(tmp_path):
    ids = ["</script>", '"', "\u202eabc", "a" * 10_000, "\x00\x1b[31m", "\u00e9\U0001f469\u200d\U0001f52c"]
    report = make_report(ids=ids, n_forget=len(ids))
    assert Report.load(report.save(tmp_path)).records["id"].tolist() == ids


def test_ids_that_parquet_cannot_hold_become_text(tmp_path):
    report = make_report(n_forget=3, ids=["x", "y", "z"])
    records = report.records.assign(id=pd.Series([1, "two", "\ud800"], dtype=object))
    loaded = Report.load(replace(report, records=records, reason="\ud800").save(tmp_path))
    assert loaded.records["id"].tolist() == ["1", "two", "\\ud800"]
    assert loaded.reason == "\\ud800"


@pytest.mark.parametrize("name", ["report.json", "records.parquet"])
def test_missing_file(name, tmp_path):
    folder = make_report().save(tmp_path)
    (folder / name).unlink()
    with pytest.raises(FileFormatError, match=f"{name} must be a file"):
        Report.load(folder)


def test_a_contrast_of_somebody_else_survives(tmp_path):
    report = make_report()
    report.metrics["mine"] = replace(report.metrics["loss"], name="mine")
    report.distributions.scores["mine"] = report.distributions.scores["loss"]
    assert "mine" in Report.load(report.save(tmp_path)).metrics
    assert "mine" in str(report)


def test_json_that_is_too_large(tmp_path, monkeypatch):
    folder = make_report().save(tmp_path)
    monkeypatch.setattr(files, "MOST_JSON_BYTES", 100)
    with pytest.raises(FileFormatError, match="must be under"):
        Report.load(folder)


def test_files_of_two_reports(tmp_path):
    one, other = make_report(seed=1).save(tmp_path / "a"), make_report(seed=2).save(tmp_path / "b")
    (one / "records.parquet").write_bytes((other / "records.parquet").read_bytes())
    with pytest.raises(FileFormatError, match="SHA-256"):
        Report.load(one)


def plant_records(folder: Path, content: bytes, **changes: object) -> None:
    (folder / "records.parquet").write_bytes(content)
    records = json.loads((folder / "report.json").read_text())["records"]
    edit(folder, records={**records, "sha256": hashlib.sha256(content).hexdigest(), **changes})


def test_records_that_are_not_parquet(tmp_path):
    folder = make_report().save(tmp_path)
    plant_records(folder, (folder / "records.parquet").read_bytes()[:-50])
    with pytest.raises(FileFormatError, match=r"must be a sound \.parquet file"):
        Report.load(folder)


def test_records_other_than_said(tmp_path):
    folder = make_report().save(tmp_path)
    plant_records(folder, (folder / "records.parquet").read_bytes(), n_records=7)
    with pytest.raises(FileFormatError, match="must hold the 7 records"):
        Report.load(folder)


def test_records_that_unpack_to_too_much(tmp_path, monkeypatch):
    folder = make_report().save(tmp_path)
    monkeypatch.setattr(files, "MOST_RECORD_BYTES", 1000)
    with pytest.raises(FileFormatError, match="unpack"):
        Report.load(folder)
