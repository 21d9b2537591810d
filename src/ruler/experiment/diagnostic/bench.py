"""The models of one diagnostic job, each made when first asked for, and what is measured of them."""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from ruler.core.types import Embeddings, FloatArray, IndexArray, Partition
from ruler.experiment.cell import Workplace
from ruler.experiment.diagnostic.groups import Surroundings, compare_with_placebos, count_groups, survey
from ruler.experiment.diagnostic.labs import ClassifierLab, Lab, Reading
from ruler.experiment.diagnostic.material import Material, load_material
from ruler.experiment.diagnostic.verdict import Sides, audit_sides
from ruler.experiment.grid import Cell, Job
from ruler.experiment.records import BASELINE_ROWS, BASELINE_SEED, GALLERY_ROWS
from ruler.experiment.scores import Answers, Scores, divide_by_norms
from ruler.metrics.outputs import balance_membership
from ruler.metrics.paper import rank_within
from ruler.neighbors import find_neighbors, searching_on
from ruler.training.checkpoints import CheckpointStore

AUDITED_ROWS = 5000
"""Most retain, and most held-out, records without groups that an audit within a study reads: a random draw of them."""

_AUDITED_SEED = 43
_ACCURACIES = {
    "forget_accuracy": "forget_accuracy",
    "retain_accuracy": "retain_accuracy",
    "held_out_accuracy": "test_accuracy",
}
"""What an audit calls them -> their column in the row."""

_N_GROUPS = {"single": 1, "pair": 2}  # of the choices that take a number of groups, whatever they hold
Draw = tuple[float, int, str]
"""Forget fraction, seed and choice of a forget set."""


@dataclass(frozen=True, eq=False)
class DiagnosticAnswers(Answers):
    """What one model says, with what an audit compares.

    Args:
        sides: Forget, retain and held-out records with their losses, labels and groups.
    """

    sides: Sides


