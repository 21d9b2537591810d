"""The engine of comparisons: the diagnostic one, with peers' metrics and the time that each method takes."""

import copy
import json
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from ruler.auditing.findings import Report
from ruler.core.types import Embeddings, IndexArray, Predictions
from ruler.experiment.cell import Scores, Workplace
from ruler.experiment.compare.data import CompareData, load_compared
from ruler.experiment.compare.settings import list_needed
from ruler.experiment.diagnostic import trainers
from ruler.experiment.diagnostic.engine import (
    AUDITED_ROWS,
    AUDITED_SEED,
    AuditableModel,
    DiagnosticEngine,
    ForgetDraw,
    draw_rows,
    find_draw,
    strip_method,
)
from ruler.experiment.diagnostic.trainers import LOSS_BOUND, ClassifierTrainer, ModelOutputs, repeat_exactly
from ruler.experiment.grid import Cell, Job
from ruler.metrics.peers import PEERS
from ruler.training.classifier import predict
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import METHODS, UnlearningSettings
from ruler.unlearning.distillation import make_random_teacher

RELEARN_EPOCHS = 10
OTHER_SEED = 10_000  # retraining as a method starts from other weights than any oracle
_LAYER = "representation"


def choose_training(cell: Cell) -> TrainingSettings:
    """The settings that a cell's original and oracle are trained with."""
    changes: dict[str, Any] = json.loads(cell.recipe)["training"]
    return replace(trainers.choose_training(cell), **changes)


def choose_unlearning(cell: Cell) -> UnlearningSettings:
    """The method's settings: its defaults in batches of the training's size, or as the user says.

    Retraining takes the original's training, from weights of another seed than the oracle's.
    """
    kind: Any = METHODS[cell.method].settings
    chosen: dict[str, Any] = {"batch_size": cell.batch_size, "loss_bound": LOSS_BOUND}
    if cell.method == "retrain":
        training = choose_training(cell)
        chosen = {entry.name: getattr(training, entry.name) for entry in fields(TrainingSettings) if entry.init}
        chosen["seed"] = OTHER_SEED + cell.seed
    settings: UnlearningSettings = kind(**chosen | (json.loads(cell.options) if cell.options else {}))
    return settings


class CompareTrainer(ClassifierTrainer):
    """Classifiers of a comparison; keeps how long each model took.

    Attributes:
        seconds: (seed, number of records) -> what training took: of the processor, or of the clock on a GPU.
    """

    choose_training = staticmethod(choose_training)
    choose_unlearning = staticmethod(choose_unlearning)

    def __init__(self, data: CompareData, device: str) -> None:
        super().__init__(data, device)
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
        """Train a classifier of the cell's architecture."""
        started_s = self.tell_s()
        model = super().train(cell, rows, seed)
        self.seconds[seed, len(rows)] = self.tell_s() - started_s
        return model

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method to the classifier; retraining is the oracle's training from another seed."""
        if cell.method == "retrain" and not cell.options:
            return super().train(cell, retain, OTHER_SEED + cell.seed)
        return super().unlearn(cell, model, forget, retain)

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


