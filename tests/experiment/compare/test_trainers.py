"""Methods that a comparison runs otherwise than by their defaults: those that train anew."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ruler.data import partition_rows
from ruler.experiment.compare.settings import CompareSettings
from ruler.experiment.compare.trainers import ComparedClassifier, choose_training, choose_unlearning
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.classifier import train_classifier
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import METHODS, unlearn


@pytest.fixture
def compared(patients):
    wanted = CompareSettings(
        str(patients),
        target="sick",
        methods=["r2d", "sisa", "scrub_rewind", "short_retraining"],
        seeds=1,
        training={"epochs": 6, "learning_rate": 0.01},
    )
    data = wanted.load()
    cells = {cell.method: cell for cell in wanted.list_cells(data.n_train)}
    return data, ComparedClassifier(data, "cpu", Path()), cells


def test_methods_that_train_anew_take_the_training_of_the_original(compared):
    for name, cell in compared[2].items():
        if name in ("r2d", "sisa"):
            training, settings = choose_training(cell), choose_unlearning(cell)
            assert METHODS[name].trains_anew
            assert (settings.epochs, settings.learning_rate) == (training.epochs, training.learning_rate) == (6, 0.01)
            assert settings.optimizer == training.optimizer


def test_short_retraining_takes_a_part_of_the_training(compared):
    training, settings = (choose(compared[2]["short_retraining"]) for choose in (choose_training, choose_unlearning))
    assert (training.epochs, training.optimizer, settings.schedule) == (6, "adam", "one_cycle")
    assert (settings.epochs, settings.batch_size) == (1, training.batch_size)
    assert settings.learning_rate == pytest.approx(0.03)
    assert METHODS["short_retraining"].trains_anew


def test_methods_take_the_precision_of_the_training(patients):
    wanted = CompareSettings(str(patients), target="sick", methods=["ssd"], training={"precision": "bfloat16"})
    cells = wanted.list_cells(wanted.load().n_train)
    assert choose_unlearning(cells[1]).precision == "bfloat16"


def test_r2d_starts_from_a_checkpoint_of_the_original_itself(compared):
    data, trainer, cells = compared
    rows = np.arange(data.n_train)
    forget, retain = rows[:20], rows[20:]
    original = trainer.train(cells["original"], rows, 0)
    training = choose_training(cells["r2d"])
    early = train_classifier(
        lambda: TabularMLP(data.inputs.shape[1], data.n_classes),
        trainer.pair(rows),
        seed=0,
        settings=TrainingSettings(epochs=3, learning_rate=0.01, batch_size=training.batch_size),
    )
    settings = trainer.prepare(cells["r2d"], forget, retain)
    for name, value in early.state_dict().items():
        assert torch.equal(settings.checkpoint[name], value)
    found = trainer.unlearn(cells["r2d"], original, forget, retain)
    torch.manual_seed(settings.seed)
    optimize(
        early,
        cross_entropy,
        {"retain": trainer.pair(retain)},
        TrainingSettings(epochs=3, learning_rate=0.01, batch_size=training.batch_size),
        seed=settings.seed + 1,
    )
    for name, value in early.state_dict().items():
        assert torch.equal(found.state_dict()[name], value)
    assert json.loads(cells["r2d"].recipe)["training"]["epochs"] == 6


def test_scrub_rewinds_by_retain_records_that_it_is_not_trained_on(compared):
    data, trainer, cells = compared
    cell, rows = cells["scrub_rewind"], np.arange(data.n_train)
    forget, retain = rows[:20], rows[20:]
    original = trainer.train(cells["original"], rows, 0)
    few = partition_rows(len(retain), 0.1, seed=cell.seed)
    settings = replace(choose_unlearning(cell), validation=trainer.pair(retain[few.forget]))
    kept = trainer.pair(retain[few.retain])
    expected = unlearn("scrub_rewind", original, forget=trainer.pair(forget), retain=kept, settings=settings)
    found = trainer.unlearn(cell, original, forget, retain)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.state_dict().items())
    told = replace(cell, options='{"forget_error": 0.0}')
    settings = replace(choose_unlearning(told), validation=None)
    pairs = {"forget": trainer.pair(forget), "retain": trainer.pair(retain)}
    expected = unlearn("scrub_rewind", original, **pairs, settings=settings)
    found = trainer.unlearn(told, original, forget, retain)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in found.state_dict().items())
