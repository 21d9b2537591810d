import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import ruler
from ruler.cli.app import app

VERBS = ("demo", "bench", "reproduce", "data list", "data fetch", "data check")


@pytest.fixture
def invoke(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb, invoke):
    done = invoke(*verb.split(), "--help")
    assert done.exit_code == 0
    assert f"Example: ruler {verb}" in done.output


def test_version(invoke):
    assert invoke("--version").output.strip() == f"ruler {ruler.__version__}"


def test_demo_trains_unlearns_and_measures(invoke, tmp_path):
    done = invoke("demo", "--out", str(tmp_path / "demo"))
    assert done.exit_code == 0, done.output
    metrics = json.loads((tmp_path / "demo" / "metrics.json").read_text())
    assert metrics["m1"] == pytest.approx(0.9959, abs=2e-3)
    assert metrics["m4"] == pytest.approx(0.625, abs=0.02)
    for name in metrics:
        assert name.upper() in done.output
    forget = np.load(tmp_path / "demo" / "unlearned_forget.npy")
    retain = np.load(tmp_path / "demo" / "unlearned_retain.npy")
    assert forget.shape == (22, 128)
    assert ruler.m4(forget, retain) == pytest.approx(metrics["m4"])


def test_misuse_is_one_line_and_exit_2():
    done = subprocess.run(
        [sys.executable, "-m", "ruler", "data", "check", "adlut"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Did you mean 'adult'?" in done.stderr
    assert "Traceback" not in done.stderr