class CompareEngine(DiagnosticEngine):
    """The models of cells that share a comparison, a training seed and a forget set."""

    _data: CompareData
    _trainer: CompareTrainer

    def __init__(self, job: Job, workplace: Workplace) -> None:
        recipe = json.loads(job.cells[0].recipe)
        self._recipe = recipe
        self._metrics: tuple[str, ...] = tuple(recipe["metrics"])
        self._needed = list_needed(self._metrics)
        super().__init__(job, workplace)
        self._reports = workplace.reports
        self._reference = cache(self._make_reference)

    def _load(self, cell: Cell, workplace: Workplace) -> CompareData:
        return load_compared(self._recipe["data"], workplace.table)

    def _make_trainer(self, workplace: Workplace) -> CompareTrainer:
        return CompareTrainer(self._data, self._device)

    def measure_original(self, cell: Cell) -> AuditableModel:
        """Measure the original model of the cell's seed."""
        found = super().measure_original(cell)
        return replace(found, name=cell.name) if cell.method == "original" else found

    def measure_oracle(self, cell: Cell, seed: int) -> AuditableModel:
        """Measure the oracle; the original is trained before, so that the oracle's time has no start of torch in it."""
        self._original(strip_method(cell))
        return super().measure_oracle(cell, seed)

    def measure_unlearned(self, cell: Cell) -> AuditableModel:
        """Measure the original after the cell's method, and the time that the method takes."""
        partition, shared = self._cut(*find_draw(cell)), strip_method(cell)
        started_s = self._trainer.tell_s()
        model = self._trainer.unlearn(cell, self._original(shared), partition.forget, partition.retain)
        took: Scores = {
            "unlearning_s": self._trainer.tell_s() - started_s,
            "retraining_s": self._trainer.tell_training_s(len(partition.retain)),
        }
        measured = self._measure(shared, model, find_draw(cell))
        return replace(measured, alone=measured.alone | took, name=cell.name)

    def _keep(self, report: Report, model: AuditableModel) -> None:
        """Save the report of an audit, if asked to."""
        if self._reports is not None and model.name:
            report.save(self._reports / model.name)

    def _gather(self, outputs: ModelOutputs, part: IndexArray) -> Embeddings:
        return replace(super()._gather(outputs, part), ids=self._data.ids[part])

    def _measure(
        self,
        cell: Cell,
        model: nn.Module,
        draw: ForgetDraw,
        outputs: ModelOutputs | None = None,
        *,
        is_trained_on_all: bool = False,
    ) -> AuditableModel:
        outputs = outputs or self._trainer.read(model)
        measured = super()._measure(cell, model, draw, outputs, is_trained_on_all=is_trained_on_all)
        sides = measured.sides
        if self._data.is_chosen is not None:
            control = draw_rows(self._data.find_control(), AUDITED_ROWS, AUDITED_SEED)
            sides = (*sides[:2], self._gather(outputs, control))
        return replace(measured, sides=sides, given=self._give(cell, model, draw, outputs))

    def _give(self, cell: Cell, model: nn.Module, draw: ForgetDraw, outputs: ModelOutputs) -> dict[str, Any]:
        """What peers' metrics are computed from, as far as one of them needs it."""
        partition, held_out = self._cut(*draw), np.arange(self._data.n_train, len(self._data.inputs))
        parts = {"forget": partition.forget, "retain": partition.retain, "held_out": held_out}
        logits, labels, groups = outputs.logits, self._data.labels, self._data.groups
        assert logits is not None
        assert labels is not None
        given: dict[str, Any] = {"device": self._device if self._device != "cpu" else None}
        for side, rows in parts.items():
            given[f"{side}_predictions"] = Predictions(logits[rows], labels[rows])
            like = self._data.find_control() if side == "held_out" else rows
            few = draw_rows(like, AUDITED_ROWS, AUDITED_SEED)
            given[f"{side}_states"] = {_LAYER: outputs.rows[few].cpu().numpy()}
            given[f"{side}_groups"] = None if groups is None else groups[few]
        if "weights" in self._needed:
            given["weights"] = {name: value.detach().cpu().numpy() for name, value in model.named_parameters()}
        if "relearn_accuracies" in self._needed:
            given["relearn_accuracies"] = self._trainer.relearn(cell, model, partition.forget)
        if "random_" in self._needed:
            given["random_forget_predictions"] = self._reference(cell, "random", cell.seed, draw)[0]
        others = [seed for seed in self._recipe["seeds"] if seed != cell.seed]
        for kind in ("oracles", "originals"):
            if f"{kind}_" in self._needed and others:
                found = [self._reference(cell, kind, seed, draw) for seed in others]
                given[f"{kind}_forget_predictions"] = [forget for forget, _ in found]
                given[f"{kind}_held_out_predictions"] = [held_out for _, held_out in found]
        return given

    def _make_reference(self, cell: Cell, kind: str, seed: int, draw: ForgetDraw) -> tuple[Predictions, Predictions]:
        """What an untrained model, or an oracle or original of another seed, says of forget and held-out records."""
        cell = replace(cell, seed=seed)
        partition = self._cut(*draw)
        if kind == "random":
            model = make_random_teacher(self._original(cell), seed)
        elif kind == "originals":
            model = self._original(cell)
        else:
            model = self._trainer.train(cell, partition.retain, seed)
        held_out = np.arange(self._data.n_train, len(self._data.inputs))
        forget, control = (predict(model, self._trainer.pair(rows)) for rows in (partition.forget, held_out))
        return forget, control

    def _measure_peers(self, known: Mapping[str, AuditableModel]) -> Scores:
        """Values of peers' metrics, and why some have none; one that fails does not stop the others."""
        given = dict(known["unlearned"].given)
        for role in ("oracle", "original"):
            if role in known:
                given |= {f"{role}_{name}": value for name, value in known[role].given.items()}
        values: dict[str, float | None] = {}
        reasons = {}
        for name in self._metrics:
            try:
                found = PEERS[name].measure(given)
                values[name], reason = (found.value, found.reason) if math.isfinite(found.value) else (None, "")
                reason = reason or found.reason or ("" if values[name] is not None else "It is infinite.")
            except Exception as error:  # of a user's own, among others
                values[name], reason = None, f"{type(error).__name__}: {error}"
            if reason:
                reasons[name] = reason
        return {"peers": json.dumps(values), "reasons": json.dumps(reasons)}
