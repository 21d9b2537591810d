"""What decides the cells of a study, typed and checked, and how it is written to ``study.toml`` and read back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ruler.core.checks import check_number
from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.core.readers.documents import parse_toml, read_toml_text
from ruler.core.registry import Registry
from ruler.data import DATASETS, list_datasets
from ruler.unlearning import METHODS

PAPER_RATE = 5e-4
PAPER_FORGET_SEED = 999
APPROXIMATE_METHODS = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub")
ENGINES = ("protocol", "ensemble")
"""Of the tabular studies; the diagnostic ones have an engine of their own, ``diagnostic``."""
ALL_METHODS = (*APPROXIMATE_METHODS, "bad_teacher")
LANGUAGE_METHODS = (
    *("gradient_ascent", "gradient_difference", "npo", "simnpo", "idk_dpo", "rmu", "undial", "wga"),
    *("neggrad_plus", "fine_tuning"),
)
"""Of the studies of causal language models."""
PRECISIONS = ("float32", "bfloat16")
DEVICES: Registry[None] = Registry("device", {"cpu": None, "cuda": None})
_CHOICES = {
    "engine": (*ENGINES, "diagnostic"),
    "models": ("trained", "imported"),
    "size": ("full", "smoke"),
    "forget_choices": ("random", "most_frequent", "single", "pair"),
}
_LISTS = (
    *("datasets", "forget_fractions", "seeds", "forget_seeds", "learning_rates", "teacher_seeds"),
    *("architectures", "forget_choices"),
)


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
        learning_rates: Of unlearning; epochs scale with the rate, as in the paper.
        teacher_seeds: Of Bad Teacher's random teacher.
        batch_size: Of training and unlearning; None takes all rows at once.
        has_reference_rows: Whether the original and the oracle get rows of their own.
        compares_oracles: Whether all pairs of differently seeded oracles are compared.
        engine: ``protocol``, the paper's loop model by model on a CPU, ``ensemble``, many at once, or
            ``diagnostic``, mini batches of any architecture on any device.
        models: ``trained`` here, or ``imported`` from published checkpoints.
        architectures: Of diagnostic studies; each dataset takes those made for it.
        forget_choices: How whole groups are chosen; those other than ``random`` get reference rows only.
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
            values = getattr(self, field)
            if not values or len(set(values)) != len(values):
                raise InputError(f"{field} must hold at least one value and none twice; got {list(values)}.")
        for key in self.datasets:
            DATASETS[key]
        for method in self.methods:
            if METHODS[method].terms is None and self.engine == "ensemble":
                raise InputError(f"engine must be 'protocol' for {method}, which has no terms; got 'ensemble'.")
            unfit = [key for key in self.datasets if DATASETS[key].kind not in ("text", "prompts")]
            if METHODS[method].kind in ("language", "preferences") and unfit:
                raise InputError(f"methods must fit the data; got {method}, for language models, with {unfit[0]}.")
        self._check_numbers()
        for field, choices in _CHOICES.items():
            values = getattr(self, field)
            for value in (values,) if isinstance(values, str) else values:
                Registry(field, dict.fromkeys(choices))[value]
        self._check_engine()

    def _check_numbers(self) -> None:
        for fraction in self.forget_fractions:
            check_number(fraction, "forget_fractions", minimum=0, is_strict=True)
            if fraction >= 1:
                raise InputError(f"forget_fractions must be below 1; got {fraction!r}. Write 0.05 for 5%.")
        for rate in self.learning_rates:
            check_number(rate, "learning_rates", minimum=0, is_strict=True)
        for field in ("seeds", "forget_seeds", "teacher_seeds"):
            for seed in getattr(self, field):
                check_number(seed, field, minimum=0, is_whole=True)
        if self.batch_size is not None:
            check_number(self.batch_size, "batch_size", minimum=1, is_whole=True)
        if self.compares_oracles and len(self.seeds) < 2:
            raise InputError(f"seeds must be at least 2 to compare oracles; got {len(self.seeds)} in {self.name!r}.")

    def _check_engine(self) -> None:
        """Check that the engine can train these models, and on each dataset one of these architectures."""
        is_diagnostic = self.engine == "diagnostic"
        if (self.precision is not None) != is_diagnostic or (is_diagnostic and self.models == "imported"):
            raise InputError(
                f"precision must be given for the engine diagnostic and for no other, with models trained here; got "
                f"{self.precision!r}, engine {self.engine!r} and models {self.models!r} in {self.name!r}."
            )
        if is_diagnostic:
            Registry("precision", dict.fromkeys(PRECISIONS))[str(self.precision)]
        for key in self.datasets:
            fitting = DATASETS[key].architectures
            if not can_run(self.engine, key) or not set(fitting) & set(self.architectures):
                engine = "protocol or ensemble" if can_run("protocol", key) else "diagnostic"
                raise InputError(
                    f"architectures must hold one for {key}: {', '.join(fitting)}, with the engine {engine}; "
                    f"got {', '.join(self.architectures)} and {self.engine} in {self.name!r}."
                )
        if self.engine == "ensemble" and (self.batch_size is not None or self.models == "imported"):
            raise InputError(
                f"engine must be 'protocol' for mini batches and for imported models; got 'ensemble' in {self.name!r}. "
                "Omit the engine, or train full batch."
            )
        if self.models == "imported" and self.batch_size is not None:
            raise InputError(
                f"models must be 'trained' for mini batches; got 'imported' in {self.name!r}. "
                "The published checkpoints were trained full batch."
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


def format_studies(studies: Sequence[StudySettings]) -> str:
    """The studies as TOML, one ``[[study]]`` table each.

    Example:
        >>> from ruler.experiment.studies import STUDIES
        >>> parse_studies(format_studies([STUDIES["primary"]])) == (STUDIES["primary"],)
        True
    """
    blocks = []
    for study in studies:
        fields = {name: value for name, value in asdict(study).items() if value is not None}
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]  # JSON's literals are TOML's too
        blocks.append("\n".join(["[[study]]", *lines]))
    return "\n\n".join(blocks) + "\n"


def parse_studies(text: str, *, source: str = "study.toml") -> tuple[StudySettings, ...]:
    """Studies from TOML text.

    Raises:
        FileFormatError: Not TOML, no study, an unknown field or a value of the wrong type.
        InputError: A value that breaks a rule.
    """
    content = parse_toml(text, source)
    tables = content.pop("study", None)
    if content or not isinstance(tables, list) or not tables:
        raise FileFormatError(f"{source} must hold [[study]] tables and nothing else; got {sorted(content) or 'none'}.")
    studies = []
    for table in tables:
        values = check_types(table, StudySettings, source)
        if "name" not in values:
            raise FileFormatError(f"{source} must name each study; got a [[study]] table without name.")
        studies.append(StudySettings(**values))
    return tuple(studies)


def check_types(table: Mapping[str, Any], kind: type, source: str, *, is_strict: bool = False) -> dict[str, Any]:
    """The entries of a TOML table with the types that the fields of a dataclass have; the class keeps its own rules.

    Args:
        table: As read.
        kind: The dataclass.
        source: Name of the file.
        is_strict: Refuse values of other types that could be converted.

    Raises:
        FileFormatError: An unknown field, or a value of the wrong type.
    """
    pydantic = load_optional("pydantic", "reading a file of settings")
    known = {name: (one, ...) for name, one in kind.__annotations__.items() if name in table}
    config = pydantic.ConfigDict(extra="forbid", strict=is_strict)
    try:
        values: dict[str, Any] = (
            pydantic.create_model("Table", __config__=config, **known).model_validate(table).model_dump()
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FileFormatError(f"{source} must hold valid settings; got {place}: {first['msg']}.") from error
    return values


def read_studies(path: str | Path) -> tuple[StudySettings, ...]:
    """Studies from a file that `format_studies` wrote, or a person."""
    return parse_studies(read_toml_text(Path(path)), source=str(path))


def add_studies(studies: Sequence[StudySettings], path: Path) -> None:
    """Write studies to a file; those that it lists already, by other names, stay in it."""
    known = {study.name: study for study in read_studies(path)} if path.is_file() else {}
    known |= {study.name: study for study in studies}
    write_atomically(path, format_studies(tuple(known.values())))
