import os

import pytest

from ruler.core.files import write_atomically


def test_replaces_a_file_whole_and_makes_folders(tmp_path):
    path = tmp_path / "a" / "b.txt"
    write_atomically(path, "first, a longer text")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert os.listdir(path.parent) == ["b.txt"]


def test_a_failing_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "b.txt"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "replace", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["b.txt"]
