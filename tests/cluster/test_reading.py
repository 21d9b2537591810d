"""Records read by a cluster's workers give the shards of one process, also if a node is lost on the way."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.machines import Machines

pytest.importorskip("ray", reason="needs ray: pip install 'ruler-audit[cluster]'")
pytestmark = pytest.mark.cluster

SCRIPT = """
import sys
import time
import torch
import transformers
from ruler.core.cluster import ClusterSettings, connect, list_needs
from ruler.embeddings.ray import reading_on_ray
from ruler.embeddings.shards import embed_shards

class Slow(transformers.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        time.sleep(PAUSE)
        return super().forward(*args, **kwargs)

torch.manual_seed(0)
sizes = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
config = transformers.LlamaConfig(vocab_size=50, pad_token_id=0, bos_token_id=None, eos_token_id=1, **sizes)
tokens = torch.randint(2, 50, (240, 9))
labels = tokens.clone()
labels[:, :4] = -100
data = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
PAUSE = float(sys.argv[3])
model = Slow(config)
if sys.argv[1] == "local":
    embed_shards(model, data, sys.argv[2], shard_size=20)
else:
    needs = list_needs(ClusterSettings(), "cpu")
    with connect(1) as ray:
        embed_shards(model, data, sys.argv[2], shard_size=20, run=reading_on_ray(ray, needs))
"""
N_SHARDS = 12
PATIENCE_S = 240


def start(machines: Machines, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], env=machines.environment, stderr=subprocess.PIPE, text=True
    )


def read_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_a_lost_node_costs_no_shard_and_no_bit(machines: Machines, tmp_path: Path) -> None:
    local = start(machines, "local", str(tmp_path / "local"), "0")
    assert local.communicate(timeout=PATIENCE_S)[1] is not None
    assert local.returncode == 0
    process = start(machines, "ray", str(tmp_path / "ray"), "0.4")
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
    assert n_before < N_SHARDS
    found, expected = read_bytes(tmp_path / "ray"), read_bytes(tmp_path / "local")
    assert len(expected) == N_SHARDS
    assert found == expected
