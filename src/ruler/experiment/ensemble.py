"""Many models at once: all originals and oracles of a dataset, then all that one method unlearns."""

from collections.abc import Sequence
from functools import cache, partial

import torch

from ruler.core.errors import RulerError
from ruler.core.types import IndexArray
from ruler.experiment.cell import Workplace
from ruler.experiment.grid import Cell, Job
from ruler.experiment.protocol import choose_unlearning
from ruler.experiment.records import Records, load_parts, make_records
from ruler.experiment.scores import Answers, Run, Scores, ask
from ruler.training.ensemble import EnsembleMember, StackedMLP, train_ensemble
from ruler.unlearning import UnlearningSettings
from ruler.unlearning.ensemble import unlearn_ensemble

Draw = tuple[float, int]
"""Forget fraction and forget-set seed."""


class EnsembleBench:
    """The models of a job, trained and unlearned together on one device.

    Args:
        job: Cells of one dataset.
        workplace: Names the device.
    """

    def __init__(self, job: Job, workplace: Workplace) -> None:
        self._cells, self._device = job.cells, workplace.device
        self._records = cache(self._make_records)
        self._trained = cache(self._train)
        self._ask_trained = cache(self._make_answers)
        self._features = cache(self._move_features)
        self._unlearned: dict[Cell, tuple[StackedMLP, int] | RulerError] = {}

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        return len(self._records(_draw_of(cell)).forget)

    def ask_original(self, cell: Cell) -> Answers:
        """The original model of the cell's seed."""
        return self._ask_trained(cell.seed, None, _draw_of(cell))

    def ask_oracle(self, cell: Cell, seed: int) -> Answers:
        """The oracle of this seed for the cell's forget set."""
        return self._ask_trained(seed, _draw_of(cell), _draw_of(cell))

    def ask_unlearned(self, cell: Cell) -> Answers:
        """The original after the cell's method; the first cell of a method runs it for all of its cells."""
        if cell not in self._unlearned:
            settings = choose_unlearning(cell)
            alike = [c for c in self._cells if c.method == cell.method and choose_unlearning(c) == settings]
            self._unlearn(alike, settings)
        found = self._unlearned.pop(cell)
        if isinstance(found, RulerError):
            raise found
        return self._ask(found[0], found[1], _draw_of(cell))

    def judge(self, model: Answers, oracle: Answers | None) -> Scores:
        """Nothing: the tabular studies measure and test as the paper does."""
        return {}

    def _ask(self, models: StackedMLP, member: int, draw: Draw) -> Answers:
        run: Run = partial(models.run_member, member=member)
        return ask(run, self._records(draw), gallery_device=self._device)

    def _make_answers(self, seed: int, left_out: Draw | None, draw: Draw) -> Answers:
        models, place = self._trained()
        return self._ask(models, place[seed, left_out], draw)

    def _make_records(self, draw: Draw) -> Records:
        return make_records(load_parts(self._cells[0].dataset), *draw)

    def _move_features(self) -> torch.Tensor:
        return torch.from_numpy(load_parts(self._cells[0].dataset).train_features).to(self._device)

    def _train(self) -> tuple[StackedMLP, dict[tuple[int, Draw | None], int]]:
        """All originals and oracles that the cells need, and their places."""
        wanted: dict[tuple[int, Draw | None], None] = {}
        for cell in self._cells:
            for seed in (cell.seed, cell.other_seed):
                if seed is not None:
                    wanted[seed, _draw_of(cell)] = None
            if cell.method != "oracle":
                wanted[cell.seed, None] = None
        members = [EnsembleMember(seed, None if draw is None else self._forget_rows(draw)) for seed, draw in wanted]
        target = load_parts(self._cells[0].dataset).train_target
        return train_ensemble(self._features(), target, members), {key: i for i, key in enumerate(wanted)}

    def _forget_rows(self, draw: Draw) -> IndexArray:
        return self._records(draw).partition.forget

    def _unlearn(self, cells: Sequence[Cell], settings: UnlearningSettings) -> None:
        """Unlearn all cells at once; if one of them fails, each alone, so that it fails alone."""
        models, place = self._trained()
        try:
            unlearned = unlearn_ensemble(
                cells[0].method,
                models.select([place[cell.seed, None] for cell in cells]),
                features=self._features(),
                labels=load_parts(self._cells[0].dataset).train_target,
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


def _draw_of(cell: Cell) -> Draw:
    return cell.forget_fraction, cell.forget_seed
