"""Nothing in a sealed report can be changed unnoticed, and what was changed is said in plain words."""

import json
import random as stdlib_random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.auditing.seal.cases import make_audit

from ruler.auditing.findings import Report
from ruler.auditing.report.files import save_report
from ruler.auditing.seal.check import check_report
from ruler.auditing.seal.manifest import Manifest, hash_bytes, read_canonical, write_canonical
from ruler.auditing.seal.signature import make_keys
from ruler.core.errors import FileFormatError

FORGED = "forged by hand, with all hashes recomputed"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def report():
    return make_audit()


@pytest.fixture(scope="module")
def grouped():
    return make_audit(groups=[f"person {row // 3}" for row in range(60)])


@pytest.fixture(scope="module")
def saved(report, keys, tmp_path_factory):
    return report.save(tmp_path_factory.mktemp("saved") / "report", sign_with=keys[0], also=["sarif", "junit"])


@pytest.fixture
def folder(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "report"))


def faults(folder, key=None):
    return [check for check in check_report(folder, key=key) if check.holds is False]


def tell(folder, key=None):
    return " ".join(check.message for check in faults(folder, key))


def test_what_an_audit_wrote_holds(folder, keys):
    checks = list(check_report(folder, key=keys[1]))
    assert {check.name for check in checks} == {
        "files",
        "signature",
        "schema",
        "manifest",
        "numbers",
        "verdict",
        "page",
    }
    assert all(check.holds for check in checks)


