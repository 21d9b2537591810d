"""How the models of a comparison are trained, unlearned and read, and how long that takes."""

import copy
import json
import statistics
import time
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ruler.core.errors import InputError
from ruler.core.types import Embeddings, IndexArray
from ruler.embeddings.bundle.checkpoints import find_factory
from ruler.embeddings.extract import embed
from ruler.experiment.cell import Workplace
from ruler.experiment.compare.data import VALIDATION, CompareData, cut_rows
from ruler.experiment.diagnostic import trainers
from ruler.experiment.diagnostic.data import DiagnosticData
from ruler.experiment.diagnostic.engine import strip_method
from ruler.experiment.diagnostic.trainers import (
    LOSS_BOUND,
    TRAINING,
    ClassifierTrainer,
    ModelOutputs,
    Trainer,
    make_trainer,
    repeat_exactly,
)
from ruler.experiment.grid import Cell
from ruler.training.classifier import predict, train_classifier
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import (
    METHODS,
    LanguageSettings,
    R2dSettings,
    ShortRetrainingSettings,
    UnlearningSettings,
    unlearn,
)
from ruler.unlearning.classifier.short_retraining import shorten_training

RELEARN_EPOCHS = 10
OTHER_SEED = 10_000  # retraining as a method starts from other weights than any oracle
_LANGUAGE = ("bert_mlm", "causal_lm")

find_function = cache(find_factory)


def choose_training(cell: Cell) -> TrainingSettings:
    """The settings that a cell's original and oracle are trained with; a user's own model takes those of our first."""
    recipe = json.loads(cell.recipe)
    changes: dict[str, Any] = recipe["training"]
    if ":" in cell.architecture:
        cell = replace(cell, architecture="tabular_mlp" if recipe["data"]["kind"] == "table" else "small_cnn")
    return replace(trainers.choose_training(cell), **changes)


def choose_unlearning(cell: Cell) -> UnlearningSettings:
    """The method's settings: its defaults in batches of the training's size, or as the user says.

    Methods that train anew take the original's training, from weights of another seed than the oracle's, and short
    retraining a part of it; all take its precision. Methods for any model take the optimiser, rate and decay of methods
    for language models where the model is one.
    """
    kind: Any = METHODS[cell.method].settings
    training = choose_training(cell)
    chosen: dict[str, Any] = {"batch_size": cell.batch_size, "loss_bound": LOSS_BOUND, "precision": training.precision}
    if cell.architecture in _LANGUAGE:
        chosen["records_per_epoch"] = TRAINING[cell.architecture].records_per_epoch
        if not issubclass(kind, LanguageSettings):
            usual = LanguageSettings()
            chosen |= {name: getattr(usual, name) for name in ("learning_rate", "weight_decay", "optimizer")}
    if METHODS[cell.method].trains_anew:
        training = shorten_training(training) if issubclass(kind, ShortRetrainingSettings) else training
        chosen = {entry.name: getattr(training, entry.name) for entry in fields(TrainingSettings) if entry.init}
        chosen["seed"] = OTHER_SEED + cell.seed
    settings: UnlearningSettings = kind(**chosen | (json.loads(cell.options) if cell.options else {}))
    return settings


