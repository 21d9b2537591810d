"""`ruler reproduce`: words in, settings out; results and their report in one folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ruler.cli.reproduce as module
from ruler.cli.app import make_app
from ruler.core import progress
from ruler.core.cluster import ClusterSettings
from ruler.core.errors import RulerError
from ruler.experiment.executors import LocalExecutor, RayExecutor
from ruler.experiment.grid import Cell
from ruler.experiment.run import Progress, RunSettings, Summary
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import ResultStore

# Processes of a shell's background ignore Ctrl-C; those of a terminal do not.
HEED_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
DONE = Summary(n_cells=4, n_done=4, n_new=1, failures={}, elapsed_s=75.0)


class Recorder:
    """Stands in for the run, and keeps what it was asked for."""

    def __init__(self, answer: Summary | BaseException = DONE) -> None:
        self.answer = answer
        self.studies: tuple[StudySettings, ...] = ()
        self.settings: RunSettings | None = None

    def __call__(self, studies: tuple[StudySettings, ...], settings: RunSettings, *, on_progress: Any) -> Summary:
        self.studies, self.settings = studies, settings
        settings.out.mkdir(exist_ok=True)
        ResultStore(settings.out / "results.sqlite").close()
        for n_done in (0, 1):
            on_progress(Progress(n_done=n_done, n_cells=4, share=0.25 * n_done))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(module, "run_studies", recorder)
    return recorder


def run(out: Path, *words: str) -> Any:
    return CliRunner().invoke(make_app(), ["reproduce", *words, "--out", str(out / "results")])


def test_words_become_settings(recorder: Recorder, tmp_path: Path) -> None:
    result = run(
        tmp_path, "primary", "--datasets", "adult", "magic", "--seeds", "3", "--methods", "scrub", "--methods",
        "fine_tuning", "--forget-fractions", "0.05", "0.2", "--jobs", "2", "--engine", "protocol",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (study,) = recorder.studies
    assert (study.datasets, study.seeds, study.engine) == (("adult", "magic"), (0, 1, 2), "protocol")
    assert (study.methods, study.forget_fractions) == (("fine_tuning", "scrub"), (0.05, 0.2))
    assert recorder.settings == RunSettings(out=tmp_path / "results", executor=LocalExecutor(2))
    assert "4 of 4 cells, 1 new, in 0:01:15" in result.output


def test_the_ensemble_is_the_default_and_published_models_are_the_protocols(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "export_models", lambda *_: None)
    for words, engine in (
        ([], "ensemble"),
        (["--device", "cuda"], "ensemble"),
        (["--export-checkpoints", str(tmp_path)], "protocol"),
        (["--checkpoints", str(tmp_path)], "protocol"),
    ):
        result = run(tmp_path, "primary", *words)
        assert result.exit_code == 0, result.output
        assert recorder.studies[0].engine == engine
    assert recorder.studies[0].models == "imported"
    assert recorder.settings is not None
    assert recorder.settings.checkpoints == tmp_path


def test_a_cluster_is_asked_for_by_name(recorder: Recorder, tmp_path: Path) -> None:
    run(tmp_path, "primary", "--executor", "ray", "--job-cpus", "2", "--job-gpus", "0.5")
    assert recorder.settings is not None
    assert recorder.settings.executor == RayExecutor(None, ClusterSettings(job_cpus=2, job_gpus=0.5))
    run(tmp_path, "primary")
    assert recorder.settings.executor == LocalExecutor()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["primary", "--smoke"], "smoke must be used with a diagnostic study"),
        (["primari"], "Did you mean 'primary'"),
        (["primary", "--datasets", "adlut"], "Did you mean 'adult'"),
        (["primary", "--methods", "bad_teacher"], "methods must name one that the study runs"),
        (["primary", "--executor", "slurm"], "local, ray; got 'slurm'"),
        (["primary", "--job-gpus", "0.5"], "--job-gpus must be used with --executor ray; got --executor local"),
        (["primary", "--executor", "ray", "--job-cpus", "0"], "job-cpus must be a whole number of at least 1"),
        (["primary", "--jobs", "0"], "jobs must be a whole number of at least 1"),
        (["primary", "--device", "cuda", "--engine", "protocol"], "device must be cpu for the engine protocol"),
        (["primary", "--checkpoints", "/no/such/folder"], "checkpoints must be a folder"),
        (["images", "--engine", "ensemble"], "engine must be omitted for diagnostic studies"),
        (["images", "--export-checkpoints", "models"], "export-checkpoints must be used with models of the engine"),
        (["primary", "--engine", "ensemble", "--export-checkpoints", "models"], "on the CPU with --engine protocol"),
        (["primary", "--engine", "ensemble", "--checkpoints", "models"], "engine must be 'protocol' for mini batches"),
    ],
)
def test_misuse_is_said_before_anything_runs(
    recorder: Recorder, tmp_path: Path, words: list[str], message: str
) -> None:
    result = run(tmp_path, *words)
    assert isinstance(result.exception, RulerError)
    assert message in str(result.exception)
    assert recorder.settings is None


def test_failed_cells_are_shown_and_end_with_2(recorder: Recorder, tmp_path: Path) -> None:
    cell = Cell("primary", "adult", "scrub", 0.05, 7, 5e-4)
    recorder.answer = Summary(n_cells=4, n_done=3, n_new=3, failures={cell: "DivergedError: loss"}, elapsed_s=5000.0)
    result = run(tmp_path, "primary")
    assert result.exit_code == 2
    assert "3 of 4 cells, 3 new, in 1:23:20" in result.output
    assert "1 cells failed; run the same command again to retry them" in result.output
    assert "primary adult scrub 0.05 seed 7: DivergedError: loss" in result.output


def test_an_interrupt_says_how_to_resume(recorder: Recorder, tmp_path: Path) -> None:
    recorder.answer = KeyboardInterrupt()
    result = run(tmp_path, "primary")
    assert result.exit_code == 130
    assert "run the same command again to resume" in result.output


def test_a_log_gets_a_line_now_and_then(recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cells: 25%" not in run(tmp_path, "primary").output
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    assert "1 of 4 cells: 25%, about 0.0 min left" in run(tmp_path, "primary").output


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(make_app(), ["reproduce", "--help"])
    assert "ruler reproduce primary --datasets breast_cancer heart_disease" in " ".join(result.output.split())


def test_ctrl_c_stops_workers_and_exits_with_130(tmp_path: Path) -> None:
    words = ["reproduce", "primary", "--datasets", "breast_cancer", "--seeds", "2", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", f"{HEED_SIGINT}; from ruler.cli import main; main()", *words],
        env=os.environ | {"RULER_CACHE": str(tmp_path / "cache")},
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    deadline_s = time.monotonic() + 60
    while not (tmp_path / "out" / "study.toml").is_file() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the whole group
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "run the same command again to resume" in said
    assert "Traceback" not in said
