"""However a verb ends, `ruler` says it in one line and with the status of that end."""

import signal
import sys
import tempfile

import pytest

import ruler.cli
from ruler.cli import Terminated, main
from ruler.core.errors import InputError


@pytest.fixture
def end_with(monkeypatch, capsys):
    """Run `ruler` with a verb that raises this; gives exit status, stdout and stderr."""

    def run(error):
        def raise_it():
            raise error

        asked = []
        monkeypatch.setattr("ruler.cli.app.make_app", lambda *words: asked.append(words) or raise_it)
        monkeypatch.setattr(sys, "argv", ["ruler", "audit", "--quiet"])
        with pytest.raises(SystemExit) as stop:
            main()
        assert asked == [("audit",)]
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    before = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (InputError("rows must be 2-D;\ngot 1-D."), 2, "ruler: rows must be 2-D; got 1-D.\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (Terminated(), 143, "ruler: stopped by SIGTERM; nothing that was finished is lost\n"),
    ],
)
def test_ends_have_their_own_status_and_line(end_with, error, status, line):
    assert end_with(error) == (status, "", line)


def test_an_error_of_ours_is_kept_in_a_file_that_can_be_sent(end_with, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    status, out, err = end_with(KeyError("a\x1b[2Jb " + "c" * 400))
    assert (status, out) == (70, "")
    (file,) = tmp_path.glob("ruler-error-*.txt")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "c" * 280 in err
    assert "c" * 301 not in err  # cut
    assert f"Report it with the file {file}, which holds the details." in err
    text = file.read_text()
    assert text.splitlines()[1] == "ruler audit --quiet"
    assert "c" * 400 in text
    assert "Traceback" in text


def test_without_room_for_the_file_the_line_is_enough(end_with, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    status, _, err = end_with(RuntimeError())
    assert status == 70
    assert "not of your data: RuntimeError. Report it with this line and the command." in err


class PanicException(BaseException):
    """As libraries written in Rust raise it."""


PanicException.__module__ = "pyo3_runtime"


def test_a_panic_of_a_library_is_an_error_and_other_ends_pass(end_with, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert end_with(PanicException("index out of bounds"))[0] == 70
    with pytest.raises(GeneratorExit):
        end_with(GeneratorExit())


def test_sigterm_ends_a_verb_as_ctrl_c_does_and_only_once(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # while it is cleared up
            seen.append("cleared up")

    monkeypatch.setattr("ruler.cli.app.make_app", lambda *words: work)
    monkeypatch.setattr(sys, "argv", ["ruler"])
    try:
        with pytest.raises(SystemExit) as stop:
            ruler.cli.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (stop.value.code, seen) == (143, ["cleared up"])
