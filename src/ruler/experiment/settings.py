"""What decides the cells of a study, typed and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.data import DATASETS, list_datasets
from ruler.unlearning import METHODS

PAPER_RATE = 5e-4
PAPER_FORGET_SEED = 999
APPROXIMATE_METHODS = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub")
ENGINES = ("protocol", "ensemble")
"""Of the tabular studies; the diagnostic ones have an engine of their own, ``diagnostic``."""
MODEL_SOURCES = ("trained", "imported")
ALL_METHODS = (*APPROXIMATE_METHODS, "bad_teacher")
FORGET_CHOICES = ("random", "most_frequent", "single", "pair")
PRECISIONS = ("float32", "bfloat16")
DEVICES: Registry[None] = Registry("device", {"cpu": None, "cuda": None})
SIZES = ("full", "smoke")


@dataclass(frozen=True)
class StudySettings:
    """Everything that decides the cells of one study; the product of the tuples is the grid.

    Args:
        name: Name of the study; ends up in every row.
        datasets: Keys of tables, or, for the engine ``diagnostic``, of datasets beyond the ten of the primary study.
        methods: Unlearning methods, users' own among them; none for a study of oracles alone.
        forget_fractions: Shares of the training rows to forget.
        seeds: Training seeds, shared by original and oracle.
        forget_seeds: Of the draw of forget sets.
        learning_rates: Of unlearning; epochs scale with the rate, as the paper ran it.
        teacher_seeds: Of Bad Teacher's random teacher.
        batch_size: Of training and unlearning; None takes all rows at once.
        has_reference_rows: Whether the original and the oracle get rows of their own.
        compares_oracles: Whether all pairs of differently seeded oracles are compared.
        engine: ``protocol``, the paper's loop model by model on a CPU, ``ensemble``, many at once, or
            ``diagnostic``, mini batches of any architecture on any device.
        models: ``trained`` here, or ``imported`` from published checkpoints.
        architectures: Of diagnostic studies; each dataset takes those made for it.
        forget_choices: How whole groups are chosen; others than ``random`` get rows of the references alone.
        precision: Of diagnostic training; None elsewhere.
        size: ``smoke`` runs a diagnostic study on few records for an epoch, to see that it runs.

    Example:
        >>> StudySettings("own", datasets=("adlut",), methods=("scrub",))
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: dataset must be one of ...; got 'adlut'. Did you mean 'adult'?
    """

    name: str
    datasets: tuple[str, ...] = list_datasets("primary")
    methods: tuple[str, ...] = ()
    forget_fractions: tuple[float, ...] = (0.01, 0.05, 0.10)
    seeds: tuple[int, ...] = tuple(range(10))
    forget_seeds: tuple[int, ...] = (PAPER_FORGET_SEED,)
    learning_rates: tuple[float, ...] = (PAPER_RATE,)
    teacher_seeds: tuple[int, ...] = (100,)
    batch_size: int | None = None
    has_reference_rows: bool = False
    compares_oracles: bool = False
    engine: Literal["protocol", "ensemble", "diagnostic"] = "protocol"
    models: Literal["trained", "imported"] = "trained"
    architectures: tuple[str, ...] = ("tabular_mlp",)
    forget_choices: tuple[Literal["random", "most_frequent", "single", "pair"], ...] = ("random",)
    precision: Literal["float32", "bfloat16"] | None = None
    size: Literal["full", "smoke"] = "full"

    def __post_init__(self) -> None:
        for field in _LISTS:
            _check_distinct(getattr(self, field), field)
        for key in self.datasets:
            DATASETS[key]
        for method in self.methods:
            if METHODS[method].terms is None and self.engine == "ensemble":
                raise InputError(f"engine must be 'protocol' for {method}, which has no terms; got 'ensemble'.")
        _check_numbers(self)
        if self.compares_oracles and len(self.seeds) < 2:
            raise InputError(f"seeds must be at least 2 to compare oracles; got {len(self.seeds)} in {self.name!r}.")
        _check_choice(self.engine, "engine", (*ENGINES, "diagnostic"))
        _check_diagnostic(self)
        _check_choice(self.models, "models", MODEL_SOURCES)
        if self.engine == "ensemble" and (self.batch_size is not None or self.models == "imported"):
            raise InputError(
                f"engine must be 'protocol' for mini batches and for imported models; got 'ensemble' in {self.name!r}. "
                "Leave the engine out, or train full batch."
            )
        if self.models == "imported" and self.batch_size is not None:
            raise InputError(
                f"models must be 'trained' for mini batches; got 'imported' in {self.name!r}. "
                "The published checkpoints were trained full batch."
            )


_LISTS = (
    *("datasets", "forget_fractions", "seeds", "forget_seeds", "learning_rates", "teacher_seeds"),
    *("architectures", "forget_choices"),
)


def _check_diagnostic(study: StudySettings) -> None:
    """A diagnostic dataset needs the diagnostic engine, and each needs an architecture that is made for it."""
    is_diagnostic = study.engine == "diagnostic"
    _check_choice(study.size, "size", SIZES)
    for choice in study.forget_choices:
        _check_choice(choice, "forget_choices", FORGET_CHOICES)
    if (study.precision is not None) != is_diagnostic or (is_diagnostic and study.models == "imported"):
        raise InputError(
            f"precision must be given for the engine diagnostic and for no other, with models trained here; got "
            f"{study.precision!r}, engine {study.engine!r} and models {study.models!r} in {study.name!r}."
        )
    if is_diagnostic:
        _check_choice(str(study.precision), "precision", PRECISIONS)
    for key in study.datasets:
        fitting = DATASETS[key].architectures
        if not can_run(study.engine, key) or not set(fitting) & set(study.architectures):
            engine = "protocol or ensemble" if can_run("protocol", key) else "diagnostic"
            raise InputError(
                f"architectures must hold one for {key}: {', '.join(fitting)}, with the engine {engine}; "
                f"got {', '.join(study.architectures)} and {study.engine} in {study.name!r}."
            )


def can_run(engine: str, dataset: str) -> bool:
    """Whether an engine is made for a dataset; both kinds of engines are for tables of the user's own.

    Example:
        >>> can_run("protocol", "adult"), can_run("diagnostic", "adult"), can_run("ensemble", "cifar10")
        (True, False, False)
    """
    entry = DATASETS[dataset]
    if engine == "diagnostic":
        return entry.study != "primary"
    return entry.kind == "table" and entry.study in ("primary", "")


def _check_distinct(values: Sequence[object], name: str) -> None:
    if not values or len(set(values)) != len(values):
        raise InputError(f"{name} must hold at least one value and none twice; got {list(values)}.")


def _check_numbers(study: StudySettings) -> None:
    for fraction in study.forget_fractions:
        check_number(fraction, "forget_fractions", minimum=0, is_strict=True)
        if fraction >= 1:
            raise InputError(f"forget_fractions must be below 1; got {fraction!r}. Write 0.05 for 5%.")
    for rate in study.learning_rates:
        check_number(rate, "learning_rates", minimum=0, is_strict=True)
    for field in ("seeds", "forget_seeds", "teacher_seeds"):
        for seed in getattr(study, field):
            check_number(seed, field, minimum=0, is_whole=True)
    if study.batch_size is not None:
        check_number(study.batch_size, "batch_size", minimum=1, is_whole=True)


def _check_choice(value: str, name: str, known: Sequence[str]) -> None:
    Registry(name, dict.fromkeys(known))[value]
