"""A study -> its cells and the jobs that share models: pure, no data is touched."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import combinations, product

from ruler.data import DATASETS
from ruler.experiment.settings import StudySettings
from ruler.unlearning import METHODS

CELL_VERSIONS = {"protocol": 1, "ensemble": 1, "diagnostic": 4}
"""By engine, raised with every change that can move a number in its rows; part of each cell's key."""

_LATER_FIELDS = ("architecture", "forget_choice", "precision", "size")
"""Absent from the key at their defaults, so that rows from before they came stay finished."""

_TRAINING_EPOCHS, _UNLEARNING_EPOCHS = 50, 10
_STEP_COST = {"residual_mlp": 2, "ft_transformer": 10, "small_cnn": 4, "resnet18": 40, "bert_mlm": 100}
"""What a record costs in a training step, against one of the tabular MLP."""

_CHOSEN_FRACTION = 0.1
"""What the most frequent groups shall hold, whatever fractions a run takes; one or two alone hold what they hold."""

_MOST_RECORDS = 80_000  # that a diagnostic study trains on
_FIXED_ROWS = 1500  # what a model costs whatever its size, in rows: steps of a tiny set are bound by call overhead


@dataclass(frozen=True)
class Cell:
    """The smallest thing that is recorded and resumed: one row of the results.

    Args:
        method: An unlearning method, or ``original`` or ``oracle`` for a model before or without unlearning.
        learning_rate: Of unlearning; None for original and oracle.
        teacher_seed: Of Bad Teacher; None for others.
        other_seed: Second oracle of a pair; None for others.
        forget_choice: How whole groups were chosen to be forgotten.
        precision: Of diagnostic training; None elsewhere.
        size: ``smoke`` for a run on few records.

    Example:
        >>> cell = Cell("primary", "adult", "scrub", 0.05, 0, 5e-4)
        >>> len(cell.key)
        64
    """

    study: str
    dataset: str
    method: str
    forget_fraction: float
    seed: int
    learning_rate: float | None = None
    batch_size: int | None = None
    forget_seed: int = 999
    teacher_seed: int | None = None
    other_seed: int | None = None
    engine: str = "protocol"
    models: str = "trained"
    architecture: str = "tabular_mlp"
    forget_choice: str = "random"
    precision: str | None = None
    size: str = "full"

    @property
    def version(self) -> int:
        """Of the engine that measures it."""
        return CELL_VERSIONS.get(self.engine, 1)

    @cached_property
    def key(self) -> str:
        """SHA-256 of all fields and the version of the engine: the row's primary key."""
        values = asdict(self)
        for field in fields(self):
            if field.name in _LATER_FIELDS and values[field.name] == field.default:
                del values[field.name]
        content = json.dumps({"version": self.version, **values}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class Job:
    """Cells that share models, and so are best done one after the other by the same process.

    Example:
        >>> from ruler.experiment.studies import STUDIES
        >>> jobs = group_jobs(list_cells(STUDIES["primary"]))
        >>> len(jobs), len(jobs[0].cells), jobs[0].cells[0].dataset
        (100, 18, 'diabetes130')
    """

    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """What a person would call it."""
        first, n_seeds = self.cells[0], len({cell.seed for cell in self.cells})
        model = f"{first.architecture} " if first.engine == "diagnostic" else ""
        seeds = f"seed {first.seed}" if n_seeds == 1 else f"{n_seeds} seeds"
        return f"{first.study} {first.dataset} {model}{seeds}"

    @cached_property
    def cost(self) -> float:
        """Expected work in row passes; only its order and proportion count."""
        trained = {(c.seed, c.forget_seed, c.forget_fraction) for c in self.cells}
        trained |= {(c.other_seed, c.forget_seed, c.forget_fraction) for c in self.cells if c.other_seed is not None}
        originals = {c.seed for c in self.cells if c.method != "oracle"}
        unlearned = sum((c.learning_rate or 0) / 5e-4 for c in self.cells)
        epochs = _TRAINING_EPOCHS * (len(trained) + len(originals)) + _UNLEARNING_EPOCHS * unlearned
        n_records = DATASETS[self.cells[0].dataset].n_records
        if self.cells[0].engine == "diagnostic":
            return epochs * min(n_records, _MOST_RECORDS) * _STEP_COST.get(self.cells[0].architecture, 1)
        return epochs * (n_records + _FIXED_ROWS)


def list_cells(study: StudySettings) -> tuple[Cell, ...]:
    """All cells of a study, in the order of its settings, none twice.

    Example:
        >>> from ruler.experiment.studies import STUDIES
        >>> [len(list_cells(study)) for study in STUDIES.values()]
        [1800, 900, 450, 300, 1200, 3000, 210, 210, 135, 135]
    """
    return tuple(_generate_pairs(study) if study.compares_oracles else _generate_cells(study))


def _generate_cells(study: StudySettings) -> Iterator[Cell]:
    for dataset, architecture in product(study.datasets, study.architectures):
        if architecture not in DATASETS[dataset].architectures:
            continue
        is_control = DATASETS[dataset].is_control
        for (choice, fraction), forget_seed, seed in product(_list_choices(study), study.forget_seeds, study.seeds):
            for method, rate, teacher_seed in _list_methods(study, is_bare=is_control or choice != "random"):
                yield Cell(
                    study=study.name,
                    dataset=dataset,
                    method=method,
                    forget_fraction=fraction,
                    seed=seed,
                    learning_rate=rate,
                    batch_size=study.batch_size,
                    forget_seed=forget_seed,
                    teacher_seed=teacher_seed,
                    engine=study.engine,
                    models=study.models,
                    architecture=architecture,
                    forget_choice=choice,
                    precision=study.precision,
                    size=study.size,
                )


def _list_choices(study: StudySettings) -> list[tuple[str, float]]:
    """How groups are chosen, and what share of the records they shall hold; one row shows what another choice does."""
    at_random = [("random", fraction) for fraction in study.forget_fractions if "random" in study.forget_choices]
    return at_random + [(choice, _CHOSEN_FRACTION) for choice in study.forget_choices if choice != "random"]


def _list_methods(study: StudySettings, *, is_bare: bool = False) -> list[tuple[str, float | None, int | None]]:
    listed: list[tuple[str, float | None, int | None]] = []
    for method, rate in product(() if is_bare else study.methods, study.learning_rates):
        teachers = study.teacher_seeds if hasattr(METHODS[method].settings, "teacher_seed") else (None,)
        listed += [(method, rate, teacher) for teacher in teachers]
    references = [("oracle", None, None), ("original", None, None)] if study.has_reference_rows else []
    return listed + references


def _generate_pairs(study: StudySettings) -> Iterator[Cell]:
    models = [
        (dataset, architecture)
        for dataset, architecture in product(study.datasets, study.architectures)
        if architecture in DATASETS[dataset].architectures
    ]
    for (dataset, architecture), forget_seed, fraction in product(models, study.forget_seeds, study.forget_fractions):
        for seed, other_seed in combinations(study.seeds, 2):
            yield Cell(
                study=study.name,
                dataset=dataset,
                method="oracle",
                forget_fraction=fraction,
                seed=seed,
                batch_size=study.batch_size,
                forget_seed=forget_seed,
                other_seed=other_seed,
                engine=study.engine,
                models=study.models,
                architecture=architecture,
                precision=study.precision,
                size=study.size,
            )


def group_jobs(cells: Sequence[Cell]) -> tuple[Job, ...]:
    """Cells -> jobs: studies in their order, so that later ones find earlier models, each longest job first.

    Models one by one: a job holds a dataset, architecture, training seed and forget-set seed, whose original serves all
    its fractions. Pairs of oracles, and ensembles: a job holds a dataset.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        is_whole = cell.other_seed is not None or cell.engine == "ensemble"
        part = () if is_whole else (cell.seed, cell.forget_seed)
        groups.setdefault((cell.study, cell.dataset, cell.architecture, *part), []).append(cell)
    rank = {study: i for i, study in enumerate(dict.fromkeys(cell.study for cell in cells))}
    jobs = [Job(tuple(group)) for group in groups.values()]
    return tuple(sorted(jobs, key=lambda job: (rank[job.cells[0].study], -job.cost)))


def subtract(cells: Iterable[Cell], finished: set[str]) -> tuple[Cell, ...]:
    """The cells whose keys are not among the finished ones: what a resumed run has left to do."""
    return tuple(cell for cell in cells if cell.key not in finished)
