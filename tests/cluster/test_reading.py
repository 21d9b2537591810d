"""Records read by a cluster's workers give the shards of one process, also if a node is lost on the way."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.machines import Machines
from tests.cluster.reading import RECORDS, SHARD_SIZE, make_model

from ruler.embeddings.shards import embed_shards

pytestmark = pytest.mark.cluster

PATIENCE_S = 240


def read_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_a_lost_node_costs_no_shard_and_no_bit(machines: Machines, tmp_path: Path) -> None:
    embed_shards(make_model(), RECORDS, tmp_path / "local", shard_size=SHARD_SIZE)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.reading", str(tmp_path / "ray")],
        env=machines.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + PATIENCE_S
    while not read_bytes(tmp_path / "ray"):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.05)
    n_before = len(read_bytes(tmp_path / "ray"))
    machines.kill(machines.nodes[-1])
    machines.nodes.append(machines.add())
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    found, expected = read_bytes(tmp_path / "ray"), read_bytes(tmp_path / "local")
    assert n_before < len(expected) == len(RECORDS[0]) / SHARD_SIZE
    assert found == expected
