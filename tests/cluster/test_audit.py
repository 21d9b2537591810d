"""`ruler audit --executor ray` gives the report of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: pip install 'ruler-audit[cluster]'")
pytestmark = pytest.mark.cluster

COMMAND = [sys.executable, "-c", "from ruler.cli import main; main()", "audit"]
PATIENCE_S = 240


def test_three_nodes_find_what_one_process_finds(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    rng = np.random.default_rng(0)
    shards = tmp_path / "retain"
    shards.mkdir()
    for name in ("a", "b", "c"):
        np.save(shards / f"{name}.npy", rng.normal(size=(400, 8)))
    for name in ("forget", "held_out"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(60, 8)))
    cluster = Cluster()
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=1, include_dashboard=False)
        reports = [audit(tmp_path, executor, cluster.address) for executor in ("local", "ray")]
    finally:
        cluster.shutdown()
    assert reports[0] == reports[1]


def audit(folder: Path, executor: str, address: str) -> dict[str, object]:
    files = [f"--unlearned-{side}={folder / name}" for side, name in SIDES.items()]
    command = [*COMMAND, *files, "--executor", executor, "--out", str(folder / executor)]
    environment = os.environ | {"RAY_ADDRESS": address}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, object] = json.loads((folder / executor / "report.json").read_text())
    return {part: report[part] for part in ("verdict", "metrics", "guards")}


SIDES = {"forget": "forget.npy", "retain": "retain", "held-out": "held_out.npy"}
