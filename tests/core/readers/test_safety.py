"""Whatever a parser raises becomes one line that names the file."""

import errno
import re
from pathlib import Path

import numpy as np
import pytest

from ruler.core.errors import FileFormatError, InputError, MissingPackageError
from ruler.core.readers.safety import (
    LIMITS,
    check_at_most,
    check_ends,
    check_text_array,
    limit,
    pack_texts,
    reading_safely,
)
from ruler.core.text import markdown_table


class PanicException(BaseException):
    """What libraries written in Rust raise, by its name."""


def explain(path, error):
    with pytest.raises(FileFormatError) as caught, reading_safely(path):
        raise error
    return str(caught.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("bad\nnews"), "must be a sound .bin file; it cannot be read: bad news. Write it again."),
        (KeyError("rows"), "must be a sound .bin file; it cannot be read: KeyError 'rows'. Write it again."),
        (PanicException("lost"), "must be a sound .bin file; it cannot be read: lost. Write it again."),
        (RecursionError(), "must be a sound .bin file; it nests too deeply. Write it again."),
        (MemoryError(), "must fit into memory; it does not. Split it, or use a larger machine."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_fault_of_a_parser_is_one_line(tmp_path, error, message):
    path = tmp_path / "rows.bin"
    path.touch()
    assert explain(path, error) == f"{path} {message}"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ENOSPC])
def test_faults_of_the_system_are_not_blamed_on_the_file(tmp_path, code):
    (tmp_path / "rows.bin").touch()
    said = explain(tmp_path / "rows.bin", OSError(code, "no way"))
    assert "must be readable; got: no way. Check its rights" in said


def test_what_is_missing_or_a_folder_is_told(tmp_path):
    assert explain(tmp_path / "none", ValueError()).endswith("must be a file; got nothing there. Check the path.")
    assert explain(tmp_path, IsADirectoryError()).endswith("must be a file; got a folder. Check the path.")
    assert "must hold a sound" in explain(tmp_path, ValueError("x"))


def test_errors_in_our_words_keep_them(tmp_path):
    assert explain(tmp_path, InputError("rows must be 2-D.")) == f"{tmp_path}: rows must be 2-D."
    assert explain(tmp_path, FileFormatError("said already")) == "said already"
    with pytest.raises(MissingPackageError, match="pyarrow"), reading_safely(tmp_path):
        raise MissingPackageError("pyarrow is needed")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_pass(tmp_path, error):
    with pytest.raises(error), reading_safely(tmp_path):
        raise error


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_holds_can_be_raised_and_says_how(name, monkeypatch):
    most = LIMITS[name].value
    check_at_most(most, name, "a.file", "things")
    with pytest.raises(
        FileFormatError, match=rf"a\.file must have at most {most:,} things; got {most + 1:,}\."
    ) as told:
        check_at_most(most + 1, name, "a.file", "things")
    advice = re.search(r"RULER_LIMITS=\w+=", str(told.value))[0]
    monkeypatch.setenv("RULER_LIMITS", advice.removeprefix("RULER_LIMITS=") + str(most + 1))
    check_at_most(most + 1, name, "a.file", "things")


@pytest.mark.parametrize("text", ["id_character=5", "id_characters", "id_characters=-1", "id_characters=5 x", "=3"])
def test_limits_that_are_none_are_refused(text, monkeypatch):
    monkeypatch.setenv("RULER_LIMITS", text)
    with pytest.raises(InputError, match="RULER_LIMITS must be a list such as"):
        limit("pixels")


def test_several_limits_may_be_set(monkeypatch):
    monkeypatch.setenv("RULER_LIMITS", "id_characters=7, pixels=9")
    assert (limit("id_characters"), limit("pixels"), limit("layers")) == (7, 9, LIMITS["layers"].value)


def test_texts_are_packed_only_if_they_are_short_and_fit(monkeypatch):
    assert pack_texts(["a", "", "bcd"], "ids").tolist() == ["a", "", "bcd"]
    assert len(pack_texts(["x" * 1024], "ids")[0]) == 1024
    with pytest.raises(InputError, match=r"groups must have at most 1,024 characters each; got one of 1,025, 'yyy"):
        pack_texts(["x", "y" * 1025], "groups")
    monkeypatch.setenv("RULER_LIMITS", "text_bytes=79")
    assert len(pack_texts(["x"] * 19, "ids")) == 19
    with pytest.raises(InputError, match=r"ids must take at most 79 bytes, as wide as the longest; got 80"):
        pack_texts(["x"] * 20, "ids")


def test_arrays_of_text_are_checked_before_they_are_copied(monkeypatch):
    check_text_array(np.zeros(3, "U1024"), "ids")
    check_text_array(np.zeros((3, 9)), "ids")
    with pytest.raises(InputError, match="at most 1,024 characters each; got <U1025"):
        check_text_array(np.zeros(3, "U1025"), "ids")
    monkeypatch.setenv("RULER_LIMITS", "text_bytes=11")
    with pytest.raises(InputError, match="ids must take at most 11 bytes"):
        check_text_array(np.zeros(3, "U1"), "ids")


@pytest.mark.parametrize("ends", [[2, 1, 3], [4, 3], [-1, 3], [1, 2], [1, 4], [[1, 3]], [1.0, 3.0], []])
def test_ends_that_overlap_or_leave_the_data_are_refused(ends):
    with pytest.raises(InputError, match="ids_ends must be whole numbers that ascend to the 3 bytes of text"):
        check_ends(np.array(ends), 3, "ids")


@pytest.mark.parametrize(("ends", "n_bytes"), [([1, 1, 3], 3), ([], 0), ([0, 0], 0)])
def test_sound_ends_are_taken(ends, n_bytes):
    check_ends(np.array(ends, dtype=np.int64), n_bytes, "ids")


def test_the_table_of_limits_is_documented():
    rows = [[f"`{name}`", f"{one.value:,}", one.reason] for name, one in LIMITS.items()]
    table = "\n".join(markdown_table(["Limit", "Value", "What it counts, and why"], rows, marks=["---", "--:", "---"]))
    page = Path(__file__).parents[3] / "docs" / "files.md"
    assert table in page.read_text(encoding="utf-8"), f"write this into {page.name}:\n{table}"
