"""SIGTERM, and two runs on one folder: one line each, with its own status, and nothing finished is lost."""

import signal
import time
from pathlib import Path

import pytest
from tests.faults.kill import are_gone, is_worker, list_children
from tests.faults.ruler_process import STUDY, run_ruler, start_ruler

DEADLINE_S = 120.0
pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finding workers needs /proc")


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline_s, f"{path} must appear"
        time.sleep(0.02)


def wait_until_caught(pid: int) -> None:
    """Until the process is far enough to have a handler of its own."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigCgt" in line)
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        assert time.monotonic() < deadline_s, "ruler must catch SIGTERM"
        time.sleep(0.02)


def test_a_study_ends_on_sigterm_with_its_workers_and_keeps_other_runs_out_until_then(tmp_path: Path) -> None:
    words = (*STUDY, "--seeds", "30", "--out", tmp_path / "out")
    first = start_ruler(*words, cache=tmp_path / "cache")
    wait_for(tmp_path / "cache" / "models")  # a worker is at work
    workers = [pid for pid in list_children(first.pid) if is_worker(pid)]
    second = run_ruler(*words, cache=tmp_path / "cache")
    assert second.returncode == 2, second.stderr
    assert second.stderr.count("\n") == 1, second.stderr
    assert f"{tmp_path / 'out'} must be used by one run at a time; got another" in second.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 128 + signal.SIGTERM, said
    assert said == f"Stopped. What is finished is kept in {tmp_path / 'out'}: run the same command again to resume.\n"
    assert workers
    assert are_gone(workers)


def test_a_demo_ends_on_sigterm_in_one_line_and_leaves_no_half_report(tmp_path: Path) -> None:
    process = start_ruler("demo", "--out", tmp_path / "out", cache=tmp_path / "cache")
    wait_until_caught(process.pid)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert said == "ruler: stopped by SIGTERM; nothing that was finished is lost\n"
    assert not list(tmp_path.rglob(".writing-*"))