class DiagnosticBench:
    """The models of cells that share a dataset, an architecture and a training seed.

    Args:
        job: The cells.
        workplace: Names device, cache and language model.
    """

    def __init__(self, job: Job, workplace: Workplace) -> None:
        first = job.cells[0]
        self._device = workplace.device
        self._material = load_material(first.dataset, first.size, workplace.language_model)
        self._lab = _open_lab(first, self._material, workplace)
        self._cut = cache(self._material.cut)
        self._original = cache(self._train_original)
        self._read_original = cache(lambda shared: self._lab.read(self._original(shared)))
        self._answer_original = cache(
            lambda shared, draw: self._answer(self._read_original(shared), draw, is_trained_on_all=True)
        )
        self._answer_oracle = cache(self._make_oracle)

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        return len(self._cut(*_draw_of(cell)).forget)

    def ask_original(self, cell: Cell) -> Answers:
        """The original model of the cell's seed."""
        return self._answer_original(_shared(cell), _draw_of(cell))

    def ask_oracle(self, cell: Cell, seed: int) -> Answers:
        """The oracle of this seed for the cell's forget set."""
        return self._answer_oracle(replace(_shared(cell), seed=seed), _draw_of(cell))

    def ask_unlearned(self, cell: Cell) -> Answers:
        """The original after the cell's method."""
        partition = self._cut(*_draw_of(cell))
        model = self._lab.unlearn(cell, self._original(_shared(cell)), partition.forget, partition.retain)
        return self._answer(self._lab.read(model), _draw_of(cell))

    def audit_model(self, model: Answers, *, oracle: Answers, original: Answers | None = None) -> Scores:
        """The audit's own verdict on a model."""
        given = {"unlearned": model, "oracle": oracle, "original": original}
        known = {name: answers for name, answers in given.items() if isinstance(answers, DiagnosticAnswers)}
        with searching_on(self._device):
            return audit_sides(
                **{name: answers.sides for name, answers in known.items()},
                outputs={
                    name: {accuracy: float(answers.alone[column]) for accuracy, column in _ACCURACIES.items()}
                    for name, answers in known.items()
                },
            )

    def _train_original(self, cell: Cell) -> nn.Module:
        return self._lab.train(cell, np.arange(self._material.n_train), cell.seed)

    def _make_oracle(self, cell: Cell, draw: Draw) -> Answers:
        return self._answer(self._lab.read(self._lab.train(cell, self._cut(*draw).retain, cell.seed)), draw)

    def _answer(self, reading: Reading, draw: Draw, *, is_trained_on_all: bool = False) -> Answers:
        partition = self._cut(*draw)
        held_out = np.arange(self._material.n_train, len(self._material.inputs))
        rows = reading.rows
        around = self._survey(rows, partition, is_trained_on_all)
        is_gallery = around is not None and not is_trained_on_all  # all retain records, each searched already
        reference = around.neighbors.similarity[:, 0] if around is not None and is_gallery else None
        alone: Scores = {
            **_score_outputs(reading, partition, held_out),
            **self._score_ranks(rows, partition, held_out, reference),
        }
        if around is not None:
            alone |= self._score_groups(around, partition, draw, float(alone["m4"]))
        if self._material.language is not None:
            alone["model"] = self._material.language.description
        baseline = _draw(partition.retain, BASELINE_ROWS, BASELINE_SEED)
        audited = (partition.forget, *(self._choose_audited(part) for part in (partition.retain, held_out)))
        return DiagnosticAnswers(
            compared=divide_by_norms(rows[np.append(partition.forget, baseline)].double().cpu().numpy()),
            n_forget=len(partition.forget),
            alone=alone,
            sides=tuple(self._gather(reading, part) for part in audited),
        )

    def _gather(self, reading: Reading, part: IndexArray) -> Embeddings:
        """Some records as an audit takes them; their row in the material is their name."""
        labels, groups = self._material.labels, self._material.groups
        return Embeddings(
            reading.rows[part].cpu().numpy(),
            ids=part,
            labels=None if labels is None else labels[part],
            losses=reading.losses[part],
            groups=None if groups is None else groups[part],
        )

    def _choose_audited(self, part: IndexArray) -> IndexArray:
        """What an audit gets of a side: all where records have groups, or it could miss the copies of a record."""
        return part if self._material.groups is not None else _draw(part, AUDITED_ROWS, _AUDITED_SEED)

    def _survey(self, rows: Any, partition: Partition, is_trained_on_all: bool) -> Surroundings | None:
        """The records whose groups could take the forget role, if there are groups.

        In the original every training group could have been drawn; in the other models only those that were kept.
        """
        groups = self._material.groups
        if groups is None:
            return None
        among = np.arange(self._material.n_train) if is_trained_on_all else partition.retain
        return survey(rows[among], groups[among])

    def _score_ranks(
        self, rows: Any, partition: Partition, held_out: IndexArray, reference: FloatArray | None
    ) -> Scores:
        """M4 of the forget records, and of held-out records in the same gallery."""
        is_capped = self._material.groups is None  # where groups matter, a cap would hide the neighbours in question
        gallery = partition.retain[:GALLERY_ROWS] if is_capped else partition.retain
        if reference is None:
            reference = find_neighbors(rows[gallery], rows[gallery], exclude_self=True).similarity[:, 0]
        ranks = {
            name: rank_within(find_neighbors(rows[part], rows[gallery]).similarity[:, 0], reference)
            for name, part in (("m4", partition.forget), ("m4_held_out", held_out))
        }
        return {name: float(values.mean()) for name, values in ranks.items()}

    def _score_groups(self, around: Surroundings, partition: Partition, draw: Draw, value: float) -> Scores:
        """Where M4 of the forget set lies among whole groups that take its role in the same model."""
        groups = self._material.groups
        assert groups is not None
        scores: Scores = {"n_groups": count_groups(groups, partition.forget)}
        return scores | compare_with_placebos(
            value, around, self._count_wanted(draw, partition), n_groups=_N_GROUPS.get(draw[2])
        )

    def _count_wanted(self, draw: Draw, partition: Partition) -> int:
        """Records that a placebo set grows to: where groups were drawn at random, as many as the forget set grew to."""
        fraction, _, choice = draw
        if choice != "random":
            return len(partition.forget)
        return math.ceil(fraction * self._material.scale * self._material.n_train)


def _score_outputs(reading: Reading, partition: Partition, held_out: IndexArray) -> Scores:
    sides = {"forget": partition.forget, "retain": partition.retain, "test": held_out}
    scores: Scores = {f"{side}_accuracy": float(reading.hits[rows].mean()) for side, rows in sides.items()}
    scores["mia"] = balance_membership(reading.losses[partition.forget], reading.losses[held_out])
    return scores


def _open_lab(cell: Cell, material: Material, workplace: Workplace) -> Lab:
    if material.language is not None:
        from ruler.experiment.diagnostic.language import LanguageLab

        return LanguageLab(material, workplace.device, CheckpointStore(workplace.models))
    return ClassifierLab(material, workplace.device)


def _shared(cell: Cell) -> Cell:
    """The cell without what its original and its oracle do not depend on: equal for all that share them."""
    return replace(
        cell,
        method="original",
        forget_fraction=0.0,
        forget_seed=0,
        forget_choice="random",
        learning_rate=None,
        teacher_seed=None,
        other_seed=None,
    )


def _draw_of(cell: Cell) -> Draw:
    return cell.forget_fraction, cell.forget_seed, cell.forget_choice


def _draw(rows: IndexArray, most: int, seed: int) -> IndexArray:
    if len(rows) <= most:
        return rows
    return rows[np.random.RandomState(seed).choice(len(rows), most, replace=False)]
