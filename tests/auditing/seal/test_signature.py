import base64
import json
import stat

import pytest
from tests.auditing.report.factory import VERDICTS, make_report

from ruler.auditing.seal.manifest import Manifest, read_canonical
from ruler.auditing.seal.signature import RESULTS, load_private_key, load_public_key, make_keys
from ruler.core.errors import FileFormatError, InputError


def test_keys_are_private_and_never_overwritten(tmp_path):
    private, public = make_keys(tmp_path / "keys")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    before = private.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        make_keys(tmp_path / "keys")
    private.unlink()
    with pytest.raises(InputError, match=r"ruler-key\.pub\.pem must not exist"):
        make_keys(tmp_path / "keys")
    assert not private.exists()
    assert before != make_keys(tmp_path / "others")[0].read_bytes()


def test_a_key_of_another_kind_is_refused(tmp_path):
    private, public = make_keys(tmp_path)
    for load, path in ((load_private_key, public), (load_public_key, private), (load_public_key, tmp_path / "none")):
        with pytest.raises(FileFormatError, match="Make one with: ruler keygen"):
            load(path)
    (tmp_path / "text.pem").write_text("not a key")
    with pytest.raises(FileFormatError, match="must be the public half"):
        load_public_key(tmp_path / "text.pem")


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_seal_is_an_in_toto_statement_in_a_dsse_envelope(verdict, tmp_path):
    """Checked with the cryptography library alone, by the words of the two specifications."""
    private, public = make_keys(tmp_path)
    folder = make_report(verdict).save(tmp_path / "report", sign_with=private)
    envelope = json.loads((folder / "seal.json").read_text())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
    (signature,) = envelope["signatures"]
    signed = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    load_public_key(public).verify(base64.b64decode(signature["sig"]), signed)
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    wanted = {"erased": "PASSED", "inconclusive": "WARNED"}.get(verdict, "FAILED")
    assert statement["predicate"]["result"] == wanted == RESULTS[verdict]
    assert statement["predicate"][f"{wanted.lower()}Tests"] == [f"ruler audit: {verdict}"]
    names = [subject["name"] for subject in statement["subject"]]
    assert names == ["manifest.json", "records.parquet", "report.html", "report.json"]


def test_the_manifest_names_all_that_the_report_rests_on(tmp_path):
    manifest = read_canonical(Manifest, make_report().save(tmp_path) / "manifest.json")
    content = manifest.content
    assert set(manifest.files) == {"report.json", "report.html", "records.parquet"}
    assert "unlearned/forget" in content.arrays
    assert content.environment.packages["numpy"]
    assert len(content.code.sha256) == len(content.settings) == 64
    assert manifest.fingerprint in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    "change", [lambda text: text + " ", lambda text: text.replace(",", ", ", 1), lambda text: text[:-1], lambda _: "[]"]
)
def test_a_manifest_has_one_spelling(change, tmp_path):
    path = make_report().save(tmp_path) / "manifest.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(FileFormatError, match=r"manifest\.json must be"):
        read_canonical(Manifest, path)


def test_deep_json_is_refused_in_words(tmp_path):
    path = tmp_path / "manifest.json"
    path.write_text("[" * 100_000)
    with pytest.raises(FileFormatError, match=r"manifest\.json must be as RULER writes it"):
        read_canonical(Manifest, path)
