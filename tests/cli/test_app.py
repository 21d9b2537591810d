import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import ruler
from ruler.cli.app import make_app

VERBS = ("demo", "audit", "verify", "keygen", "compare", "reproduce", "data list", "data fetch", "data check")


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


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_switches_have_no_type_beside_them(verb, invoke):
    assert "<bool>" not in invoke(*verb.split(), "--help").output


def test_help_of_audit_fits_100_lines(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    shown = CliRunner().invoke(make_app("audit"), ["audit", "-h"], env={"COLUMNS": "80"})
    assert len(shown.output.splitlines()) <= 100


@pytest.mark.parametrize("word", ["", "-h", "--help", "adit"])
def test_the_list_of_verbs_says_what_the_verbs_say(word, invoke):
    env = {"COLUMNS": "120", "NO_COLOR": "1"}
    assert CliRunner().invoke(make_app(word), ["-h"], env=env).output == invoke("-h").output


HEAVY = ("numpy", "scipy", "pandas", "sklearn", "torch", "transformers", "matplotlib", "ray", "datasets")


@pytest.mark.parametrize("words", [["--version"], ["-h"], ["audit", "-h"]])
def test_asking_loads_no_library_that_computes(words, run_python):
    assert _list_loaded(words, run_python) & set(HEAVY) <= ({"numpy"} if words[0] == "audit" else set())


def test_an_audit_of_arrays_loads_only_what_it_needs(random, tmp_path, run_python):
    for model in ("unlearned", "oracle"):
        (tmp_path / model).mkdir()
        for side, n in (("forget", 30), ("retain", 120), ("held_out", 30)):
            np.save(tmp_path / model / f"{side}.npy", random.normal(size=(n, 4)))
    folders = [f"--{model}={tmp_path / model}" for model in ("unlearned", "oracle")]
    loaded = _list_loaded(["audit", *folders, f"--out={tmp_path / 'report'}", "--quiet"], run_python)
    assert {"numpy", "scipy.special", "pandas"} <= loaded
    assert not loaded & {"scipy.stats", "sklearn", "torch", "transformers", "matplotlib", "ray", "datasets"}


def _list_loaded(words, run_python):
    code = (
        f"import sys; sys.argv = ['ruler', *{words!r}]\nfrom ruler.cli import main\ntry:\n    main()\n"
        "except SystemExit:\n    pass\nprint('\\nloaded:', *sys.modules)"
    )
    return set(run_python(code).partition("\nloaded:")[2].split())


@pytest.mark.parametrize(("line", "found"), [("ruler au", "audit"), ("ruler audit --lim", "--limit")])
def test_shells_complete_verbs_and_options(line, found):
    n_words = len(line.split())
    asked = {"_RULER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(n_words - 1)}
    code = "import sys; sys.argv = ['ruler']; from ruler.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [found]