@pytest.mark.parametrize(
    "options",
    [
        {"groups": {"forget": np.arange(60) // 3, "held_out": 100 + np.arange(120) // 3}},
        {"groups": [f"person {row // 3}" for row in range(60)]},
        {"ids": [f"record {row}" for row in range(60)]},
    ],
    ids=["both sides", "forget alone", "ids"],
)
def test_other_audits_hold_too(options, tmp_path):
    assert faults(make_audit(**options).save(tmp_path / "report")) == []


def test_without_a_key_the_signature_is_not_checked(folder, report, tmp_path):
    (check,) = [check for check in check_report(folder) if check.name == "signature"]
    assert check.holds is None
    assert "give the public key" in check.message
    (check,) = [check for check in check_report(report.save(tmp_path / "bare")) if check.name == "signature"]
    assert check.holds is None
    assert "not signed" in check.message


def test_a_thousand_random_changes_are_all_found(folder, keys, record_property):
    draw = stdlib_random.Random(7)
    paths = sorted(folder.iterdir())
    assert len(paths) == 7
    for number in range(1000):
        path = paths[number % len(paths)]
        content = path.read_bytes()
        place = draw.randrange(len(content))
        changed = bytearray(content)
        changed[place] ^= draw.randrange(1, 256)
        kind = draw.randrange(3)
        path.write_bytes(bytes(changed) if kind else content[:place] + content[place + 1 :])
        found = next((check for check in check_report(folder, key=keys[1]) if check.holds is False), None)
        assert found is not None, (path.name, place)
        path.write_bytes(content)
    assert faults(folder, keys[1]) == []
    record_property("one random byte changed or removed, in any file of the report", 1000)


@pytest.mark.parametrize(
    "name", ["report.json", "report.html", "records.parquet", "manifest.json", "seal.json", "junit.xml", "report.sarif"]
)
def test_a_file_that_is_gone_swapped_or_linked_is_found(name, folder, grouped, keys, tmp_path, record_property):
    other = grouped.save(tmp_path / "other", sign_with=keys[0], also=["sarif", "junit"])
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    assert name in tell(folder, keys[1]) or "not signed" in tell(folder, keys[1])
    shutil.copy(other / name, folder / name)
    assert faults(folder, keys[1])
    (folder / name).unlink()
    (tmp_path / "elsewhere").write_bytes(content)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert faults(folder, keys[1]) or name in ("manifest.json", "seal.json")  # the same bytes: nothing was changed
    record_property("each file removed, or swapped with that of another sealed report", 2)


def test_an_added_file_is_found(folder, keys, record_property):
    (folder / "appendix.html").write_text("Trust me.")
    assert tell(folder, keys[1]) == "'appendix.html' was added: the manifest does not name it."
    record_property("a file added", 1)


def forge_json(folder, edit):
    """What somebody with a text editor, RULER's code and no key can do: everything but sign."""
    path = folder / "report.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content, indent=2) + "\n")
    renew(folder)


def renew(folder):
    """Write the manifest again, so that all its hashes fit."""
    manifest = read_canonical(Manifest, folder / "manifest.json")
    files = {name: hash_bytes((folder / name).read_bytes()) for name in manifest.files}
    content = manifest.content.model_copy(
        update={
            "report": files["report.json"],
            "records": files["records.parquet"],
            "verdict": json.loads((folder / "report.json").read_text())["verdict"],
        }
    )
    (folder / "manifest.json").write_bytes(write_canonical(Manifest(content=content, files=files)))


def set_metric(name, /, **values):
    return lambda content: content["metrics"][name].update(values)


def set_part(name, part, /, **values):
    return lambda content: content["metrics"][name][part].update(values)


def set_remaining(name, /, **values):
    return lambda content: content["metrics"][name]["remaining"]["original"].update(values)


JSON_FORGERIES = {
    "verdict": (lambda content: content.update(verdict="erased"), "The numbers give the verdict residual; the report"),
    "reason": (lambda content: content.update(reason="All is well."), "The reason that the report gives"),
    "p-value": (set_metric("m2", p_value=7.5), "p_value must lie between 0 and 1"),
    "auc range": (set_part("m2", "place", effect=1.2), "effect must lie between 0 and 1"),
    "unknown field": (lambda content: content.update(approved=True), "approved"),
    "contrast verdict": (set_metric("m2", verdict="erased"), "The numbers of m2 give residual; the report says erased"),
    "contrast reason": (set_metric("m2", reason="Fine."), "The reason given for m2"),
    "contrast disarmed": (set_metric("m2", verdict="descriptive"), "the report says descriptive"),
    "contrast left out": (lambda content: content["metrics"].pop("m4"), "m4 decides"),
    "contrast renamed": (set_metric("m2", name="m4"), "carries the name 'm4'"),
    "corrected p-value": (set_part("m4", "place", p_value=0.0), "lies under its p-value"),
    "auc": (set_part("m2", "place", effect=0.5, interval=[0.4, 0.6]), "the scores in the report give"),
    "what remains": (set_remaining("tangent", value=0.0), "What remains by tangent lies outside its interval"),
    "what remains, with its interval": (
        set_remaining("tangent", value=0.0, low=-0.1, high=0.1, at_least=-0.1, at_most=0.1),
        "What is said of the layers does not follow from the numbers",
    ),
    "family": (lambda content: content["layers"].update(verdict="erased"), "What is said of the layers does not"),
    "interval": (set_metric("m2", interval=[0.9, 0.95]), "The value of m2 lies outside its interval"),
    "limit": (lambda content: content["settings"].update(limit=0.9), "contradicts report.json about settings"),
    "given": (lambda content: content["given"].update(original=False), "contradicts itself about the original"),
    "settings": (lambda content: content["settings"].update(seed=3), "contradicts report.json about settings"),
    "bad settings": (lambda content: content["settings"].update(alpha=2.0), "alpha must be under 0.5"),
    "arrays": (lambda content: content["provenance"]["arrays"].pop("oracle"), "contradicts report.json about arrays"),
    "damage": (lambda content: content["damage"].update(reason="It works."), "Whether the model still works"),
    "records": (lambda content: content["records"].update(n_records=59), "must hold the 59 records"),
    "count": (set_part("m2", "control", n_forget=30), "m2 counts 30 forget records; the report holds 60"),
    "value": (set_metric("m1", value=1.0, interval=[0.99, 1.0]), "m1 is 1.0000; the records give"),
}


@pytest.mark.parametrize("name", JSON_FORGERIES)
def test_forged_numbers_are_found_although_all_hashes_fit(name, folder, keys, record_property):
    edit, words = JSON_FORGERIES[name]
    forge_json(folder, edit)
    assert words in tell(folder)
    assert "another state of this one" in tell(folder, keys[1])
    record_property(f"{FORGED}: verdict, p = 7.5, other numbers, settings", 1)


def test_a_report_that_agrees_with_itself_is_still_found_by_the_signature(
    folder, report, keys, tmp_path, record_property
):
    forged = replace(report, guards=[])
    other = forged.save(tmp_path / "forged", also=["sarif", "junit"])
    assert faults(other) == []
    assert tell(other, keys[1]) == "The report is not signed: anyone could have made it, with its manifest."
    shutil.copy(folder / "seal.json", other / "seal.json")
    assert tell(other, keys[1]) == "The seal is about another report, or another state of this one."
    record_property(f"{FORGED}: guards emptied, found by the signature alone", 2)


def test_another_signer_is_not_the_one_that_was_asked_for(report, keys, tmp_path, record_property):
    own = make_keys(tmp_path / "own")
    folder = report.save(tmp_path / "report", sign_with=own[0])
    assert faults(folder, own[1]) == []
    assert "was not signed by the key" in tell(folder, keys[1])
    assert "The seal names the key" in tell(folder, keys[1])
    seal = json.loads((folder / "seal.json").read_text())
    right = json.loads((report.save(tmp_path / "right", sign_with=keys[0]) / "seal.json").read_text())
    seal["signatures"][0]["keyid"] = right["signatures"][0]["keyid"]
    (folder / "seal.json").write_text(json.dumps(seal, separators=(",", ":"), sort_keys=True))
    assert "was not signed by the key" in tell(folder, keys[1])
    record_property(f"{FORGED}: another signer", 2)


def forge_records(folder, edit):
    """Rewrite records.parquet and every hash that names it."""
    report = Report.load(folder)
    save_report(replace(report, records=edit(report.records.copy())), folder, also=["sarif", "junit"])


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda records: records.assign(finding="does not stand out"), "Which records stand out"),
        (lambda records: records.assign(q_value=0.9), "do not follow from its p-values"),
        (lambda records: records.assign(p_value=-1.0), "records.parquet holds a p outside 0 to 1"),
        (lambda records: records.iloc[1:], "m2 counts 60 forget records; the report holds 59"),
        (lambda records: records.assign(percentile_rank=0.5), "m4 is"),
        (lambda records: records.assign(high=-9.0), "What remains of a record in records.parquet lies outside"),
    ],
)
def test_forged_records_are_found(edit, words, folder, record_property):
    forge_records(folder, edit)
    assert words in tell(folder)
    record_property(f"{FORGED}: records and groups", 1)


