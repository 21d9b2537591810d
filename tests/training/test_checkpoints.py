import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from ruler.core.errors import CheckpointError, InputError
from ruler.core.types import Partition
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.checkpoints import (
    CheckpointStore,
    Recipe,
    describe_training,
    export_published,
    hash_arrays,
    import_published,
    name_published,
)
from ruler.training.settings import TrainingSettings

RECIPE = Recipe(architecture="a", data="d", rows="all", settings="{}", seed=0)
STATE = {"weight": torch.arange(6.0).reshape(2, 3), "steps": torch.tensor(3)}


def test_a_state_survives_the_round_trip_with_its_manifest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    assert RECIPE not in store
    path = store.save(RECIPE, STATE)
    assert RECIPE in store
    torch.testing.assert_close(store.load(RECIPE), STATE, atol=0, rtol=0)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["manifest"])["trainer"] == "loop 1 on cpu"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_tied_weights_can_be_stored(tmp_path: Path) -> None:
    first = nn.Linear(2, 2)
    model = nn.Sequential(first, first)
    store = CheckpointStore(tmp_path)
    store.save(RECIPE, model.state_dict())
    stored = store.load(RECIPE)
    assert stored.keys() == model.state_dict().keys()
    assert torch.equal(stored["0.weight"], first.weight)
    assert torch.equal(stored["1.weight"], first.weight)


def test_the_cache_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    assert CheckpointStore().folder == tmp_path / "models"


def test_everything_that_decides_the_weights_is_in_the_key() -> None:
    rows, labels = np.eye(4), np.arange(4) % 2
    settings = TrainingSettings()
    partition = Partition(forget=np.array([0]), retain=np.array([1, 2, 3]))
    other = Partition(forget=np.array([1]), retain=np.array([0, 2, 3]))
    recipes = [
        describe_training(nn.Linear(4, 2), rows, labels, partition=None, settings=settings, seed=0),
        describe_training(nn.Linear(4, 3), rows, labels, partition=None, settings=settings, seed=0),
        describe_training(nn.Linear(4, 2), rows + 1, labels, partition=None, settings=settings, seed=0),
        describe_training(nn.Linear(4, 2), rows, 1 - labels, partition=None, settings=settings, seed=0),
        describe_training(nn.Linear(4, 2), rows, labels, partition=partition, settings=settings, seed=0),
        describe_training(nn.Linear(4, 2), rows, labels, partition=other, settings=settings, seed=0),
        describe_training(nn.Linear(4, 2), rows, labels, partition=None, settings=settings, seed=1),
        describe_training(nn.Linear(4, 2), rows, labels, partition=None, settings=replace(settings, epochs=3), seed=0),
        describe_training(
            nn.Linear(4, 2), rows, labels, partition=None, settings=settings, seed=0, trainer="ensemble 1"
        ),
    ]
    assert len({recipe.key for recipe in recipes}) == len(recipes)


def test_settings_that_came_later_do_not_move_old_keys() -> None:
    rows, labels = np.eye(2), np.array([0, 1])

    def find_key(settings: TrainingSettings) -> str:
        return describe_training(nn.Linear(2, 2), rows, labels, partition=None, settings=settings, seed=0).key

    keys = {
        TrainingSettings(): "4ca8a9343641fb51329f1662d790dcd51b2b02aa0ce2bffb3ddc7fd696b0391d",
        TrainingSettings(batch_size=128): "624173d71bb6a62d9daa1de0d04035f953c80c8f508942b31d496d61e0014a38",
    }
    assert {settings: find_key(settings) for settings in keys} == keys
    changes: list[dict[str, Any]] = [
        {"precision": "bfloat16"},
        {"schedule": "cosine"},
        {"records_per_epoch": 1},
        {"augment": "crop"},
    ]
    changed = {find_key(TrainingSettings(**change)) for change in changes}
    assert len(changed - set(keys.values())) == len(changes)


def test_array_hashes_tell_types_shapes_and_borders_apart() -> None:
    zeros = np.zeros(4)
    variants = [(zeros,), (zeros.reshape(2, 2),), (zeros.astype(np.float32),), (zeros[:2], zeros[2:])]
    assert len({hash_arrays(*arrays) for arrays in variants}) == len(variants)


