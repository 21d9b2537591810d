"""`ruler audit --executor ray` gives the report of one process."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cluster.machines import Machines

pytestmark = pytest.mark.cluster

COMMAND = "from ruler.cli import main; main()"
POISON = """from ruler.neighbors import ray
ray.MOST_RETRIES, ray.do_pair = 2, lambda *_: __import__('os')._exit(1)
"""
PATIENCE_S = 240


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    shards = tmp_path / "unlearned" / "retain"
    shards.mkdir(parents=True)
    for name in ("a", "b", "c"):
        np.save(shards / f"{name}.npy", rng.normal(size=(400, 8)))
    for name in ("forget", "held_out"):
        np.save(tmp_path / "unlearned" / f"{name}.npy", rng.normal(size=(60, 8)))
    return tmp_path


def test_three_nodes_find_what_one_process_finds(folder: Path, machines: Machines) -> None:
    reports = []
    for executor in ("local", "ray"):
        done = audit(folder, machines, "--executor", executor, "--out", str(folder / executor))
        assert done.returncode in (1, 3), done.stderr
        report = json.loads((folder / executor / "report.json").read_text())
        reports.append({part: report[part] for part in ("verdict", "metrics", "guards")})
    assert reports[0] == reports[1]


@pytest.mark.slow  # tests/neighbors/test_ray.py has it with a stand-in for Ray
def test_a_task_that_kills_its_workers_is_said_in_one_line(folder: Path, machines: Machines) -> None:
    done = audit(folder, machines, "--executor", "ray", command=POISON + COMMAND)
    assert done.returncode == 2
    message = "ruler: a task must end within 2 retries and the memory it has; got WorkerCrashedError: "
    assert done.stderr.splitlines()[-1].startswith(message)


def audit(folder: Path, machines: Machines, *options: str, command: str = COMMAND) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", command, "audit", f"--unlearned={folder / 'unlearned'}", *options]
    return subprocess.run(words, env=machines.environment, capture_output=True, text=True, timeout=PATIENCE_S)
