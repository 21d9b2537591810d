"""What decides the cells of a comparison, typed and checked, and how it is read from a TOML file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import hash_file
from ruler.core.optional import load_optional
from ruler.core.readers.documents import read_toml
from ruler.core.readers.tables import TABLE_SUFFIXES
from ruler.core.registry import Registry
from ruler.data import DATASETS, TabularSet
from ruler.data.sources import resolve
from ruler.experiment.compare.data import CompareData, load_compared
from ruler.experiment.grid import Cell
from ruler.experiment.settings import PAPER_FORGET_SEED
from ruler.metrics.peers import PEERS, PREFIXES
from ruler.models import MODELS
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS

STUDY = "compare"
GIVEN = (
    *(f"{side}_{what}" for side in ("forget", "retain", "held_out") for what in ("predictions", "states", "groups")),
    *("weights", "relearn_accuracies", "device"),
)
"""What a classifier gives to peers' metrics, by its name in `NEEDS`."""
MEASURED = ("oracle_", "original_", "random_", "oracles_", "originals_")
"""Whose numbers are measured besides; the method is not repeated on other originals (``shadows_``)."""

_SMALLEST_BATCH, _STEPS = 16, 16
_LARGEST_BATCH = {"rows": 256, "images": 128}


@dataclass(frozen=True)
class CompareSettings:
    """Everything that decides the numbers of a comparison.

    Args:
        dataset: Key of a table, of images or of faces, or the path of a .csv, .csv.gz or .parquet file.
        target: Column with the classes; for a file.
        ids: Column with the records' names, which is no feature; for a file.
        groups: Column that says whose record it is, which is no feature; for a file. Whole groups are forgotten and
            held out.
        forget: Share of training records, or of those of whole groups, drawn at random; ``"class == LABEL"``; or
            ``"COLUMN == VALUE"``.
        draws: How many forget sets are drawn, if ``forget`` is a share.
        methods: Names, or names with their settings; a list as a setting tries each of its values. None takes every
            method for classifiers.
        metrics: Peers' metrics by name; None takes all that classifiers can give what they need.
        seeds: How many original models, each with an oracle of the same seed.
        architecture: Of the models; None takes the MLP for tables, and the dataset's first for images.
        training: How originals and oracles are trained, where not by default.

    Example:
        >>> CompareSettings("breast_cancer", methods=["scrub", "sssd"])
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: method must be one of ...; got 'sssd'. Did you mean 'ssd'?
    """

    dataset: str
    target: str | None = None
    ids: str | None = None
    groups: str | None = None
    forget: float | str = 0.1
    draws: int = 1
    methods: list[str] | dict[str, dict[str, Any]] | None = None
    metrics: list[str] | None = None
    seeds: int = 3
    architecture: str | None = None
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("seeds", "draws"):
            check_number(getattr(self, name), name, minimum=1, is_whole=True)
        if isinstance(self.forget, str) and self.draws > 1:
            raise InputError(f"draws must be 1 for {self.forget!r}, which leaves nothing to draw; got {self.draws}.")
        kind = DATASETS[self.dataset].kind if self.dataset in DATASETS else "table"
        if kind not in ("table", "images", "faces"):
            raise InputError(f"dataset must be a table, images or faces; got {self.dataset!r}, of kind {kind}.")
        if kind != "table" and (self.target or self.ids or self.groups):
            raise InputError(f"target, ids and groups must be omitted for {self.dataset}; they are for your own file.")
        takes = "rows" if kind == "table" else "images"
        if MODELS[self.model].takes != takes:
            fitting = ", ".join(name for name, entry in MODELS.items() if entry.takes == takes)
            raise InputError(
                f"architecture must be for {kind.removesuffix('s')}s: {fitting}; got {self.architecture!r}."
            )
        _check_fields(self.training, TrainingSettings, "training")
        TrainingSettings(**self.training)
        for name in self.metrics or ():
            PEERS[name]
        list(self._list_variants())

    @property
    def model(self) -> str:
        """The architecture, by default the first for the kind of data."""
        is_table = self.dataset not in DATASETS or DATASETS[self.dataset].kind == "table"
        return self.architecture or ("tabular_mlp" if is_table else DATASETS[self.dataset].architectures[0])

    @property
    def path(self) -> Path | None:
        """The file of a dataset of the user's own."""
        if self.dataset in DATASETS:
            return None
        found = resolve(self.dataset, TabularSet, TABLE_SUFFIXES)
        return found if isinstance(found, Path) else None

    def load(self) -> CompareData:
        """Read the records and the forget set, or say what is wrong with them."""
        return load_compared(self.describe_data(), self.path)

    def describe_data(self) -> dict[str, Any]:
        """What decides the records of a comparison: the content of a file, not where it lies."""
        known: dict[str, Any] = {name: getattr(self, name) for name in ("target", "ids", "groups", "forget")}
        path = self.path
        return known | {"dataset": self.dataset if path is None else path.name, "sha256": path and hash_file(path)}

    def list_metrics(self) -> tuple[str, ...]:
        """Names of the peers' metrics that are measured."""
        if self.metrics is not None:
            return tuple(self.metrics)
        known = {prefix + name for prefix in ("", *MEASURED) for name in GIVEN}
        return tuple(name for name, peer in PEERS.items() if known.issuperset(peer.needs))

    def list_cells(self, n_train: int) -> tuple[Cell, ...]:
        """The cells of the comparison, the original before the methods.

        Args:
            n_train: Number of training records, from which the batch size follows.
        """
        seeds = tuple(range(self.seeds))
        content: dict[str, Any] = {"data": self.describe_data(), "seeds": seeds, "training": self.training}
        common = Cell(
            study=STUDY,
            dataset=str(content["data"]["dataset"]),
            method="original",
            forget_fraction=0.0 if isinstance(self.forget, str) else self.forget,
            seed=0,
            batch_size=self.training.get("batch_size") or choose_batch(n_train, self.model),
            engine="compare",
            architecture=self.model,
            recipe=json.dumps({**content, "metrics": self.list_metrics()}, sort_keys=True),
        )
        values = asdict(common)
        forget_seeds = range(PAPER_FORGET_SEED, PAPER_FORGET_SEED + self.draws)
        return tuple(
            Cell(**{**values, "seed": seed, "forget_seed": draw, "method": method, "options": options})
            for draw, seed in product(forget_seeds, seeds)
            for method, options in (("original", ""), *self._list_variants())
        )

    def _list_variants(self) -> Iterator[tuple[str, str]]:
        """Methods with one choice of settings each, as JSON."""
        chosen = self.methods
        if chosen is None:
            chosen = [name for name, method in METHODS.items() if method.kind in ("any", "classifier")]
        given = chosen if isinstance(chosen, dict) else {name: {} for name in chosen}
        if not given or len(given) != len(chosen):
            raise InputError(f"methods must name at least one method and none twice; got {list(chosen)}.")
        for name, settings in given.items():
            method = METHODS[name]
            if method.kind not in ("any", "classifier"):
                raise InputError(f"methods must fit the data; got {name}, for language models, with a table.")
            _check_fields(settings, method.settings, f"settings of {name}")
            ways = [value if isinstance(value, list) else [value] for value in settings.values()]
            for values in product(*ways):
                options = dict(zip(settings, values, strict=True))
                method.settings(**options)
                yield name, json.dumps(options, sort_keys=True) if options else ""


