"""Whatever a parser raises becomes one line that names the file."""

import errno

import pytest

from ruler.core.errors import FileFormatError, InputError, MissingPackageError
from ruler.core.readers.safety import reading_safely


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
