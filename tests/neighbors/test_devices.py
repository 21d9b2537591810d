import numpy as np
import pytest
import torch

from ruler import audit_models, find_neighbors
from ruler.core.errors import InputError
from ruler.neighbors import blocks
from ruler.neighbors.devices import list_devices


def test_named_devices_share_a_search(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
    monkeypatch.setattr(blocks, "MOST_ROWS", 64)  # so that there is more than one task
    monkeypatch.setattr(blocks, "search_pair", watched := Watched(blocks.search_pair))
    found = find_neighbors(rows, rows, k=2, exclude_self=True, device="cpu,cpu:0")
    whole = find_neighbors(rows, rows, k=2, exclude_self=True)
    assert (found.index == whole.index).all()
    assert found.similarity.tobytes() == whole.similarity.tobytes()
    assert watched.devices == {"cpu", "cpu:0"}


def test_a_device_may_be_torchs_own():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    found, named = (find_neighbors(rows, rows, k=2, device=device) for device in (torch.device("cpu"), "cpu"))
    np.testing.assert_array_equal(found.index, named.index)


class Watched:
    def __init__(self, work):
        self.work, self.devices = work, set()

    def __call__(self, pair):
        self.devices.add(pair.device)
        return self.work(pair)


@pytest.mark.gpu
def test_all_gpus_give_the_answer_of_the_processor():
    rows = np.random.default_rng(0).normal(size=(300_000, 16)).astype(np.float32)
    whole = find_neighbors(rows[:500], rows, k=2, device="cpu")
    for device in ("cuda:all", "cuda:0,cuda:0"):
        found = find_neighbors(rows[:500], rows, k=2, device=device)
        assert (found.index == whole.index).all()
        assert found.similarity.tobytes() == whole.similarity.tobytes()


def test_models_run_on_the_first_device():
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    sides = {name: (torch.randn(30, 4, generator=generator), torch.arange(30) % 2) for name in ("forget", "held_out")}
    sides["retain"] = (torch.randn(60, 4, generator=generator), torch.arange(60) % 2)
    one, several = (audit_models(model, **sides, device=device) for device in ("cpu", "cpu:0,cpu"))
    assert one.metrics["m4"].value == several.metrics["m4"].value


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:0,,cuda:1", "between commas"),
        ("cuda:all,cpu", "single devices between commas"),
        ("cpu,cuda:all", "single devices between commas"),
        ("xpu:all", "must be on this machine; got '.?xpu:all"),
        ("cuda:all:all", "must be on this machine; got '.?cuda:all:all"),
    ],
)
def test_devices_that_are_not_there_are_refused(device, message):
    with pytest.raises(InputError, match=message):
        list_devices(device)
    with pytest.raises(InputError, match=message):
        find_neighbors(np.eye(3), np.eye(3), device=f" {device} ")
