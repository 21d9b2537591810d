"""The two engines of the tabular studies: the paper's loop, model by model on a CPU, and many models at once."""

from collections.abc import Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch

from ruler.core.determinism import one_thread
from ruler.core.errors import InputError, RulerError
from ruler.core.types import IndexArray, Partition
from ruler.data import TabularSplit
from ruler.experiment.cell import Engine, MeasuredModel, Workplace
from ruler.experiment.grid import Cell, Job
from ruler.experiment.settings import PAPER_FORGET_SEED, PAPER_RATE
from ruler.experiment.tabular.measure import Forward, Records, load_parts, make_records, measure_models, place_parts
from ruler.models.tabular_mlp import MaskReplay, TabularMLP, replay_masks
from ruler.training.checkpoints import CheckpointStore, export_published, import_published
from ruler.training.classifier import train_tabular
from ruler.training.ensemble import EnsembleMember, StackedMLP, train_ensemble
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, UnlearningSettings, unlearn
from ruler.unlearning.ensemble import unlearn_ensemble

ForgetDraw = tuple[float, int]
"""Forget fraction and forget-set seed."""

Key = TypeVar("Key")

_UNLEARNING_MASKS = MaskReplay()
"""Kept while a process works: methods have the same seed in all jobs."""

_AT_ONCE_BYTES = 1 << 30
"""Products and representations of models that are measured at once, on a device that gains by it."""


def choose_unlearning(cell: Cell) -> UnlearningSettings:
    """The method's settings at the cell's rate: epochs scale with it, as in the paper's study of rates.

    Example:
        >>> choose_unlearning(Cell("learning-rate", "adult", "scrub", 0.05, 0, 1e-4)).epochs
        2
    """
    kind: Any = METHODS[cell.method].settings
    rate = PAPER_RATE if cell.learning_rate is None else cell.learning_rate
    epochs = max(1, round(kind().epochs * rate / PAPER_RATE))
    teacher = {} if cell.teacher_seed is None else {"teacher_seed": cell.teacher_seed}
    settings: UnlearningSettings = kind(learning_rate=rate, epochs=epochs, batch_size=cell.batch_size, **teacher)
    return settings


class ProtocolEngine(Engine):
    """Trains model by model on a CPU; trained models come from the cache or from published files.

    Args:
        job: Cells of one dataset.
        workplace: Where models are kept or imported from.
    """

    def __init__(self, job: Job, workplace: Workplace) -> None:
        self._dataset, self._workplace = job.cells[0].dataset, workplace
        self._store = CheckpointStore(workplace.models)
        self._masks = MaskReplay()
        self._records = cache(lambda *draw: make_records(load_parts(self._dataset), *draw))
        self._original = cache(
            lambda seed, batch_size, source: (
                self._import(seed) if source == "imported" else self._train(seed, batch_size)
            )
        )
        self._measured_original = cache(lambda *key: self._measure(self._original(*key[:3]), self._records(*key[3:])))
        self._measured_oracle = cache(lambda *key: self._measure(self._make_oracle(*key), self._records(*key[3:])))

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        return len(self._records(*_draw_of(cell)).forget)

    def measure_original(self, cell: Cell) -> MeasuredModel:
        """Measure the original model of the cell's seed."""
        return self._measured_original(cell.seed, cell.batch_size, cell.models, *_draw_of(cell))

    def measure_oracle(self, cell: Cell, seed: int) -> MeasuredModel:
        """Measure the oracle of this seed for the cell's forget set."""
        return self._measured_oracle(seed, cell.batch_size, cell.models, *_draw_of(cell))

    def measure_unlearned(self, cell: Cell) -> MeasuredModel:
        """Measure the original after the cell's method."""
        records = self._records(*_draw_of(cell))
        forget, retain = (
            (records.parts.train_features[rows], records.parts.train_target[rows])
            for rows in (records.partition.forget, records.partition.retain)
        )
        original = self._original(cell.seed, cell.batch_size, cell.models)
        with replay_masks(_UNLEARNING_MASKS):
            model = unlearn(cell.method, original, forget=forget, retain=retain, settings=choose_unlearning(cell))
        assert isinstance(model, TabularMLP)  # unlearning works on a copy
        return self._measure(model, records)

    def export(self, cell: Cell, folder: Path) -> None:
        """Write the cell's original and oracle under the authors' file names."""
        key = cell.seed, cell.batch_size, cell.models
        export_published(self._original(*key), folder, cell.dataset, cell.seed)
        oracle = self._make_oracle(*key, *_draw_of(cell))
        export_published(oracle, folder, cell.dataset, cell.seed, cell.forget_fraction)

    def _make_oracle(
        self, seed: int, batch_size: int | None, source: str, fraction: float, forget_seed: int
    ) -> TabularMLP:
        if source == "imported" and forget_seed == PAPER_FORGET_SEED:
            return self._import(seed, fraction)
        return self._train(seed, batch_size, self._records(fraction, forget_seed).partition)

    def _train(self, seed: int, batch_size: int | None, partition: Partition | None = None) -> TabularMLP:
        parts = load_parts(self._dataset)
        with replay_masks(self._masks):
            return train_tabular(
                parts.train_features,
                parts.train_target,
                partition,
                seed=seed,
                settings=TrainingSettings(batch_size=batch_size),
                store=self._store,
            )

    def _import(self, seed: int, fraction: float | None = None) -> TabularMLP:
        folder = self._workplace.checkpoints
        if folder is None:
            raise InputError("checkpoints must name the folder that models are imported from; got None.")
        return import_published(folder, self._dataset, seed, fraction)

    @staticmethod
    def _measure(model: TabularMLP, records: Records) -> MeasuredModel:
        model.eval()

        @torch.inference_mode()
        def forward(rows: object) -> tuple[torch.Tensor, torch.Tensor]:
            representations = model.penultimate(torch.as_tensor(rows))
            return representations, model.net[-1](representations)

        return measure_models([forward], records)[0]


