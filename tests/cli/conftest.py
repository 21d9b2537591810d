"""What tests of several verbs share."""

import sys

import pytest

import ruler.cli


@pytest.fixture
def ruler_command(monkeypatch, capsys, tmp_path):
    """Run `ruler` in an empty folder; gives exit status, stdout and stderr."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["ruler", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            ruler.cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    return run
