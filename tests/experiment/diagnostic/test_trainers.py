"""What a trainer of classifiers promises: the same weights every time, and the caller's torch as it was."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from ruler.experiment.diagnostic import trainers
from ruler.experiment.diagnostic.data import DiagnosticData
from ruler.experiment.diagnostic.trainers import ClassifierTrainer, repeat_exactly
from ruler.experiment.grid import Cell
from ruler.models import MODELS

N_TRAIN, N_FORGET = 512, 64
ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def make_trainer(architecture: str, device: str) -> ClassifierTrainer:
    random = np.random.default_rng(0)
    shape = (3, 32, 32) if architecture in ("small_cnn", "resnet18") else (28,)
    labels = np.arange(N_TRAIN + 64) % 2
    inputs = (random.normal(size=(len(labels), *shape)) + labels.reshape(-1, *(1 for _ in shape))).astype(np.float32)
    return ClassifierTrainer(DiagnosticData(inputs, labels, None, N_TRAIN, 2), device)


def measure(trainer: ClassifierTrainer, cell: Cell) -> list[np.ndarray]:
    """Representations and losses of the model before and after unlearning."""
    rows = np.arange(N_TRAIN)
    original = trainer.train(cell, rows, seed=0)
    models = original, trainer.unlearn(cell, original, rows[:N_FORGET], rows[N_FORGET:])
    outputs = [trainer.read(model) for model in models]
    return [part for one in outputs for part in (one.rows.cpu().numpy(), one.losses)]


@pytest.mark.gpu
@ON_CUDA
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("architecture", ["tabular_mlp", "residual_mlp", "ft_transformer", "small_cnn", "resnet18"])
def test_a_gpu_gives_the_same_bits_every_time(architecture: str, precision: str) -> None:
    dataset = "cifar10" if architecture in ("small_cnn", "resnet18") else "higgs"
    cell = Cell("images", dataset, "neggrad_plus", 0.05, 0, 1e-3, 32, architecture=architecture, precision=precision)
    first, again = (measure(make_trainer(architecture, "cuda"), replace(cell, size="smoke")) for _ in "ab")
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("architecture", "has_pooling"), [("tabular_mlp", False), ("small_cnn", True)])
def test_training_and_unlearning_are_made_to_repeat(
    architecture: str, has_pooling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    @contextmanager
    def note(device: str, *, has_pooling: bool) -> Iterator[None]:
        asked.append((device, has_pooling))
        yield

    monkeypatch.setattr(trainers, "repeat_exactly", note)
    cell = Cell("any", "higgs", "fine_tuning", 0.05, 0, 1e-3, 256, architecture=architecture, size="smoke")
    measure(make_trainer(architecture, "cpu"), cell)
    assert asked == [("cpu", has_pooling)] * 2


def test_models_are_read_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)  # its settings are there without it
    trainer, seen = make_trainer("small_cnn", "cpu"), []
    model = MODELS["small_cnn"]((3, 32, 32), 2)
    model.register_forward_pre_hook(
        lambda *given: seen.append((read_precision_of_convolutions(), torch.backends.cudnn.deterministic))
    )
    trainer.read(model)
    assert set(seen) == {("ieee", True)}


def read_precision_of_convolutions() -> str:
    cudnn = torch.backends.cudnn
    return str(cudnn.conv.fp32_precision) if hasattr(cudnn, "conv") else ("tf32" if cudnn.allow_tf32 else "ieee")


def test_torch_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)  # its settings are there without it
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    with repeat_exactly("cuda"):
        assert torch.are_deterministic_algorithms_enabled()
        with repeat_exactly("cuda", has_pooling=True):
            assert torch.backends.cudnn.deterministic
    with repeat_exactly("cpu"):
        assert not torch.are_deterministic_algorithms_enabled()
    assert before == (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark)
