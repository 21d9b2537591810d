"""The GitHub Action: what it declares fits together, and its shell steps, run as a runner would, do what they say."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ruler

yaml = pytest.importorskip("yaml", reason="needs PyYAML to read action.yml")
ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
SHELL_STEPS = [step for step in STEPS.values() if "run" in step]


def test_every_input_is_described_optional_and_used():
    used = set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"]) + str(ACTION["outputs"])))
    assert used == ACTION["inputs"].keys()
    assert all(one["description"] and isinstance(one["default"], str) for one in ACTION["inputs"].values())
    assert ACTION["runs"]["using"] == "composite"
    steps = set(re.findall(r"steps\.([\w-]+)", str(ACTION["outputs"])))
    assert steps <= {step.get("id") for step in STEPS.values()}


def test_the_page_gives_inputs_that_there_are():
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    steps = [step for step in workflow["jobs"]["audit"]["steps"] if step.get("id") == "audit"]
    assert steps[0]["with"].keys() <= ACTION["inputs"].keys()
    assert set(re.findall(r"audit\.outputs\.(\w+)", page)) <= ACTION["outputs"].keys()


@pytest.mark.parametrize("step", SHELL_STEPS, ids=lambda step: step["name"])
def test_scripts_are_sound_and_no_input_becomes_part_of_one(step):
    assert step["shell"] == "bash"
    assert "${{" not in step["run"]
    assert all(f"${name}" in step["run"] for name in step["env"])
    assert subprocess.run(["bash", "-n"], input=step["run"], text=True, check=False).returncode == 0


@pytest.fixture
def run_step(tmp_path, monkeypatch):
    """Run a shell step as GitHub does; ``programs`` are scripts that stand before all others."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("output", "summary"):
        (tmp_path / name).touch()

    def run(name, programs, **inputs):
        for program, script in programs.items():
            path = tmp_path / "bin" / program
            path.write_text(f"#!/bin/bash\n{script}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        defaults = {key: one["default"] for key, one in ACTION["inputs"].items()}
        given = defaults | {key.replace("_", "-"): value for key, value in inputs.items()}
        for key, value in STEPS[name]["env"].items():
            monkeypatch.setenv(key, given[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]])
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
        (tmp_path / "step.sh").write_text(STEPS[name]["run"])
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    return run


PYTHON = f'exec {sys.executable} "$@"'
RULER = f'exec {sys.executable} -m ruler "$@"'
SHOW_WORDS = 'printf "<%s>" "$@"'


def test_the_package_is_installed_as_one_word(run_step):
    done = run_step("Install RULER", {"python": SHOW_WORDS}, package="ruler-audit[all] --index-url x; touch y")
    assert done.stdout.endswith("<--><ruler-audit[all] --index-url x; touch y>")


def test_inputs_become_words_of_the_command(run_step):
    done = run_step(
        "Audit",
        {"python": PYTHON, "ruler": SHOW_WORDS},
        config="my audit.toml",
        oracle="one\n\ntwo $(touch x)\n",
        original="before",
        allow_inconclusive="true",
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].startswith(
        "<audit><--out=ruler-audit-report><--also=sarif><--also=junit><--original=before><--oracle=one>"
        "<--oracle=two $(touch x)><--allow-inconclusive><--><my audit.toml>"
    )


def test_a_trace_fails_the_pipeline_and_leaves_its_report(run_step, tmp_path, rows):
    for model, shift in (("oracle", 0.0), ("unlearned", 3.0)):
        (tmp_path / model).mkdir()
        for side, part in zip(("forget", "retain", "held_out"), np.split(rows, [50, 150]), strict=True):
            np.save(tmp_path / model / f"{side}.npy", part + shift * (side == "forget") * rows[:1])
    done = run_step("Audit", {"python": PYTHON, "ruler": RULER}, unlearned="unlearned", oracle="oracle")
    report = ruler.Report.load(tmp_path / "ruler-audit-report")
    assert (done.returncode, report.verdict) == (1, "residual"), done.stderr
    assert (tmp_path / "output").read_text() == "verdict=residual\n"
    assert "RULER audit: RESIDUAL" in (tmp_path / "summary").read_text()
    lines = done.stdout.splitlines()
    assert lines[0].removeprefix("::stop-commands::") == lines[-1].strip(":")
    assert (tmp_path / "ruler-audit-report" / "junit.xml").is_file()


def test_a_misuse_fails_without_a_verdict(run_step, tmp_path):
    (tmp_path / "ruler-audit-report").mkdir()
    (tmp_path / "ruler-audit-report" / "report.json").write_text('{"verdict": "erased"}')  # of an earlier run
    done = run_step("Audit", {"python": PYTHON, "ruler": 'echo "got $*" >&2; exit 2'}, unlearned="nowhere")
    assert done.returncode == 2
    assert (tmp_path / "output").read_text() == ""
    assert "nowhere" in (tmp_path / "summary").read_text()
