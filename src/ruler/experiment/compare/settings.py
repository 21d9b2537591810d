"""What decides the cells of a comparison, typed and checked, and how it is read from a TOML file."""

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import hash_file
from ruler.core.readers.documents import read_toml
from ruler.core.readers.tables import TABLE_SUFFIXES
from ruler.core.registry import Registry
from ruler.data import DATASETS, TabularSet
from ruler.data.sources import resolve
from ruler.experiment.compare import ANSWERS, ARCHITECTURES, FITTING, GIVEN, MEASURED, choose_batch
from ruler.experiment.compare.data import CompareData, hash_content, load_compared
from ruler.experiment.grid import Cell
from ruler.experiment.run import resolve_model
from ruler.experiment.settings import PAPER_FORGET_SEED, check_types
from ruler.metrics.peers import PEERS
from ruler.models import MODELS
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS

STUDY = "compare"
GRID = "*"
"""In a cell's options: the grid from which its settings are chosen."""

_COLUMNS = {
    "target": ("table",),
    **dict.fromkeys(("ids", "groups"), ("table", "prompts")),
    **dict.fromkeys(("prompt", "completion"), ("prompts",)),
    "text": ("text",),
    "image_size": ("images",),
}
"""Settings of a user's own data -> the kinds of data that they are for."""


