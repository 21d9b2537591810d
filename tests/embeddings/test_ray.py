"""Shards on a cluster: the model is put once, a task declares its needs, and what is lost is told."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from tests.embeddings.bundle.language import build, save
from tests.neighbors.fake_ray import FakeRay, RayTaskError, WorkerCrashedError

from ruler.core.errors import ClusterError, DataMismatchError, InputError
from ruler.embeddings.ray import reading_on_ray
from ruler.embeddings.shards import embed_shards

ROWS = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
CPU = {"CPU": 1}


class FakeReadingRay(FakeRay):
    """Starts tasks as they are given; the last one started is the first one done."""

    def remote(self, function):
        def start(*arguments):
            self.pairs.append(arguments[-1].number)
            return partial(function, *arguments)

        def ask(**options):
            self.asked.append(options)
            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=ask)


@pytest.fixture
def in_worker(monkeypatch):
    """What a worker imports as ray."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda reference: reference[1]))


def make_model():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def read_bytes(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_shards_are_those_of_one_process_whatever_the_order(in_worker, tmp_path):
    ray = FakeReadingRay({"CPU": 2.0})
    embed_shards(make_model(), ROWS, tmp_path / "ray", layer="", shard_size=6, run=reading_on_ray(ray, CPU))
    embed_shards(make_model(), ROWS, tmp_path / "here", layer="", shard_size=6)
    assert read_bytes(tmp_path / "ray") == read_bytes(tmp_path / "here")
    assert len(ray.pairs) == 9
    assert ray.n_put == 1
    assert ray.most_under_way == 4  # two for each worker
    assert (ray.asked[0]["num_cpus"], ray.asked[0]["num_gpus"], ray.asked[0]["max_retries"]) == (1, 0, 10)


def test_a_model_in_a_folder_is_loaded_by_the_workers(tmp_path):
    save(build("llama"), tmp_path / "model")
    tokens = torch.randint(6, 60, (12, 5), generator=torch.Generator().manual_seed(0))
    ray, data = FakeReadingRay(), {"input_ids": tokens, "labels": tokens}
    embed_shards(tmp_path / "model", data, tmp_path / "ray", shard_size=5, run=reading_on_ray(ray, CPU))
    embed_shards(build("llama"), data, tmp_path / "here", shard_size=5)
    found, expected = read_bytes(tmp_path / "ray"), read_bytes(tmp_path / "here")
    assert found.keys() == expected.keys()
    assert ray.n_put == 0


def test_a_share_of_a_gpu_goes_with_the_device(tmp_path):
    ray = FakeReadingRay({"CPU": 4.0, "GPU": 1.0})
    for needs, device in (({"CPU": 1, "GPU": 0.5}, None), (CPU, "cuda")):
        with pytest.raises(InputError, match="device must be 'cuda' with a share of a GPU, and only then"):
            embed_shards(make_model(), ROWS, tmp_path / str(device), device=device, run=reading_on_ray(ray, needs))
    with pytest.raises(InputError, match="must have a node with 8 CPU for a job"):
        embed_shards(make_model(), ROWS, tmp_path / "None2", run=reading_on_ray(ray, {"CPU": 8}))


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (RayTaskError(DataMismatchError("rows must be")), DataMismatchError, "^rows must be$"),
        (RayTaskError(ValueError("odd")), RayTaskError, "traceback of odd"),
        (
            WorkerCrashedError("The worker died.\nCheck logs."),
            ClusterError,
            "WorkerCrashedError: The worker died. Take",
        ),
    ],
)
def test_what_a_task_raises_is_told(failure, kind, message, tmp_path):
    run = reading_on_ray(FakeReadingRay(failure=failure), CPU)
    with pytest.raises(kind, match=message):
        embed_shards(make_model(), ROWS, tmp_path, layer="", run=run)
