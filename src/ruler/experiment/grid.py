"""A study -> its cells and the jobs that share models: pure, no data is touched."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import combinations, product

from ruler.data import DATASETS
from ruler.experiment.settings import StudySettings
from ruler.unlearning import METHODS

CELL_VERSIONS = {"protocol": 1, "ensemble": 3, "diagnostic": 5, "compare": 6}
"""By engine, raised with every change that can move a number in its rows; part of each cell's key."""

_LATER_FIELDS = ("architecture", "forget_choice", "precision", "size", "recipe", "options")
"""Absent from the key at their defaults, so that rows from before these fields existed stay finished."""

_TRAINING_EPOCHS, _UNLEARNING_EPOCHS = 50, 10
_STEP_COST = {
    "residual_mlp": 2,
    "ft_transformer": 10,
    "small_cnn": 4,
    "resnet18": 40,
    "bert_mlm": 100,
    "causal_lm": 400,
}
"""Relative cost per record of a training step; that of the tabular MLP is 1."""

_CHOSEN_FRACTION = 0.1
"""Share of records in the most frequent groups, whatever fractions a run takes; single groups and pairs ignore it."""

_MOST_RECORDS = 80_000  # that a diagnostic study trains on
_FIXED_ROWS = 1500  # what a model costs whatever the size of its data: tiny steps are bound by call overhead


@dataclass(frozen=True)
class Cell:
    """The smallest unit that is recorded and resumed: one row of the results.

    Args:
        method: An unlearning method, or ``original`` or ``oracle`` for a model before or without unlearning.
        learning_rate: Of unlearning; None for original and oracle.
        teacher_seed: Of Bad Teacher; None for others.
        other_seed: Second oracle of a pair; None for others.
        forget_choice: How whole groups were chosen to be forgotten.
        precision: Of diagnostic training; None elsewhere.
        size: ``smoke`` for a run on few records.
        recipe: Of the engine compare: data, forget set, seeds, training and metrics of its comparison, as JSON.
        options: Of the engine compare: the method's settings beyond its defaults, as JSON.

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
    recipe: str = ""
    options: str = ""

    @property
    def version(self) -> int:
        """Of the engine that measures it."""
        return CELL_VERSIONS.get(self.engine, 1)

    @property
    def name(self) -> str:
        """A name for a folder of its own."""
        return f"{re.sub(r'[^A-Za-z0-9_]', '_', self.method)}-{self.seed}-{self.forget_seed}-{self.key[:8]}"

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
    """Cells that share models, done one after the other by the same process.

    Example:
        >>> from ruler.experiment.studies import STUDIES
        >>> jobs = group_jobs(list_cells(STUDIES["primary"]))
        >>> len(jobs), len(jobs[0].cells), jobs[0].cells[0].dataset
        (100, 18, 'diabetes130')
    """

    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Study, dataset, architecture and seeds, for people."""
        first, n_seeds = self.cells[0], len({cell.seed for cell in self.cells})
        model = f"{first.architecture} " if first.engine == "diagnostic" else ""
        seeds = f"seed {first.seed}" if n_seeds == 1 else f"{n_seeds} seeds"
        return f"{first.study} {first.dataset} {model}{seeds}"

    def device_for(self, device: str) -> str:
        """Where the job runs in a run on this device: the engine protocol runs on a CPU alone.

        Example:
            >>> Job((Cell("primary", "adult", "scrub", 0.05, 0, 5e-4),)).device_for("cuda")
            'cpu'
        """
        return "cpu" if self.cells[0].engine == "protocol" else device

    @cached_property
    def cost(self) -> float:
        """Expected work in row passes; only its order and proportion count."""
        if self.cells[0].engine == "compare":  # of one dataset, which may be a file of the user's own
            return float(len(self.cells))
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
        [1800, 900, 450, 300, 1200, 3000, 210, 210, 135, 135, 660]
    """
    cells = []
    # The references of one choice that is not random show what it does, so such a choice has one fraction.
    choices = [("random", fraction) for fraction in study.forget_fractions if "random" in study.forget_choices]
    choices += [(choice, _CHOSEN_FRACTION) for choice in study.forget_choices if choice != "random"]
    for dataset, architecture in product(study.datasets, study.architectures):
        if architecture not in DATASETS[dataset].architectures:
            continue
        common = Cell(
            study=study.name,
            dataset=dataset,
            method="oracle",
            forget_fraction=0.0,
            seed=0,
            batch_size=study.batch_size,
            engine=study.engine,
            models=study.models,
            architecture=architecture,
            precision=study.precision,
            size=study.size,
        )
        if study.compares_oracles:
            for forget_seed, fraction in product(study.forget_seeds, study.forget_fractions):
                draw = replace(common, forget_seed=forget_seed, forget_fraction=fraction)
                cells += [replace(draw, seed=one, other_seed=other) for one, other in combinations(study.seeds, 2)]
            continue
        for (choice, fraction), forget_seed, seed in product(choices, study.forget_seeds, study.seeds):
            draw = replace(common, forget_choice=choice, forget_fraction=fraction, forget_seed=forget_seed, seed=seed)
            is_bare = choice != "random" or DATASETS[dataset].is_control
            for method, rate in product(() if is_bare else study.methods, study.learning_rates):
                unlearned = replace(draw, method=method, learning_rate=rate)
                teachers = study.teacher_seeds if hasattr(METHODS[method].settings, "teacher_seed") else (None,)
                cells += [replace(unlearned, teacher_seed=teacher) for teacher in teachers]
            if study.has_reference_rows:
                cells += [draw, replace(draw, method="original")]
    return tuple(cells)


def group_jobs(cells: Sequence[Cell], *, device: str = "cpu") -> tuple[Job, ...]:
    """Group cells into jobs: studies in their order, so that later ones find earlier models, each longest job first.

    A job of models that are trained one by one holds a dataset, architecture, training seed and forget-set seed, whose
    original serves all its fractions; of a causal language model, whose cells cost more than its original, a job holds
    one fraction. A job of pairs of oracles holds a dataset and architecture. So does one of an ensemble on a GPU, which
    trains all its models at once. On a CPU, which trains one after the other, such a job holds a training seed.
    """
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        is_ensemble = cell.engine == "ensemble"
        is_whole = cell.other_seed is not None or (is_ensemble and device != "cpu")
        fraction = cell.forget_fraction if cell.architecture == "causal_lm" else None
        part = () if is_whole else (cell.seed,) if is_ensemble else (cell.seed, cell.forget_seed, fraction)
        groups.setdefault((cell.study, cell.dataset, cell.architecture, *part), []).append(cell)
    rank = {study: i for i, study in enumerate(dict.fromkeys(cell.study for cell in cells))}
    jobs = [Job(tuple(group)) for group in groups.values()]
    return tuple(sorted(jobs, key=lambda job: (rank[job.cells[0].study], -job.cost)))


def subtract(cells: Iterable[Cell], finished: set[str]) -> tuple[Cell, ...]:
    """The cells whose keys are not among the finished ones: what a resumed run has left to do."""
    return tuple(cell for cell in cells if cell.key not in finished)
