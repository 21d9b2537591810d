import errno
import os
import re
import sys
from pathlib import Path

import pytest

from ruler.core.errors import FileFormatError, WriteError
from ruler.core.files import cache_folder, check_writable, data_folder, write_atomically, writing_safely


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


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "Free some space there"),
        (errno.EDQUOT, "Free some space there"),
        (errno.EROFS, "Check the rights"),
        (errno.EACCES, "Check the rights"),
        (errno.EIO, "Choose another folder"),
    ],
)
def test_what_the_disk_says_becomes_one_line_with_advice(tmp_path, monkeypatch, number, advice):
    def refuse(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refuse)
    line = f"b.txt must be writable; got: {os.strerror(number)}. {advice}"
    with pytest.raises(WriteError, match=re.escape(line)):
        write_atomically(tmp_path / "b.txt", "new")
    assert os.listdir(tmp_path) == []


def test_errors_of_our_own_pass_while_something_is_written(tmp_path):
    with pytest.raises(FileFormatError, match="broken"), writing_safely(tmp_path):
        raise FileFormatError("broken")


def test_a_folder_is_checked_before_it_is_made(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="must be writable; got: it is a file"):
        check_writable(tmp_path / "file")


def test_the_environment_names_both_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULER_CACHE", "~/kept")
    monkeypatch.setenv("RULER_DATA", "/data")
    assert cache_folder() == Path.home() / "kept"
    assert data_folder() == Path("/data")


def test_data_lie_in_the_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RULER_DATA", raising=False)
    monkeypatch.setenv("RULER_CACHE", "/cache")
    assert data_folder() == Path("/cache")


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs knows the other platforms")
def test_the_cache_is_where_the_platform_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RULER_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "ruler"
    monkeypatch.setenv("XDG_CACHE_HOME", "/place")
    assert cache_folder() == Path("/place/ruler")
