import subprocess
import sys

import pytest
from typer.testing import CliRunner

import ruler
from ruler.cli.app import make_app

VERBS = ("demo", "audit", "verify", "keygen", "reproduce", "data list", "data fetch", "data check")


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *words: CliRunner().invoke(make_app(), list(words))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb, invoke):
    for option in ("--help", "-h"):
        done = invoke(*verb.split(), option)
        assert done.exit_code == 0
        assert f"Example: ruler {verb}" in done.output


def test_shells_can_complete_commands(invoke):
    assert "--install-completion" in invoke("--help").output


def test_version(invoke):
    assert invoke("--version").output.strip() == f"ruler {ruler.__version__}"


def test_the_verb_that_left_says_where_it_went(invoke):
    done = invoke("bench", "--quick", "--json", "bench.json")
    assert done.exit_code != 0
    assert "Run `make bench` in a checkout" in str(done.exception)
    assert "bench" not in invoke("--help").output


def test_a_verb_loads_no_other(run_python):
    code = (
        "import sys; from ruler.cli.app import make_app; make_app('audit'); "
        "print(*sorted(name for name in sys.modules if name.startswith('ruler.')))"
    )
    loaded = run_python(code).split()
    assert "ruler.cli.audit" in loaded
    for room in ("data", "experiment", "models", "paper", "training", "unlearning"):
        assert not [name for name in loaded if name.startswith(f"ruler.{room}")]


@pytest.mark.parametrize("verb", ["audit", "data", "reproduce"])
def test_a_verb_alone_says_what_it_says_among_all(verb, invoke, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    alone = CliRunner().invoke(make_app(verb), [verb, "--help"], env={"COLUMNS": "120"})
    assert alone.output == invoke(verb, "--help").output


def test_a_word_that_is_no_verb_is_answered_with_the_nearest(invoke):
    assert "Did you mean" in CliRunner().invoke(make_app("audti"), ["audti"]).output


def test_misuse_is_one_line_and_exit_2():
    done = subprocess.run(
        [sys.executable, "-m", "ruler", "data", "check", "adlut"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Did you mean 'adult'?" in done.stderr
    assert "Traceback" not in done.stderr