class EnsembleEngine(Engine):
    """Trains all originals and oracles of a dataset together, then unlearns all cells of a method together.

    On a CPU a model is trained and measured on one thread, several models at a time in training: no number depends on
    how many threads there are, or on the other cells of the job.

    Args:
        job: Cells of one dataset.
        workplace: Names the device.
    """

    def __init__(self, job: Job, workplace: Workplace) -> None:
        self._cells, self._device = job.cells, workplace.device
        self._records = cache(lambda draw: make_records(self._parts, *draw, device=self._device))
        self._trained = cache(self._train)
        self._unlearned: dict[Cell, tuple[StackedMLP, int] | RulerError] = {}
        self._measured_trained: dict[tuple[int, ForgetDraw | None, ForgetDraw], MeasuredModel | RulerError] = {}
        self._measured_unlearned: dict[Cell, MeasuredModel | RulerError] = {}

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        return len(self._records(_draw_of(cell)).forget)

    def measure_original(self, cell: Cell) -> MeasuredModel:
        """Measure the original model of the cell's seed."""
        return self._measure_trained(cell.seed, None, _draw_of(cell))

    def measure_oracle(self, cell: Cell, seed: int) -> MeasuredModel:
        """Measure the oracle of this seed for the cell's forget set."""
        return self._measure_trained(seed, _draw_of(cell), _draw_of(cell))

    def measure_unlearned(self, cell: Cell) -> MeasuredModel:
        """Measure the original after the cell's method; the first cell of a method runs it for all of its cells.

        With the model of a cell, others of the same method and forget set are measured.
        """
        if cell not in self._measured_unlearned:
            if cell not in self._unlearned:
                settings = choose_unlearning(cell)
                alike = [c for c in self._cells if c.method == cell.method and choose_unlearning(c) == settings]
                self._unlearn(alike, settings)
            found, draw = self._unlearned[cell], _draw_of(cell)
            if isinstance(found, RulerError):
                self._measured_unlearned[cell] = found
            else:
                members = {cell: found[1]}
                for other, place in self._unlearned.items():
                    if not isinstance(place, RulerError) and place[0] is found[0] and _draw_of(other) == draw:
                        members[other] = place[1]
                self._measured_unlearned |= self._measure(found[0], members, draw)
            for done in self._measured_unlearned.keys() & self._unlearned.keys():
                del self._unlearned[done]
        return _unwrap(self._measured_unlearned.pop(cell))

    def _measure_trained(self, seed: int, left_out: ForgetDraw | None, draw: ForgetDraw) -> MeasuredModel:
        """Measure an original or an oracle on a forget set, and others of its kind with it."""
        if (seed, left_out, draw) not in self._measured_trained:
            models, place = self._trained()
            seeds = (seed, *(other for other, out in place if out == left_out and other != seed))
            members = {(other, left_out, draw): place[other, left_out] for other in seeds}
            for known in members.keys() & self._measured_trained.keys():
                del members[known]
            self._measured_trained |= self._measure(models, members, draw)
        return _unwrap(self._measured_trained[seed, left_out, draw])

    def _measure(
        self, models: StackedMLP, members: dict[Key, int], draw: ForgetDraw
    ) -> dict[Key, MeasuredModel | RulerError]:
        """Measure the first of these members, as many as suit the device; if one fails, it fails alone."""
        records = self._records(draw)
        few = dict(islice(members.items(), count_at_once(records, models.shape.hidden)))
        forwards: list[Forward] = [partial(models.forward, member=member) for member in few.values()]
        with one_thread(torch):
            return dict(zip(few, _measure_each(forwards, records), strict=True))

    @property
    def _parts(self) -> TabularSplit:
        return load_parts(self._cells[0].dataset)

    def _train(self) -> tuple[StackedMLP, dict[tuple[int, ForgetDraw | None], int]]:
        """Train all originals and oracles that the cells need; return them and their places."""
        wanted: dict[tuple[int, ForgetDraw | None], None] = {}
        for cell in self._cells:
            for seed in (cell.seed, cell.other_seed):
                if seed is not None:
                    wanted[seed, _draw_of(cell)] = None
            if cell.method != "oracle":
                wanted[cell.seed, None] = None
        members = [EnsembleMember(seed, None if draw is None else self._forget_rows(draw)) for seed, draw in wanted]
        features, _, classes = place_parts(self._parts, self._device)
        return train_ensemble(features, classes, members), {key: i for i, key in enumerate(wanted)}

    def _forget_rows(self, draw: ForgetDraw) -> IndexArray:
        return self._records(draw).partition.forget

    def _unlearn(self, cells: Sequence[Cell], settings: UnlearningSettings) -> None:
        """Unlearn all cells at once; if that fails, each alone, so that one failure does not spoil the others."""
        models, place = self._trained()
        features, _, classes = place_parts(self._parts, self._device)
        try:
            unlearned = unlearn_ensemble(
                cells[0].method,
                models.select([place[cell.seed, None] for cell in cells]),
                features=features,
                labels=classes,
                forget=[self._forget_rows(_draw_of(cell)) for cell in cells],
                settings=settings,
            )
        except RulerError as error:
            if len(cells) == 1:
                self._unlearned[cells[0]] = error
            else:
                for cell in cells:
                    self._unlearn([cell], settings)
        else:
            self._unlearned.update({cell: (unlearned, i) for i, cell in enumerate(cells)})


def _measure_each(forwards: Sequence[Forward], records: Records) -> list[MeasuredModel | RulerError]:
    try:
        return [*measure_models(forwards, records)]
    except RulerError as error:
        if len(forwards) == 1:
            return [error]
        return [found for forward in forwards for found in _measure_each([forward], records)]


def count_at_once(records: Records, n_columns: int) -> int:
    """How many models to measure at once: on a GPU as many as fit, on a CPU one."""
    if records.distinct.device.type == "cpu":
        return 1
    return max(1, _AT_ONCE_BYTES // (8 * len(records.distinct) * (len(records.gallery) + 4 * n_columns)))


def _draw_of(cell: Cell) -> ForgetDraw:
    return cell.forget_fraction, cell.forget_seed


def _unwrap(found: MeasuredModel | RulerError) -> MeasuredModel:
    if isinstance(found, RulerError):
        raise found
    return found
