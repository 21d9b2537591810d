"""TOML and JSON that would take minutes, gigabytes or the stack are refused at once, and sound ones are read."""

import time

import pytest

from ruler.core.errors import FileFormatError
from ruler.core.readers.documents import read_json, read_toml
from ruler.core.readers.safety import limit

N = limit("toml_bytes") - 16
DEEP = {
    "dotted key": "a" + ".a" * (N // 2) + "=1",
    "dotted table": "[a" + " . a" * (N // 4) + "]",
    "quoted parts": '"\\""' + '."\\""' * (N // 5) + "=1",
    "inline": "a={b" + ".'b c'" * (N // 6) + "=1}",
    "arrays": "a=" + "[" * (N // 2),
    "nested arrays": "a=" + "[" * 5000 + "]" * 5000,
    "unclosed quotes": '"' + '\\"' * (N // 2),
    "number": "a=" + "9" * 5000,
    "no date": "a=2001-02-30",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_hostile_toml_is_refused_at_once(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    started_s = time.process_time()
    with pytest.raises(FileFormatError, match=r"a\.toml must (be TOML|have keys of at most 16 parts)"):
        read_toml(tmp_path / "a.toml")
    assert time.process_time() - started_s < 2


def test_toml_beyond_its_size_or_not_in_utf_8(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"#" * (limit("toml_bytes") + 1))
    with pytest.raises(FileFormatError, match="must have at most 262,144 bytes; got 262,145"):
        read_toml(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(FileFormatError, match=r"a\.toml must be TOML in UTF-8; got other bytes"):
        read_toml(tmp_path / "a.toml")
    with pytest.raises(FileFormatError, match=r"b\.toml must be a file; got nothing there"):
        read_toml(tmp_path / "b.toml")


def test_what_only_looks_like_a_long_key_is_read(tmp_path):
    numbers = ", ".join(["0.5"] * 100)
    (tmp_path / "a.toml").write_text(f'a.b."c.d" = [{numbers}]\nversion = "1.2.3.4.5.6.7.8.9.10.11.12.13.14.15"\n')
    found = read_toml(tmp_path / "a.toml")
    assert found["a"]["b"]["c.d"] == [0.5] * 100
    assert found["version"].endswith("14.15")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "must be a sound JSON file; it nests too deeply"),
        (b'{"a":' * 100_000, "must be a sound JSON file; it nests too deeply"),
        (b'{"a": "\xff"}', "must be a sound JSON file; it cannot be read: 'utf-8' codec"),
        (b"[1]", "must hold a JSON object; got list"),
        (b"{", "must be a sound JSON file; it cannot be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "must be a sound JSON file; it cannot be read: Exceeds the limit"),
    ],
)
def test_hostile_json_is_refused(tmp_path, content, message):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        read_json(tmp_path / "a.json")


def test_json_beyond_its_size(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_LIMITS", "json_bytes=10")
    (tmp_path / "a.json").write_text('{"a": 1000}')
    with pytest.raises(FileFormatError, match="must have at most 10 bytes; got 11"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text('{"a": 100}')
    assert read_json(tmp_path / "a.json") == {"a": 100}