def choose_batch(n_train: int, architecture: str = "tabular_mlp") -> int:
    """Batch size of training and unlearning: 256 (128 for images), or a sixteenth of the records; at least 16.

    Example:
        >>> choose_batch(455), choose_batch(100_000)
        (28, 256)
    """
    most = _LARGEST_BATCH[MODELS[architecture].takes]
    return min(most, max(_SMALLEST_BATCH, n_train // _STEPS))


def _check_fields(given: Mapping[str, Any], kind: Any, what: str) -> None:
    known = Registry(f"{what}, by name,", {entry.name: None for entry in fields(kind) if entry.init})
    for name in given:
        known[name]


def read_settings(path: Path) -> CompareSettings:
    """The settings of a TOML file; the path of a dataset counts from its folder.

    Raises:
        FileFormatError: Not TOML, an unknown field or a value of the wrong type.
        InputError: A value that breaks a rule.
    """
    pydantic = load_optional("pydantic", "reading the file of a comparison")
    content = read_toml(path)
    kinds = {entry.name: (entry.type, ...) for entry in fields(CompareSettings) if entry.name in content}
    strict = pydantic.create_model("CompareFile", __config__=pydantic.ConfigDict(extra="forbid", strict=True), **kinds)
    try:
        values = strict.model_validate(content).model_dump()
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FileFormatError(f"{path} must hold valid settings; got {place}: {first['msg']}.") from error
    if "dataset" not in values:
        raise FileFormatError(f'{path} must name a dataset; got none. Write dataset = "...".')
    beside = path.parent / values["dataset"]
    return CompareSettings(**values | ({"dataset": str(beside)} if beside.is_file() else {}))


def list_needed(metrics: tuple[str, ...]) -> set[str]:
    """Names of all that these metrics need or take, without prefixes, and the prefixes themselves.

    Example:
        >>> sorted(list_needed(("zrf",)))
        ['forget_predictions', 'random_']
    """
    found = set()
    for name in (name for metric in metrics for name in (*PEERS[metric].needs, *PEERS[metric].takes)):
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
        found |= {name.removeprefix(prefix), prefix}
    return found - {""}