class ComparedClassifier(ClassifierTrainer):
    """Classifiers of a comparison.

    Args:
        code: Where the function that builds the model is looked for, if it is the user's own.
    """

    choose_training = staticmethod(choose_training)
    choose_unlearning = staticmethod(choose_unlearning)

    _data: CompareData

    def __init__(self, data: CompareData, device: str, code: Path) -> None:
        super().__init__(data, device)
        self._code = code
        self._rewound: dict[tuple[Cell, int, bytes], dict[str, torch.Tensor]] = {}

    def build(self, architecture: str) -> nn.Module:
        """A fresh model for these records, ours or the user's own."""
        return build_model(architecture, self._data, self._code) if ":" in architecture else super().build(architecture)

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method to the classifier.

        Where it waits for validation records, they are drawn from the retain records, which it then has none of. Where
        a class or a value is forgotten, no retain record is like those to forget.
        """
        settings: Any = self.prepare(cell, forget, retain)
        if settings.needs_validation and self._data.is_chosen is None:
            cut = cut_rows(retain, VALIDATION, self._data.groups, cell.seed)
            settings, retain = replace(settings, validation=self.pair(retain[cut.forget])), retain[cut.retain]
        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            return unlearn(cell.method, model, forget=self.pair(forget), retain=self.pair(retain), settings=settings)

    def prepare(self, cell: Cell, forget: IndexArray, retain: IndexArray) -> UnlearningSettings:
        """The method's settings; R2D's with a checkpoint of the original itself, whose training is repeated once."""
        settings = choose_unlearning(cell)
        if not isinstance(settings, R2dSettings) or settings.n_rewound == settings.epochs:
            return settings
        rows, n_before = np.sort(np.concatenate([forget, retain])), settings.epochs - settings.n_rewound
        key = strip_method(cell), n_before, rows.tobytes()
        if key not in self._rewound:
            self._rewound[key] = self._rewind(cell, rows, n_before)
        return replace(settings, checkpoint=self._rewound[key])

    def _rewind(self, cell: Cell, rows: IndexArray, n_epochs: int) -> dict[str, torch.Tensor]:
        """Weights of the model that was trained on these records, after some of its epochs."""
        models: list[nn.Module] = []
        kept: dict[str, torch.Tensor] = {}

        def build() -> nn.Module:
            models.append(self.make(cell.architecture))
            return models[0]

        def keep(epoch: int, loss: float) -> None:
            if epoch == n_epochs:
                kept.update({name: value.detach().clone() for name, value in models[0].state_dict().items()})

        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            train_classifier(build, self.pair(rows), seed=cell.seed, settings=choose_training(cell), on_epoch=keep)
        return kept

    def read_layers(self, model: nn.Module, rows: IndexArray) -> dict[str, Embeddings]:
        """Representations of some records in every block on the way to the head, in forward order."""
        found: dict[str, Embeddings] = embed(model, self.pair(rows)[0], layer="all", batch_size=trainers.READ_BLOCK)
        return found

    def relearn(self, cell: Cell, model: nn.Module, forget: IndexArray) -> list[float]:
        """Accuracy on the forget records after 0, 1, 2, ... epochs of training on them alone."""
        student, records = copy.deepcopy(model), self.pair(forget)
        found = []

        def look(epoch: int = 0, loss: float = 0.0) -> None:
            answers = predict(student, records)
            found.append(float((answers.logits.argmax(1) == answers.labels).mean()))

        look()
        settings = replace(choose_training(cell), epochs=RELEARN_EPOCHS, schedule="constant", augment="none")
        settings = replace(settings, loss_bound=LOSS_BOUND)
        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            optimize(student, cross_entropy, {"retain": records}, settings, seed=cell.seed, on_epoch=look)
        return found


def build_model(spec: str, data: DiagnosticData, code: Path) -> nn.Module:
    """A model that the user's own function ``module:function`` builds for these records.

    Raises:
        InputError: No such function, one that raises, or one that returns something else.
    """
    model = find_function(spec, "architecture", code)(*data.inputs.shape[1:], data.n_classes)
    if not isinstance(model, nn.Module):
        raise InputError(f"architecture {spec!r} must return a torch.nn.Module; got {type(model).__name__}.")
    return model


class TimedTrainer(Trainer):
    """A trainer that keeps how long each model took.

    Args:
        inner: Trains the models.
        device: Where.

    Attributes:
        seconds: (seed, number of records) -> what training took: of the processor, or of the clock on a GPU.
    """

    def __init__(self, inner: Trainer, device: str) -> None:
        self.inner, self._device = inner, device
        self.seconds: dict[tuple[int, int], float] = {}

    def tell_s(self) -> float:
        """The time, of this process's work on a CPU; elsewhere when the device is done."""
        if self._device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def tell_training_s(self, n_records: int) -> float:
        """What training on so many records takes: the median over the models of this job, whose times scatter."""
        return statistics.median(took for (_, n), took in self.seconds.items() if n == n_records)

    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """Train a model on these records."""
        started_s = self.tell_s()
        model = self.inner.train(cell, rows, seed)
        self.seconds[seed, len(rows)] = self.tell_s() - started_s
        return model

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method; retraining is the oracle's training from another seed."""
        if cell.method == "retrain" and not cell.options:
            return self.inner.train(cell, retain, OTHER_SEED + cell.seed)
        return self.inner.unlearn(cell, model, forget, retain)

    def read(self, model: nn.Module) -> ModelOutputs:
        """Read its representations and answers."""
        return self.inner.read(model)

    def read_peers(
        self, model: nn.Module, forget: IndexArray, held_out: IndexArray, original: nn.Module | None = None
    ) -> dict[str, Any]:
        """Read what peers' metrics are computed from."""
        return self.inner.read_peers(model, forget, held_out, original)

    def prepare(self, cell: Cell, forget: IndexArray, retain: IndexArray) -> None:
        """Make what the method would find stored, so that its time has none of it."""
        if isinstance(self.inner, ComparedClassifier):
            self.inner.prepare(cell, forget, retain)


def make_timed_trainer(data: CompareData, workplace: Workplace) -> TimedTrainer:
    """The trainer for these records, with the settings of a comparison."""
    if data.language is None:
        return TimedTrainer(ComparedClassifier(data, workplace.device, workplace.code or Path()), workplace.device)
    inner = make_trainer(data, workplace)
    inner.choose_training, inner.choose_unlearning = choose_training, choose_unlearning
    return TimedTrainer(inner, workplace.device)