@dataclass(frozen=True)
class CompareSettings:
    """Everything that decides the numbers of a comparison.

    `ruler.compare` takes the same arguments and documents them; ``folder`` is where the module of ``architecture`` is
    looked for.

    Example:
        >>> CompareSettings("breast_cancer", methods=["scrub", "sssd"])
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: method must be one of ...; got 'sssd'. Did you mean 'ssd'?
    """

    dataset: str
    target: str | None = None
    ids: str | None = None
    groups: str | None = None
    prompt: str | None = None
    completion: str | None = None
    text: str | None = None
    image_size: list[int] | None = None
    forget: float | str = 0.1
    draws: int = 1
    methods: list[str] | dict[str, dict[str, Any]] | None = None
    choose: bool = False
    metrics: list[str] | None = None
    seeds: int = 3
    architecture: str | None = None
    language_model: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    def __post_init__(self) -> None:
        for name in ("seeds", "draws"):
            check_number(getattr(self, name), name, minimum=1, is_whole=True)
        if not isinstance(self.forget, str):
            check_number(self.forget, "forget", minimum=0, is_strict=True)
            if self.forget >= 1:
                raise InputError(f"forget must be a share under 1; got {self.forget}. For 5% write 0.05.")
        if isinstance(self.forget, str) and self.draws > 1:
            raise InputError(f"draws must be 1 for {self.forget!r}, which leaves nothing to draw; got {self.draws}.")
        for name, kinds in _COLUMNS.items():
            is_refused = self.kind not in kinds or (self.dataset in DATASETS and name != "groups")
            if getattr(self, name) is not None and is_refused:
                raise InputError(f"{name} must be omitted for {self.dataset}; it is for your own {' or '.join(kinds)}.")
        self._check_model()
        _check_fields(self.training, TrainingSettings, "training")
        TrainingSettings(**self.training)
        for name in self.metrics or ():
            PEERS[name]
        list(self._list_variants())

    def _check_model(self) -> None:
        is_language = self.family != "classifier"
        if self.language_model is not None and not is_language:
            raise InputError(f"language_model must be omitted for {self.dataset}; it is for texts and prompts.")
        if self.architecture is None:
            return
        if is_language:
            raise InputError(f"architecture must be omitted for {self.kind}; name the model as language_model.")
        if ":" in self.architecture:
            return
        takes = "rows" if self.kind == "table" else "images"
        if MODELS[self.architecture].takes != takes:
            fitting = ", ".join(name for name, entry in MODELS.items() if entry.takes == takes)
            raise InputError(
                f"architecture must be for {self.kind.removesuffix('s')}s: {fitting}; got {self.architecture!r}."
            )

    @property
    def kind(self) -> str:
        """Of the data: table, images, faces, text or prompts."""
        if self.dataset in DATASETS:
            return DATASETS[self.dataset].kind
        name = self.dataset.lower()
        if self.text is not None:
            return "text"
        if self.prompt is not None or self.completion is not None or name.endswith((".jsonl", ".jsonl.gz")):
            return "prompts"
        return "images" if name.endswith(".npz") or Path(self.dataset).is_dir() else "table"

    @property
    def family(self) -> str:
        """Of the models: classifier, or text or prompts for language models."""
        return self.kind if self.kind in FITTING else "classifier"

    @property
    def model(self) -> str:
        """The architecture, by default the first for the kind of data."""
        own = DATASETS[self.dataset].architectures if self.dataset in DATASETS and self.kind != "table" else ()
        return self.architecture or (own[0] if own else ARCHITECTURES[self.kind])

    @property
    def path(self) -> Path | None:
        """The file or folder of data of the user's own."""
        if self.dataset in DATASETS:
            return None
        found = resolve(self.dataset, TabularSet, TABLE_SUFFIXES) if self.kind == "table" else Path(self.dataset)
        if not isinstance(found, Path):
            return None
        if not found.exists():
            raise InputError(f"dataset must be an existing file or folder; got {str(found)!r}. Check the spelling.")
        return found

    def load(self) -> CompareData:
        """Read the records and the forget set, or say what is wrong with them."""
        return load_compared(self.describe_data(), self.path, self.language_model)

    def describe_data(self) -> dict[str, Any]:
        """What decides the records of a comparison: the content of a file, not where it lies."""
        known: dict[str, Any] = {name: getattr(self, name) for name in ("kind", "forget", *_COLUMNS)}
        path = self.path
        return known | {"dataset": self.dataset if path is None else path.name, "sha256": path and hash_content(path)}

    def describe_model(self) -> str:
        """What decides a model besides its architecture: the language model, or the code that builds it."""
        if self.family != "classifier":
            return resolve_model(self.kind, self.language_model).description
        if self.architecture is None or ":" not in self.architecture:
            return ""
        module = self.architecture.partition(":")[0]
        beside = self.folder / f"{module}.py"
        found = importlib.util.find_spec(module) if not beside.is_file() else None
        source = beside if beside.is_file() else Path(found.origin) if found is not None and found.origin else None
        return hash_file(source) if source is not None and source.is_file() else ""

    def list_metrics(self) -> tuple[str, ...]:
        """Names of the peers' metrics that are measured."""
        if self.metrics is not None:
            return tuple(self.metrics)
        given = [name for name in GIVEN[self.family] if self.dataset in DATASETS or name not in ANSWERS]
        known = {prefix + name for prefix in ("", *MEASURED[self.family]) for name in given}
        return tuple(name for name, peer in PEERS.items() if known.issuperset(peer.needs))

    def list_cells(self, n_train: int) -> tuple[Cell, ...]:
        """The cells of the comparison, the original before the methods.

        Args:
            n_train: Number of training records, from which the batch size follows.
        """
        seeds = tuple(range(self.seeds))
        content: dict[str, Any] = {"data": self.describe_data(), "seeds": seeds, "training": self.training}
        content |= {"model": self.describe_model(), "metrics": self.list_metrics()}
        common = Cell(
            study=STUDY,
            dataset=str(content["data"]["dataset"]),
            method="original",
            forget_fraction=0.0 if isinstance(self.forget, str) else self.forget,
            seed=0,
            batch_size=self.training.get("batch_size") or choose_batch(n_train, self.kind),
            engine="compare",
            architecture=self.model,
            recipe=json.dumps(content, sort_keys=True),
        )
        values = asdict(common)
        forget_seeds = range(PAPER_FORGET_SEED, PAPER_FORGET_SEED + self.draws)
        return tuple(
            Cell(**{**values, "seed": seed, "forget_seed": draw, "method": method, "options": options})
            for draw, seed in product(forget_seeds, seeds)
            for method, options in (("original", ""), *self._list_variants())
        )

    def _list_variants(self) -> Iterator[tuple[str, str]]:
        """Methods with one choice of settings each, or with the grid to choose from, as JSON."""
        fitting, chosen = FITTING[self.family], self.methods
        if chosen is None:
            chosen = [name for name, method in METHODS.items() if method.kind in fitting or name == "retrain"]
        given = chosen if isinstance(chosen, dict) else {name: {} for name in chosen}
        if not given or len(given) != len(chosen):
            raise InputError(f"methods must name at least one method and none twice; got {list(chosen)}.")
        for name, settings in given.items():
            method = METHODS[name]
            if method.kind not in fitting and name != "retrain":
                raise InputError(f"methods must fit the data; got {name}, for {method.kind} models, with {self.kind}.")
            _check_fields(settings, method.settings, f"settings of {name}")
            if name == "retrain" and settings and self.family != "classifier":
                raise InputError("settings of retrain must be omitted for language models; it takes those of training.")
            lists = {key: value for key, value in settings.items() if isinstance(value, list)}
            fixed = {key: value for key, value in settings.items() if key not in lists}
            grid = lists or {key: list(values) for key, values in method.grid.items() if key not in fixed}
            for options in list_combinations(lists if not self.choose else grid):
                method.settings(**fixed, **options)
                if not self.choose or not grid:
                    yield name, json.dumps(fixed | options, sort_keys=True) if fixed | options else ""
            if self.choose and grid:
                yield name, json.dumps({**fixed, GRID: grid}, sort_keys=True)


def list_combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid; an empty one has one, without settings.

    Example:
        >>> list_combinations({"rate": [1, 2], "epochs": [5]})
        [{'rate': 1, 'epochs': 5}, {'rate': 2, 'epochs': 5}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _check_fields(given: Mapping[str, Any], kind: Any, what: str) -> None:
    known = Registry(f"{what}, by name,", {entry.name: None for entry in fields(kind) if entry.init})
    for name in given:
        known[name]


def read_settings(path: Path) -> CompareSettings:
    """The settings of a TOML file; paths count from its folder.

    Raises:
        FileFormatError: Not TOML, an unknown field or a value of the wrong type.
        InputError: A value that breaks a rule.
    """
    values = check_types(read_toml(path), CompareSettings, str(path), is_strict=True)
    if "dataset" not in values:
        raise FileFormatError(f'{path} must name a dataset; got none. Write dataset = "...".')
    for name in ("dataset", "language_model"):
        if values.get(name) and (path.parent / values[name]).exists():
            values[name] = str(path.parent / values[name])
    return CompareSettings(**values, folder=path.parent)
