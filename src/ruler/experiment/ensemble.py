"""Many models at once: all originals and oracles of a dataset, then all that one method unlearns."""

from collections.abc import Sequence
from functools import cache, partial
from itertools import islice
from typing import TypeVar

from ruler.core.errors import RulerError
from ruler.core.types import IndexArray
from ruler.data import TabularSplit
from ruler.experiment.cell import Workplace
from ruler.experiment.grid import Cell, Job
from ruler.experiment.protocol import choose_unlearning
from ruler.experiment.records import Records, load_parts, make_records, place_parts
from ruler.experiment.scores import Answers, Run, Scores, ask, ask_all
from ruler.training.ensemble import EnsembleMember, StackedMLP, train_ensemble
from ruler.unlearning import UnlearningSettings
from ruler.unlearning.ensemble import unlearn_ensemble

Draw = tuple[float, int]
"""Forget fraction and forget-set seed."""

Key = TypeVar("Key")

_AT_ONCE_BYTES = 1 << 30
"""Products and representations of models that are asked at once, on a device that gains by it."""


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
        self._unlearned: dict[Cell, tuple[StackedMLP, int] | RulerError] = {}
        self._of_trained: dict[tuple[int, Draw | None, Draw], Answers | RulerError] = {}
        self._of_unlearned: dict[Cell, Answers | RulerError] = {}

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
        if cell not in self._of_unlearned:
            if cell not in self._unlearned:
                settings = choose_unlearning(cell)
                alike = [c for c in self._cells if c.method == cell.method and choose_unlearning(c) == settings]
                self._unlearn(alike, settings)
            self._ask_unlearned(cell)
        return _unwrap(self._of_unlearned.pop(cell))

    def audit_model(self, model: Answers, *, oracle: Answers, original: Answers | None = None) -> Scores:
        """Nothing: the tabular studies measure and test as the paper does."""
        return {}

    def _ask_trained(self, seed: int, left_out: Draw | None, draw: Draw) -> Answers:
        """What an original or an oracle says about a forget set; others of its kind are asked with it."""
        if (seed, left_out, draw) not in self._of_trained:
            models, place = self._trained()
            seeds = (seed, *(other for other, out in place if out == left_out and other != seed))
            members = {(other, left_out, draw): place[other, left_out] for other in seeds}
            for known in members.keys() & self._of_trained.keys():
                del members[known]
            self._of_trained |= self._ask(models, members, draw)
        return _unwrap(self._of_trained[seed, left_out, draw])

    def _ask_unlearned(self, cell: Cell) -> None:
        """Ask the model of a cell, and with it others of the same method and forget set."""
        found, draw = self._unlearned[cell], _draw_of(cell)
        if isinstance(found, RulerError):
            self._of_unlearned[cell] = found
        else:
            members = {cell: found[1]}
            for other, place in self._unlearned.items():
                if not isinstance(place, RulerError) and place[0] is found[0] and _draw_of(other) == draw:
                    members[other] = place[1]
            self._of_unlearned |= self._ask(found[0], members, draw)
        for asked in self._of_unlearned.keys() & self._unlearned.keys():
            del self._unlearned[asked]

    def _ask(self, models: StackedMLP, members: dict[Key, int], draw: Draw) -> dict[Key, Answers | RulerError]:
        """What the first of these members say, as many as suit the device; if one of them fails, it fails alone."""
        records = self._records(draw)
        few = dict(islice(members.items(), self._count_at_once(models, records)))
        runs: list[Run] = [partial(models.forward, member=member) for member in few.values()]
        found: Sequence[Answers | RulerError]
        try:
            found = ask_all(runs, records)
        except RulerError:
            found = [_ask_alone(run, records) for run in runs]
        return dict(zip(few, found, strict=True))

    def _count_at_once(self, models: StackedMLP, records: Records) -> int:
        """Models to ask at once: on a GPU as many as fit, on a CPU one by one."""
        if self._device == "cpu":
            return 1
        n_bytes = 8 * len(records.distinct) * (len(records.gallery) + 4 * models.shape.hidden)
        return max(1, _AT_ONCE_BYTES // n_bytes)

    @property
    def _parts(self) -> TabularSplit:
        return load_parts(self._cells[0].dataset)

    def _make_records(self, draw: Draw) -> Records:
        return make_records(self._parts, *draw, device=self._device)

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
        features, _, classes = place_parts(self._parts, self._device)
        return train_ensemble(features, classes, members), {key: i for i, key in enumerate(wanted)}

    def _forget_rows(self, draw: Draw) -> IndexArray:
        return self._records(draw).partition.forget

    def _unlearn(self, cells: Sequence[Cell], settings: UnlearningSettings) -> None:
        """Unlearn all cells at once; if one of them fails, each alone, so that it fails alone."""
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


def _draw_of(cell: Cell) -> Draw:
    return cell.forget_fraction, cell.forget_seed


def _ask_alone(run: Run, records: Records) -> Answers | RulerError:
    try:
        return ask(run, records)
    except RulerError as error:
        return error


def _unwrap(found: Answers | RulerError) -> Answers:
    if isinstance(found, RulerError):
        raise found
    return found
