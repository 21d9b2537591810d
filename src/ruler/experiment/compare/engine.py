"""The engine of comparisons: the diagnostic one, with peers' metrics and the time that each method takes."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from ruler.auditing.findings import Report
from ruler.core.errors import RulerError
from ruler.core.types import Embeddings, IndexArray, Predictions
from ruler.experiment.cell import Scores, Workplace
from ruler.experiment.compare import SEVERAL, explain_missing, list_needed
from ruler.experiment.compare.choice import Rehearsal, choose_settings, cut_rehearsal, rehearse
from ruler.experiment.compare.data import CompareData, load_compared
from ruler.experiment.compare.trainers import ComparedClassifier, TimedTrainer, make_timed_trainer
from ruler.experiment.diagnostic.data import Completing
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
from ruler.experiment.diagnostic.trainers import ModelOutputs
from ruler.experiment.grid import Cell, Job
from ruler.metrics.peers import PEERS
from ruler.training.classifier import predict
from ruler.unlearning.distillation import make_random_teacher

_LAYER = "representation"
PEER_ROWS = 1000
"""Most records of each side whose states peers' metrics read: probes fit a matrix of all pairs of them."""


class CompareEngine(DiagnosticEngine):
    """The models of cells that share a comparison, a training seed and a forget set."""

    _data: CompareData
    _trainer: TimedTrainer

    def __init__(self, job: Job, workplace: Workplace) -> None:
        self._recipe = json.loads(job.cells[0].recipe)
        self._metrics: tuple[str, ...] = tuple(self._recipe["metrics"])
        self._needed = list_needed(self._metrics)
        data = load_compared(self._recipe["data"], workplace.table, workplace.language_model)
        super().__init__(job, workplace, data, make_timed_trainer(data, workplace))
        self._reports = workplace.reports
        self._reference = cache(self._make_reference)
        self._rehearsal = cache(self._rehearse)
        self._why_no_layers = ""

    def measure_original(self, cell: Cell) -> AuditableModel:
        """Measure the original model of the cell's seed."""
        found = super().measure_original(cell)
        if cell.method != "original":
            return found
        return replace(found, given={**found.given, **self._give_shadows(cell)}, name=cell.name)

    def measure_oracle(self, cell: Cell, seed: int) -> AuditableModel:
        """Measure the oracle; the original is trained before, so that the oracle's time has no start of torch in it."""
        self._original(strip_method(cell))
        return super().measure_oracle(cell, seed)

    def measure_unlearned(self, cell: Cell) -> AuditableModel:
        """Measure the original after the cell's method, and the time that the method takes."""
        partition, shared = self._cut(*find_draw(cell)), strip_method(cell)
        chosen, choice = choose_settings(cell, lambda: self._rehearsal(shared, find_draw(cell)), self._trainer)
        self._trainer.prepare(chosen, partition.forget, partition.retain)
        started_s = self._trainer.tell_s()
        model = self._trainer.unlearn(chosen, self._original(shared), partition.forget, partition.retain)
        took: Scores = {
            "choice": choice,
            "unlearning_s": self._trainer.tell_s() - started_s,
            "retraining_s": self._trainer.tell_training_s(len(partition.retain)),
        }
        measured = self._measure(shared, model, find_draw(cell))
        given = {**measured.given, **self._give_shadows(chosen)}
        return replace(measured, alone=measured.alone | took, given=given, name=cell.name)

    def _rehearse(self, cell: Cell, draw: ForgetDraw) -> Rehearsal:
        partition = self._cut(*draw)
        parts = cut_rehearsal(partition.retain, len(partition.forget), self._data.groups)
        return rehearse(cell, self._trainer, parts)

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
        layers, given = measured.layers, self._give_states(outputs, draw)
        if isinstance(self._trainer.inner, ComparedClassifier):
            layers = self._read_layers(self._trainer.inner, model, draw)
            given |= self._give_answers(cell, model, draw, outputs)
        given |= measured.given
        if "weights" in self._needed:
            given["weights"] = {name: value.detach().cpu().numpy() for name, value in model.named_parameters()}
        return replace(measured, sides=sides, layers=layers, given=given)

    def _read_layers(self, trainer: ComparedClassifier, model: nn.Module, draw: ForgetDraw) -> dict[str, Any]:
        """Forget and held-out records by layer; none, with the reason, where a model's layers cannot be told."""
        sides = (self._cut(*draw).forget, self._data.find_control())
        few = [draw_rows(rows, AUDITED_ROWS, AUDITED_SEED) for rows in sides]
        try:
            found = trainer.read_layers(model, np.concatenate(few))
        except RulerError as error:
            self._why_no_layers = str(error)
            return {}
        return {name: (one.values[: len(few[0])], one.values[len(few[0]) :]) for name, one in found.items()}

    def _give_states(self, outputs: ModelOutputs, draw: ForgetDraw) -> dict[str, Any]:
        """States and groups of a draw of records per side, of every kind of model."""
        partition, groups = self._cut(*draw), self._data.groups
        sides = {"forget": partition.forget, "retain": partition.retain, "held_out": self._data.find_control()}
        given: dict[str, Any] = {"device": self._device if self._device != "cpu" else None}
        for side, rows in sides.items():
            few = draw_rows(rows, PEER_ROWS, AUDITED_SEED)
            given[f"{side}_states"] = {_LAYER: outputs.rows[few].cpu().numpy()}
            given[f"{side}_groups"] = None if groups is None else groups[few]
            given[f"{side}_labels"] = None if self._data.labels is None else self._data.labels[few]
        if isinstance(self._data.language, Completing):  # read by layer, see `CausalTrainer.read_peers`
            given = {name: given[name] for name in ("device", "forget_groups")}
        return given

    def _give_answers(self, cell: Cell, model: nn.Module, draw: ForgetDraw, outputs: ModelOutputs) -> dict[str, Any]:
        """What a classifier says, as far as one of the metrics needs it."""
        partition, held_out = self._cut(*draw), np.arange(self._data.n_train, len(self._data.inputs))
        parts = {"forget": partition.forget, "retain": partition.retain, "held_out": held_out}
        logits, labels = outputs.logits, self._data.labels
        assert logits is not None
        assert labels is not None
        given: dict[str, Any] = {
            f"{side}_predictions": Predictions(logits[rows], labels[rows]) for side, rows in parts.items()
        }
        if "relearn_accuracies" in self._needed and isinstance(self._trainer.inner, ComparedClassifier):
            given["relearn_accuracies"] = self._trainer.inner.relearn(cell, model, partition.forget)
        if "random_" in self._needed:
            given["random_forget_predictions"] = self._reference(cell, "random", cell.seed, draw)[0]
        others = [seed for seed in self._recipe["seeds"] if seed != cell.seed]
        for kind in ("oracles", "originals"):
            if f"{kind}_" in self._needed:
                found = [self._reference(cell, kind, seed, draw) for seed in others]
                given[f"{kind}_forget_predictions"] = [forget for forget, _ in found]
                given[f"{kind}_held_out_predictions"] = [held_out for _, held_out in found]
        return given

    def _give_shadows(self, cell: Cell) -> dict[str, Any]:
        """What originals of the other seeds say of the forget records after the cell's method."""
        trainer, partition = self._trainer.inner, self._cut(*find_draw(cell))
        if "shadows_" not in self._needed or not isinstance(trainer, ComparedClassifier):
            return {}
        found = []
        for seed in (seed for seed in self._recipe["seeds"] if seed != cell.seed):
            other = replace(cell, seed=seed)
            model = self._original(strip_method(other))
            if cell.method != "original":
                model = self._trainer.unlearn(other, model, partition.forget, partition.retain)
            found.append(predict(model, trainer.pair(partition.forget)))
        return {"shadows_forget_predictions": found}

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
        assert isinstance(self._trainer.inner, ComparedClassifier)
        pair = self._trainer.inner.pair
        forget, control = (predict(model, pair(rows)) for rows in (partition.forget, held_out))
        return forget, control

    def _measure_peers(self, known: Mapping[str, AuditableModel]) -> Scores:
        """Values of peers' metrics, and why some have none; one that fails does not stop the others."""
        given = dict(known["unlearned"].given)
        for role in ("oracle", "original"):
            if role in known:
                given |= {f"{role}_{name}": value for name, value in known[role].given.items()}
        values: dict[str, float | None] = {}
        reasons = {"layers": self._why_no_layers} if self._why_no_layers else {}
        for name in self._metrics:
            values[name], reason = None, explain_missing(name, given)
            try:
                found = PEERS[name].measure(given)
                if math.isfinite(found.value):
                    values[name] = found.value
                elif math.isinf(found.value):
                    reason = "It is infinite."
                elif not reason:
                    is_of_several = any(need.startswith(SEVERAL) for need in PEERS[name].needs)
                    reason = found.reason + (" More seeds give more models." if is_of_several else "")
            except RulerError as error:
                reason = str(error)
            except Exception as error:  # of a user's own
                reason = f"{type(error).__name__}: {error}"
            if reason:
                reasons[name] = reason
        return {"peers": json.dumps(values), "reasons": json.dumps(reasons)}
