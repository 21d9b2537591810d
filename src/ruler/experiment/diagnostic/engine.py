"""The engine of the diagnostic studies: any architecture in mini batches, measured as in the paper and audited."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.auditing import AuditSettings, audit_evidence, gather_evidence
from ruler.auditing.contrasts import OWN
from ruler.auditing.findings import SEEN, Report
from ruler.core.arithmetic import similarity_of_unit_rows
from ruler.core.types import Embeddings, IndexArray, Partition
from ruler.experiment.cell import (
    BASELINE_ROWS,
    BASELINE_SEED,
    GALLERY_ROWS,
    MeasuredModel,
    Scores,
    Workplace,
    divide_by_norms,
)
from ruler.experiment.diagnostic.data import Completing, DiagnosticData, load_data
from ruler.experiment.diagnostic.groups import compare_with_placebos, find_group_neighbors
from ruler.experiment.diagnostic.trainers import ModelOutputs, Trainer, make_trainer
from ruler.experiment.grid import Cell, Job
from ruler.metrics.outputs import balance_membership
from ruler.metrics.paper import rank_within
from ruler.metrics.peers import measure_peers
from ruler.metrics.peers.language import name_reference
from ruler.neighbors import find_neighbors
from ruler.stats.auc import measure_effect

if TYPE_CHECKING:
    from torch import nn

AUDITED_ROWS = 5000
"""Most retain, and most held-out, records without groups that an audit within a study reads: a random draw of them."""

AUDITED_SEED = 43
_AUDIT_SETTINGS = AuditSettings(n_permutations=999)  # hundreds of audits: enough draws for p below 0.01
_ACCURACIES = {
    "forget_accuracy": "forget_accuracy",
    "retain_accuracy": "retain_accuracy",
    "held_out_accuracy": "test_accuracy",
}
"""What an audit calls them -> their column in the row."""

_N_GROUPS = {"single": 1, "pair": 2}  # of the choices that take a number of groups, whatever they hold

ForgetDraw = tuple[float, int, str]
"""Forget fraction, seed and choice of a forget set."""


@dataclass(frozen=True, eq=False)
class AuditableModel(MeasuredModel):
    """What was measured of one model, with what an audit compares.

    Args:
        sides: Forget, retain and held-out records with their losses, labels and groups.
        layers: Forget and held-out records by layer, where all layers were read.
        given: What peers' metrics are computed from, for language models.
        name: Of the cell whose audit is saved; empty if it is not.
    """

    sides: tuple[Embeddings, ...]
    layers: Mapping[str, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


class DiagnosticEngine:
    """The models of cells that share a dataset, an architecture and a training seed.

    Args:
        job: The cells.
        workplace: Names device, cache and language model.
        data: Their records; None loads those of the dataset.
        trainer: Of their models; None makes the one for these records.
    """

    def __init__(
        self, job: Job, workplace: Workplace, data: DiagnosticData | None = None, trainer: Trainer | None = None
    ) -> None:
        first = job.cells[0]
        self._device = workplace.device
        self._data = data or load_data(first.dataset, first.size, workplace.language_model)
        self._trainer = trainer or make_trainer(self._data, workplace)
        everything = np.arange(self._data.n_train)
        train, read = self._trainer.train, self._trainer.read
        self._cut = cache(self._data.cut)
        self._original = cache(lambda cell: train(cell, everything, cell.seed))
        self._original_outputs = cache(lambda cell: read(self._original(cell)))
        self._measured_original = cache(
            lambda cell, draw: self._measure(
                cell, self._original(cell), draw, self._original_outputs(cell), is_trained_on_all=True
            )
        )
        self._measured_oracle = cache(
            lambda cell, draw: self._measure(cell, train(cell, self._cut(*draw).retain, cell.seed), draw)
        )

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        return len(self._cut(*find_draw(cell)).forget)

    def measure_original(self, cell: Cell) -> AuditableModel:
        """Measure the original model of the cell's seed."""
        return self._measured_original(strip_method(cell), find_draw(cell))

    def measure_oracle(self, cell: Cell, seed: int) -> AuditableModel:
        """Measure the oracle of this seed for the cell's forget set."""
        return self._measured_oracle(replace(strip_method(cell), seed=seed), find_draw(cell))

    def measure_unlearned(self, cell: Cell) -> AuditableModel:
        """Measure the original after the cell's method."""
        partition = self._cut(*find_draw(cell))
        model = self._trainer.unlearn(cell, self._original(strip_method(cell)), partition.forget, partition.retain)
        return self._measure(strip_method(cell), model, find_draw(cell))

    def audit(self, model: MeasuredModel, *, oracle: MeasuredModel, original: MeasuredModel | None = None) -> Scores:
        """Audit a model with held-out records as its control.

        Returns:
            ``verdict``; of what the model says (``outputs``) and what its layers hold (``layers``) the verdict and what
            remains, with its interval; of each contrast that decides its own verdict, effect (AUC) and p-value;
            ``seen``, the names of the contrasts by which training leaves a trace that can be seen; and
            ``damage_similarity`` and ``damage_skill``. What could not be measured is absent.
        """
        given = {"unlearned": model, "oracle": oracle, "original": original}
        known = {name: one for name, one in given.items() if isinstance(one, AuditableModel)}
        answers = {
            name: {accuracy: float(one.alone[column]) for accuracy, column in _ACCURACIES.items()}
            for name, one in known.items()
        }
        sides: dict[str, Any] = {name: one.sides for name, one in known.items()}
        search = partial(find_neighbors, device=self._device)
        evidence = gather_evidence(**sides, settings=_AUDIT_SETTINGS, search=search)
        report = audit_evidence(evidence, answers=answers, contrasts=OWN)
        self._keep(report, known["unlearned"])
        found: Scores = {"verdict": report.verdict}
        for family, own in (("outputs", report.outputs), ("layers", report.layers)):
            found[f"{family}_verdict"] = own.verdict
            if own.remaining is not None:
                numbers = {"": own.remaining.value, "_low": own.remaining.low, "_high": own.remaining.high}
                found |= {f"{family}_remaining{end}": number for end, number in numbers.items()}
        deciding = {name: metric for name, metric in report.metrics.items() if OWN[name].decides}
        for name, metric in deciding.items():
            found |= {
                f"{name}_verdict": metric.verdict,
                f"{name}_effect": metric.effect,
                f"{name}_p_value": metric.p_value,
            }
        found["seen"] = ",".join(
            name for name, one in deciding.items() if any(own.visibility >= SEEN for own in one.remaining.values())
        )
        if report.damage is not None:
            found |= {"damage_similarity": report.damage.similarity, "damage_skill": report.damage.skill}
        return found | compare_layers(known["unlearned"], known["oracle"]) | self._measure_peers(known)

    def _keep(self, report: Report, model: AuditableModel) -> None:
        """Do something with the whole report of a model: nothing, since rows hold what studies need."""

    def _measure_peers(self, known: Mapping[str, AuditableModel]) -> Scores:
        """Peers' metrics of a language model: ``peers``, JSON of metric -> value, null where it cannot be computed."""
        given = dict(known["unlearned"].given)
        if not given:
            return {}
        for role in ("oracle", "original"):
            if role in known:
                given |= name_reference(role, known[role].given)
        values = {name: found.value for name, found in measure_peers(given).items()}
        return {"peers": json.dumps({name: None if math.isnan(value) else value for name, value in values.items()})}

    def _measure(
        self,
        cell: Cell,
        model: "nn.Module",
        draw: ForgetDraw,
        outputs: ModelOutputs | None = None,
        *,
        is_trained_on_all: bool = False,
    ) -> AuditableModel:
        outputs = outputs or self._trainer.read(model)
        partition, data = self._cut(*draw), self._data
        held_out = np.arange(data.n_train, len(data.inputs))
        sides = {"forget": partition.forget, "retain": partition.retain, "test": held_out}
        alone: Scores = {f"{side}_accuracy": float(outputs.hits[rows].mean()) for side, rows in sides.items()}
        alone["mia"] = balance_membership(outputs.losses[partition.forget], outputs.losses[held_out])
        alone |= self._rank(outputs.rows, partition, held_out, draw, is_trained_on_all=is_trained_on_all)
        if data.language is not None:
            alone["model"] = data.language.description
        baseline = draw_rows(partition.retain, BASELINE_ROWS, BASELINE_SEED)
        patched = self._original(cell) if isinstance(data.language, Completing) else None
        audited = [partition.forget, partition.retain, held_out]
        if data.groups is None:  # otherwise all rows, since a sample could drop copies of a record
            audited[1:] = [draw_rows(part, AUDITED_ROWS, AUDITED_SEED) for part in audited[1:]]
        return AuditableModel(
            compared=divide_by_norms(outputs.rows[np.append(partition.forget, baseline)].double().cpu().numpy()),
            n_forget=len(partition.forget),
            alone=alone,
            sides=tuple(self._gather(outputs, part) for part in audited),
            layers={name: (rows[partition.forget], rows[held_out]) for name, rows in outputs.layers.items()},
            given=self._trainer.read_peers(model, partition.forget, held_out, patched),
        )

    def _gather(self, outputs: ModelOutputs, part: IndexArray) -> Embeddings:
        """Collect some records for an audit; their row in the data is their name."""
        labels, groups = self._data.labels, self._data.groups
        return Embeddings(
            outputs.rows[part].cpu().numpy(),
            ids=part,
            labels=None if labels is None else labels[part],
            losses=outputs.losses[part],
            groups=None if groups is None else groups[part],
        )

    def _rank(
        self, rows: Any, partition: Partition, held_out: IndexArray, draw: ForgetDraw, *, is_trained_on_all: bool
    ) -> Scores:
        """M4 of the forget records, of held-out records in the same gallery, and, if there are groups, of placebos.

        In the original every training group could have been drawn, so all of them are placebos; in the other models
        only those that were retained. If there are groups, a capped gallery would hide the neighbours in question.
        """
        groups, n_train = self._data.groups, self._data.n_train
        gallery = partition.retain if groups is not None else partition.retain[:GALLERY_ROWS]
        around = None
        if groups is not None:
            among = np.arange(n_train) if is_trained_on_all else partition.retain
            around = find_group_neighbors(rows[among], groups[among])
        if around is not None and not is_trained_on_all:  # its records are the gallery
            reference = around.neighbors.similarity[:, 0]
        else:
            reference = find_neighbors(rows[gallery], rows[gallery], exclude_self=True).similarity[:, 0]
        scores: Scores = {
            name: float(rank_within(find_neighbors(rows[part], rows[gallery]).similarity[:, 0], reference).mean())
            for name, part in (("m4", partition.forget), ("m4_held_out", held_out))
        }
        if groups is None or around is None:
            return scores
        fraction, _, choice = draw
        n_records = math.ceil(fraction * self._data.scale * n_train) if choice == "random" else len(partition.forget)
        scores["n_groups"] = len(np.unique(groups[partition.forget]))
        return scores | compare_with_placebos(float(scores["m4"]), around, n_records, n_groups=_N_GROUPS.get(choice))