def spoil_tensor(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def replace_manifest(path: Path) -> None:
    save_file(STATE, path, {"manifest": "{}", "checksum": ""})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_tensor, "must match its checksum; got other tensors"),
        (cut_short, "must be a readable safetensors file"),
        (replace_manifest, r"must carry the manifest of its recipe; got '\{\}'"),
    ],
)
def test_a_spoilt_file_is_refused_and_then_trained_anew(tmp_path: Path, spoil: object, message: str) -> None:
    store = CheckpointStore(tmp_path)
    spoil(store.save(RECIPE, STATE))  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=message):
        store.load(RECIPE)
    with pytest.warns(RuntimeWarning, match="training anew"):
        store.get_or_train(RECIPE, lambda: STATE)
    torch.testing.assert_close(store.load(RECIPE), STATE, atol=0, rtol=0)


def test_a_missing_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="must be a readable safetensors file"):
        CheckpointStore(tmp_path).load(RECIPE)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    store = CheckpointStore(tmp_path)
    with pytest.raises(OSError, match="disk full"):
        store.save(RECIPE, STATE)
    assert list(store.path_of(RECIPE).parent.iterdir()) == []


def write_often(folder: str) -> None:
    store = CheckpointStore(folder)
    for _ in range(40):
        store.save(RECIPE, STATE)
        store.load(RECIPE)


def test_parallel_writers_never_show_each_other_a_torn_file(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        other = pool.submit(write_often, str(tmp_path))
        while not list(tmp_path.rglob("*.safetensors")) and not other.done():  # until it has loaded torch
            time.sleep(0.01)
        write_often(str(tmp_path))
        other.result()
    files = list(CheckpointStore(tmp_path).path_of(RECIPE).parent.iterdir())
    assert len(files) == 1


TRAIN_SEVERAL = """
import numpy as np, torch
from ruler.training.checkpoints import CheckpointStore
from ruler.training.classifier import train_tabular
from ruler.training.settings import TrainingSettings

def train_several(folder, n):
    torch.set_num_threads(1)
    rows = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(np.int64)
    for seed in range(n):
        train_tabular(rows, labels, seed=seed, settings=TrainingSettings(epochs=60), store=CheckpointStore(folder))
        print(seed, flush=True)
"""


@pytest.mark.usefixtures("one_thread")
def test_a_killed_run_keeps_its_finished_models_and_no_half_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"{TRAIN_SEVERAL}\ntrain_several({str(tmp_path)!r}, 1000)"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert len(finished) >= 3
    for path in finished:
        with safe_open(path, framework="pt") as file:
            assert len(list(file.keys())) == 6

    names: dict[str, Any] = {}
    exec(TRAIN_SEVERAL, names)
    names["train_several"](tmp_path, len(finished) + 1)
    now = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert len(now) == len(finished) + 1
    assert finished.items() <= now.items()


def test_processes_that_want_one_model_wait_for_the_first(tmp_path: Path) -> None:
    store, n_trained = CheckpointStore(tmp_path), []
    recipe = Recipe("Linear(2, 2)", data="d", rows="all", settings="{}", seed=0)

    def train() -> dict[str, torch.Tensor]:
        n_trained.append(1)
        time.sleep(0.2)
        return nn.Linear(2, 2).state_dict()

    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(lambda _: store.get_or_train(recipe, train), range(3)))
    assert len(n_trained) == 1
    assert all(torch.equal(state["weight"], states[0]["weight"]) for state in states)


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this must never run",)


@pytest.mark.parametrize("fraction", [None, 0.01, 0.1])
def test_a_model_survives_the_round_trip(tmp_path: Path, fraction: float | None) -> None:
    model = TabularMLP(5, n_classes=3, hidden=16)
    path = export_published(model, tmp_path / "new", "adult", 4, fraction)
    assert path.name == name_published("adult", 4, fraction)
    loaded = import_published(tmp_path / "new", "adult", 4, fraction)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), atol=0, rtol=0)
    assert not loaded.training


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"adult_seed0_orig\.pt must exist; got no such file"):
        import_published(tmp_path, "adult", 0)


def test_files_that_are_no_weights_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "adult_seed0_orig.pt"
    contents = (
        {"net.0.weight": torch.zeros(2, 2)},
        {"net.0.weight": torch.zeros(2, 2), "net.6.bias": torch.zeros(2)},
        Harmful(),
        [1, 2],
    )
    for content in contents:
        torch.save(content, path)
        with pytest.raises(CheckpointError, match="must hold the weights of a TabularMLP"):
            import_published(tmp_path, "adult", 0)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="must hold the weights of a TabularMLP"):
        import_published(tmp_path, "adult", 0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("fraction", [0.0, 0.005, 0.123, 1.0])
def test_fractions_without_a_file_name_are_refused(fraction: float) -> None:
    with pytest.raises(InputError, match=r"forget_fraction must be a whole percentage from 0\.01 to 0\.99"):
        name_published("adult", 0, fraction)
