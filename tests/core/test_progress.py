import io
import sys

import pytest

from ruler.core import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_gets_a_line_with_the_time_that_is_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    assert list(progress.track([1, 2], "counting", n_items=2)) == [1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    assert list(progress.track([1, 2], "counting", n_items=2)) == [1, 2]
    assert capsys.readouterr().err == "counting: 50%, about 0.0 min left\n"


def test_words_stand_for_the_title_from_then_on(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    with progress.show_progress("running", total=3) as advance:
        advance(1, "1 of 3 cells")
        advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["1 of 3 cells"] * 2


@pytest.mark.parametrize(("patience_s", "is_shown"), [(-1.0, True), (60.0, False)])
def test_a_bar_appears_only_on_long_work(patience_s, is_shown, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.show_progress("searching", total=2) as advance:
        advance(1)
        advance(1)
    assert ("searching" in terminal.getvalue()) == is_shown


def test_without_rich_the_work_goes_on_in_silence(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "rich", None)
    assert list(progress.track([1, 2], "counting", n_items=2)) == [1, 2]
    assert sys.stderr.getvalue() == ""


def test_no_bar_unless_asked(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(progress.track([1], "counting", n_items=1, is_shown=False)) == [1]
    assert sys.stderr.getvalue() == ""