def test_forged_groups_are_found(grouped, tmp_path, record_property):
    for column, value, words in (
        ("n_records", 4, "The groups count other records"),
        ("n_flagged", 0, "The groups count other records"),
        ("q_value", 0.5, "The q-values of the groups"),
        ("high", -9.0, "What remains of a group lies outside its interval"),
        ("verdict", "erased", "The verdicts of the groups do not follow from their numbers"),
    ):
        forged = replace(grouped, groups=grouped.groups.assign(**{column: value}))
        assert words in tell(forged.save(tmp_path / column)), column
    record_property(f"{FORGED}: records and groups", 5)


@pytest.mark.parametrize("name", ["report.html", "report.sarif", "junit.xml"])
def test_a_page_that_says_something_else_is_found(name, folder, keys, record_property):
    path = folder / name
    text = path.read_text(encoding="utf-8").replace("residual", "erased").replace("Residual", "Erased")
    path.write_text(text, encoding="utf-8")
    renew(folder)
    assert f"{name} does not say what report.json says." in tell(folder)
    assert "another state" in tell(folder, keys[1])
    record_property(f"{FORGED}: pages and files for pipelines", 1)


def test_another_environment_in_the_manifest_is_found_on_the_page(folder, record_property):
    manifest = read_canonical(Manifest, folder / "manifest.json")
    elsewhere = manifest.content.environment.model_copy(update={"python": "3.99.0"})
    content = manifest.content.model_copy(update={"environment": elsewhere})
    (folder / "manifest.json").write_bytes(write_canonical(Manifest(content=content, files=manifest.files)))
    assert "report.html does not say what report.json says" in tell(folder)
    record_property(f"{FORGED}: manifest", 1)


def test_a_manifest_that_leaves_the_report_out_is_found(folder, record_property):
    manifest = read_canonical(Manifest, folder / "manifest.json")
    files = {name: digest for name, digest in manifest.files.items() if name != "report.html"}
    (folder / "manifest.json").write_bytes(write_canonical(Manifest(content=manifest.content, files=files)))
    assert "The manifest does not name report.html" in tell(folder)
    record_property(f"{FORGED}: manifest", 1)


def test_a_time_stamp_must_name_the_seal(folder, keys, record_property):
    stamp = folder / "seal.tsr"
    stamp.write_bytes(b"\x30\x03\x04\x20" + bytes.fromhex(hash_bytes((folder / "seal.json").read_bytes())))
    (check,) = [check for check in check_report(folder, key=keys[1]) if check.name == "time stamp"]
    assert check.holds is None
    assert "openssl ts -verify" in check.message
    stamp.write_bytes(b"\x30\x03\x04\x20" + bytes(32))
    assert tell(folder, keys[1]) == "seal.tsr does not name this seal."
    (folder / "seal.json").unlink()
    assert "seal.tsr does not belong to a seal." in tell(folder)
    record_property(f"{FORGED}: time stamp", 2)


def test_misuse_is_an_error_not_a_finding(folder, tmp_path):
    with pytest.raises(FileFormatError, match="must be a folder that an audit wrote"):
        list(check_report(tmp_path / "nowhere"))
    with pytest.raises(FileFormatError, match="public half of an Ed25519 key"):
        list(check_report(folder, key=tmp_path / "no.pem"))


def test_saving_again_leaves_no_old_seal(report, keys, tmp_path):
    folder = report.save(tmp_path, sign_with=keys[0], also=["junit"])
    assert (folder / "seal.json").is_file()
    report.save(folder)
    assert not (folder / "seal.json").exists()
    assert not (folder / "junit.xml").exists()
    assert faults(folder) == []
