"""The manifest names everything by its SHA-256, in one form only."""

import json

import pytest
from tests.auditing.seal.cases import make_audit

from ruler.auditing.seal.manifest import (
    MOST_BYTES,
    Content,
    Manifest,
    describe_code,
    describe_content,
    find_digests,
    hash_bytes,
    read_canonical,
    take_fingerprint,
    write_canonical,
)
from ruler.core import __version__
from ruler.core.errors import FileFormatError

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


@pytest.fixture(scope="module")
def content() -> Content:
    return describe_content(make_audit(), document=b"abc", records=b"")


@pytest.fixture
def path(content, tmp_path):
    path = tmp_path / "manifest.json"
    path.write_bytes(write_canonical(Manifest(content=content, files={"report.json": ABC})))
    return path


def test_hashes_are_sha_256(content):
    assert hash_bytes(b"abc") == content.report == ABC
    assert content.records == hash_bytes(b"")


def test_the_content_names_arrays_settings_and_code(content):
    assert {"unlearned/forget", "oracle/retain", "original/held_out"} <= content.arrays.keys()
    assert content.code == describe_code()
    assert content.code.version == __version__
    assert content.environment.packages["numpy"]


def test_another_setting_gives_another_digest(content):
    other = describe_content(make_audit(ids=[f"record {row}" for row in range(60)]), document=b"abc", records=b"")
    assert other.settings == content.settings
    assert other.arrays == content.arrays
    assert other.names != content.names


@pytest.mark.parametrize("name", sorted(Content.model_fields))
def test_the_fingerprint_depends_on_every_part(content, name):
    value = getattr(content, name)
    if name in ("code", "environment"):
        other = value.model_copy(update={"version" if name == "code" else "python": "0"})
    elif isinstance(value, dict):
        other = {**value, "more": ABC}
    else:
        other = "erased" if name == "verdict" else "0" * 64
    assert take_fingerprint(content.model_copy(update={name: other})) != take_fingerprint(content)


def test_what_was_written_is_read_back(path, content):
    found = read_canonical(Manifest, path)
    assert (found.content, found.files) == (content, {"report.json": ABC})
    assert found.fingerprint == take_fingerprint(content)
    assert write_canonical(found) == path.read_bytes()


def test_keys_are_sorted_and_nothing_is_spaced(path):
    text = path.read_text()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, sort_keys=True, separators=(",", ":")))


@pytest.mark.parametrize(
    ("spoil", "phrase"),
    [
        (lambda path: path.unlink(), "must be a file in .*; got nothing there"),
        (lambda path: path.write_text(path.read_text() + "\n"), "must be canonical JSON, to the byte"),
        (lambda path: path.write_text(path.read_text()[:-1]), "must be as RULER writes it; got the file: "),
        (lambda path: change(path, approved=True), "must be as RULER writes it; got approved: "),
        (lambda path: change(path, version="1"), "must be as RULER writes it; got version: "),
        (lambda path: change(path, version=2), "must be as RULER writes it; got version: "),
        (lambda path: change(path, files={"report.json": ABC.upper()}), r"got files\.report\.json: "),
        (lambda path: change(path, files={"report.json": ABC[:-1]}), r"got files\.report\.json: "),
    ],
)
def test_any_other_form_is_refused(path, spoil, phrase):
    spoil(path)
    with pytest.raises(FileFormatError, match=f"^manifest.json {phrase}" if phrase[0] == "m" else phrase):
        read_canonical(Manifest, path)


def test_a_file_without_end_is_not_read(path):
    with path.open("r+b") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(FileFormatError, match=r"must be under 64 MiB; got 67,108,865 bytes"):
        read_canonical(Manifest, path)


def test_digests_are_found_at_any_depth():
    entries = {"a": {"b": ABC, "c": {"sha256": ABC, "shape": [1]}}, "d": "no digest", "e": ABC.upper(), "f": 3}
    assert dict(find_digests(entries)) == {"a/b": ABC, "a/c": ABC}
    assert list(find_digests(ABC)) == [("", ABC)]
    assert list(find_digests(None)) == []
