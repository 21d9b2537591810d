"""A disk that is full or read-only: one line, status 2, and nothing finished is lost. The disks are real ones."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.ruler_process import STUDY, run_ruler

from ruler.experiment.run import STUDY_FILE, RunSettings, run_studies
from ruler.experiment.settings import read_studies
from ruler.testing.executors import InProcessExecutor

FULL, READ_ONLY = "No space left on device", "Read-only file system"
ON_A_DISK = """
mount -t tmpfs -o "$1" tmpfs "$2" || exit 99
kept=$3; disk=$2; shift 3
"$@"; status=$?
cp -a "$disk" "$kept"
exit $status
"""


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder that a small file system of its own can be mounted on, in a namespace of its own."""
    (tmp_path / "disk").mkdir()
    words = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path / "disk")]
    if shutil.which("unshare") is None or subprocess.run(words, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs unshare and namespaces")
    return tmp_path / "disk"


def mount(disk: Path, options: str) -> tuple[str, ...]:
    """What to put before a command so that it sees a small disk; its content is copied to ``kept`` beside it."""
    return ("unshare", "-rm", "sh", "-c", ON_A_DISK, "sh", options, str(disk), str(disk.with_name("kept")))


def assert_one_line(done: "subprocess.CompletedProcess[str]", reason: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"must be writable; got: {reason}" in done.stderr


def test_an_audit_whose_report_does_not_fit_still_shows_its_verdict(disk: Path, model: Path, tmp_path: Path) -> None:
    words = ("audit", "--unlearned", model, "--out", disk / "report")
    done = run_ruler(*words, cache=tmp_path / "cache", before=mount(disk, "size=16k"))
    assert_one_line(done, FULL)
    assert "INCONCLUSIVE" in done.stdout
    assert os.listdir(tmp_path / "kept") == []


@pytest.mark.parametrize(
    "words", [["audit", "--unlearned", "{model}"], ["demo"], STUDY], ids=["audit", "demo", "study"]
)
def test_a_read_only_folder_is_refused_before_the_work(
    disk: Path, model: Path, tmp_path: Path, words: list[str]
) -> None:
    words = [word.format(model=model) for word in words]
    done = run_ruler(*words, "--out", disk / "out", cache=tmp_path / "cache", before=mount(disk, "size=1m,ro"))
    assert_one_line(done, READ_ONLY)
    assert done.stdout == ""


def test_a_download_into_a_read_only_cache_is_refused_before_it_starts(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "nothing"))
    done = run_ruler("data", "fetch", "cifar10", cache=disk / "cache", before=mount(disk, "size=1m,ro"))
    assert_one_line(done, READ_ONLY)


def test_a_study_on_a_full_disk_keeps_its_rows_and_resumes(disk: Path, tmp_path: Path) -> None:
    words = (*STUDY, "--seeds", "1")
    done = run_ruler(*words, "--out", disk, cache=tmp_path / "cache", before=mount(disk, "size=100k"))
    assert_one_line(done, "database or disk is full")
    assert "Finished cells are kept: the same command resumes." in done.stderr
    before = read_rows(tmp_path / "kept")
    assert before
    studies = read_studies(tmp_path / "kept" / STUDY_FILE)
    settings = RunSettings(tmp_path / "kept", InProcessExecutor(), models=tmp_path / "cache" / "models")
    again = run_studies(studies, settings)
    assert (again.n_cells, again.n_done, again.n_new) == (9, 9, 9 - len(before))
    assert before < read_rows(tmp_path / "kept")


def test_a_study_whose_models_do_not_fit_stops_at_the_first(disk: Path, tmp_path: Path) -> None:
    words = (*STUDY, "--seeds", "2", "--out", tmp_path / "out")
    done = run_ruler(*words, cache=disk, before=mount(disk, "size=16k"))
    assert_one_line(done, FULL)
    assert read_rows(tmp_path / "out") == set()


def read_rows(folder: Path) -> set[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "results.sqlite")) as connection:
        return set(connection.execute("SELECT * FROM results"))