def compare_layers(model: AuditableModel, oracle: AuditableModel) -> Scores:
    """M2's effect in every layer: how often a forget record is nearer to the oracle's than a held-out one is.

    Returns:
        ``layers``, JSON of layer -> AUC, in forward order; nothing where layers were not read.
    """
    found = {}
    for name, ours in model.layers.items():
        forget, held_out = (
            similarity_of_unit_rows(divide_by_norms(one), divide_by_norms(other))
            for one, other in zip(ours, oracle.layers[name], strict=True)
        )
        found[name] = round(measure_effect(forget, held_out).value, 6)
    return {"layers": json.dumps(found)} if found else {}


def strip_method(cell: Cell) -> Cell:
    """Strip a cell of what its original and its oracle do not depend on: equal for all cells that share them."""
    return replace(
        cell,
        method="original",
        forget_fraction=0.0,
        forget_seed=0,
        forget_choice="random",
        learning_rate=None,
        teacher_seed=None,
        other_seed=None,
        options="",
    )


def find_draw(cell: Cell) -> ForgetDraw:
    """What the cell's forget set depends on."""
    return cell.forget_fraction, cell.forget_seed, cell.forget_choice


def draw_rows(rows: IndexArray, most: int, seed: int) -> IndexArray:
    """All rows, or as many as allowed at random."""
    if len(rows) <= most:
        return rows
    return rows[np.random.RandomState(seed).choice(len(rows), most, replace=False)]
