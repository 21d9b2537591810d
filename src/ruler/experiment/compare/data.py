"""Data by name, or of the user's own -> records to train on, to hold out and to forget."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.files import hash_file
from ruler.core.readers.tables import read_rows, read_table
from ruler.core.registry import Registry
from ruler.core.types import IndexArray, Partition
from ruler.data import (
    load_dataset,
    load_images,
    load_prompts,
    load_tabular,
    load_texts,
    partition_classes,
    partition_groups,
    partition_rows,
    sample_rows,
)
from ruler.data.split import draw_split, fit_scale
from ruler.experiment.diagnostic.data import (
    SPLIT_SEED,
    TABLE_ROWS,
    Completing,
    DiagnosticData,
    load_data,
    prepare_images,
    prepare_prompts,
    prepare_sentences,
)

HELD_OUT = 0.2
VALIDATION = 0.1  # of the retain records, where a rehearsal or a method validates
HEAD_DOCUMENTS = 0.1  # of the documents that are not held out: they train a masked model's head, if it has none
_CONDITION = "forget's condition, before ==,"
_LEAST_CONTROL = 10  # held-out records like the forgotten ones; with fewer, all held-out records are the control

Array = npt.NDArray[Any]
Columns = Callable[[str], Array]
"""Name of a column -> its values, one per record in the order of the data."""


@dataclass(frozen=True, eq=False)
class CompareData(DiagnosticData):
    """Records of a comparison.

    Args:
        ids: (n,) names of the records, by default their rows in the table.
        is_chosen: (n,) whether a record is of the class, group or value that is forgotten; None if records are drawn.
    """

    ids: Array = field(default_factory=lambda: np.empty(0))
    is_chosen: npt.NDArray[np.bool_] | None = None

    def cut(self, fraction: float, seed: int, choice: Any) -> Partition:
        """The training records to forget and to retain."""
        if self.is_chosen is None:
            return super().cut(fraction, seed, choice)
        return partition_classes(self.is_chosen[: self.n_train], True)

    def find_control(self) -> IndexArray:
        """Held-out records that are like those to forget: of the same class or value, if there are enough of them."""
        held_out = np.arange(self.n_train, len(self.inputs))
        if self.is_chosen is None or self.is_chosen[held_out].sum() < _LEAST_CONTROL:
            return held_out
        return held_out[self.is_chosen[held_out]]


def cut_rows(rows: IndexArray, fraction: float, groups: Array | None, seed: int) -> Partition:
    """A share of some records, or of their whole groups, and the others, as places in ``rows``.

    Example:
        >>> found = cut_rows(np.arange(100, 300), 0.1, None, seed=7)
        >>> len(found.forget), len(found.retain)
        (20, 180)
    """
    if groups is None:
        return partition_rows(len(rows), fraction, seed=seed)
    return partition_groups(groups[rows], fraction=fraction, seed=seed)


def load_compared(wanted: Mapping[str, Any], path: Path | None, language_model: str | None = None) -> CompareData:
    """Load and split what is compared.

    Args:
        wanted: What `CompareSettings.describe_data` gives.
        path: The user's own file or folder; None for a dataset with a name.
        language_model: Folder or hub name of the model for texts and prompts.

    Raises:
        InputError: A file that has changed meanwhile, or no such column, class, group or value.
    """
    if path is not None and hash_content(path) != wanted["sha256"]:
        raise InputError(f"{path} must stay as it is while methods are compared; got other content. Run it again.")
    if wanted["kind"] == "table":
        return load_table(wanted, path)
    if wanted["kind"] == "prompts":
        return _load_prompts(wanted, path, language_model)
    if path is None:
        return _load_named(wanted, language_model)
    return _load_image_folder(wanted, path) if wanted["kind"] == "images" else _load_texts(wanted, path, language_model)


def hash_content(path: Path) -> str:
    """SHA-256 of a file, or of the names and content of all files in a folder.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> before = hash_content(folder)
        >>> _ = (folder / "a.txt").write_text("a")
        >>> hash_content(folder) == before
        False
    """
    if not path.is_dir():
        return hash_file(path)
    found = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        found.update(f"{file.relative_to(path).as_posix()} {hash_file(file)}\n".encode())
    return found.hexdigest()


def _load_named(wanted: Mapping[str, Any], language_model: str | None) -> CompareData:
    """Images, faces, texts or prompts with a name."""
    data = load_data(wanted["dataset"], language_model=language_model)

    def read_column(name: str) -> Array:
        known: dict[str, Array] = {} if data.groups is None else {"group": np.asarray(data.groups).astype(str)}
        if data.labels is not None:
            loaded: Any = load_dataset(wanted["dataset"])
            known["class"] = np.array(getattr(loaded, "train", loaded).classes)[data.labels]
        return Registry(_CONDITION, known)[name]

    ids = data.language.prompts.ids if isinstance(data.language, Completing) else np.arange(len(data.inputs))
    return _complete(data, ids, wanted["forget"], read_column)


def _load_image_folder(wanted: Mapping[str, Any], path: Path) -> CompareData:
    size = None if wanted["image_size"] is None else tuple(wanted["image_size"])
    parts = load_images(path, test_fraction=HELD_OUT, seed=SPLIT_SEED, image_size=size)
    data = prepare_images(parts)
    ids = np.concatenate([parts.train.ids, parts.test.ids])
    columns = Registry(_CONDITION, {"class": np.array(parts.train.classes)[data.labels]})
    return _complete(data, ids, wanted["forget"], columns.__getitem__)


def _load_prompts(wanted: Mapping[str, Any], path: Path | None, language_model: str | None) -> CompareData:
    from ruler.models.language_models import resolve_causal_model  # needs transformers

    named = {} if path is None else {name: wanted[name] for name in ("prompt", "completion")}
    extra = {"group": wanted["groups"], "id": wanted["ids"]}
    texts = load_prompts(path or wanted["dataset"], **named, **extra)
    if path is None and texts.forget_sets:
        return _load_named(wanted, language_model)
    groups = None if path is not None and wanted["groups"] is None else texts.groups
    parts = _draw_parts(len(texts), groups)
    order = np.concatenate([parts.retain, parts.forget])
    data = prepare_prompts(texts.select(order), len(parts.retain), *resolve_causal_model(language_model))

    def read_column(name: str) -> Array:
        if path is not None:
            return _read_column(path, name, order)
        named_groups: dict[str, Array] = {"group": texts.groups[order]}
        return Registry(_CONDITION, named_groups)[name]

    data = replace(data, groups=None if groups is None else groups[order])
    return _complete(data, texts.ids[order], wanted["forget"], read_column)


def _load_texts(wanted: Mapping[str, Any], path: Path, language_model: str | None) -> CompareData:
    """Documents of the user's own, sentence by sentence: whole documents are forgotten and held out."""
    from ruler.models.language_models import resolve_language_model  # needs transformers

    texts = load_texts(path, column=wanted["text"])
    control = partition_groups(texts.documents, fraction=HELD_OUT, seed=SPLIT_SEED + 1)
    rest = partition_groups(texts.documents[control.retain], fraction=HEAD_DOCUMENTS, seed=SPLIT_SEED + 2)
    train, head = control.retain[rest.retain], control.retain[rest.forget]
    data = prepare_sentences(texts, [train, control.forget, head], *resolve_language_model(language_model))
    ids = texts.ids[np.concatenate([train, control.forget])]

    rows = np.array([int(one.partition("/")[0]) for one in ids.tolist()])
    return _complete(data, ids, wanted["forget"], lambda name: _read_column(path, name, rows))


def _read_column(path: Path, name: str, rows: IndexArray) -> Array:
    """Some rows of a column of the user's file."""
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        records = read_rows(path)
        field_name = Registry("column", {str(key): key for key in records[0]})[name]
        return np.array([records[row].get(field_name) for row in rows])
    table = read_table(path)
    values: Array = table[Registry("column", {str(column): column for column in table.columns})[name]].to_numpy()[rows]
    return values


def _draw_parts(n_records: int, groups: Array | None) -> Partition:
    if groups is None:
        return partition_rows(n_records, HELD_OUT, seed=SPLIT_SEED + 1)
    return partition_groups(groups, fraction=HELD_OUT, seed=SPLIT_SEED + 1)


def _complete(data: DiagnosticData, ids: Array, forget: float | str, columns: Columns) -> CompareData:
    known = {entry.name: getattr(data, entry.name) for entry in fields(DiagnosticData)}
    is_chosen = choose_records(forget, columns) if isinstance(forget, str) else None
    if is_chosen is not None and not is_chosen[: data.n_train].any():
        raise InputError(f"forget must hold for training records; got {forget!r}, all of which are held out.")
    return CompareData(**known, ids=ids, is_chosen=is_chosen)


def load_table(wanted: Mapping[str, Any], path: Path | None) -> CompareData:
    """Load, split and scale a table; arguments and errors as `load_compared`."""
    data = load_tabular(wanted["dataset"] if path is None else path, target=wanted["target"], ids=wanted["ids"])
    names, data = data.ids, replace(data, ids=np.arange(len(data)))
    data = sample_rows(data, TABLE_ROWS, seed=SPLIT_SEED) if len(data) > TABLE_ROWS else data

    def read_column(name: str) -> Array:
        """The column as it stands in the user's file, or as numbers in a dataset with a name."""
        if name == "class":
            return np.array(data.classes)[data.target]
        if path is not None:
            return _read_column(path, name, data.ids)
        columns = Registry("column", {feature: place for place, feature in enumerate(data.feature_names)})
        return np.asarray(data.features[:, columns[name]])

    is_chosen = choose_records(wanted["forget"], read_column) if isinstance(wanted["forget"], str) else None
    groups, features = None, data.features
    if wanted["groups"] is None:
        train, held_out = draw_split(data.target, data.classes, test_fraction=HELD_OUT, seed=SPLIT_SEED)
    else:
        groups = read_column(wanted["groups"]).astype(str)
        if wanted["groups"] in data.feature_names:
            features = np.delete(features, data.feature_names.index(wanted["groups"]), axis=1)
        parts = _draw_parts(len(data), groups)
        train, held_out = parts.retain, parts.forget
    order = np.concatenate([train, held_out])
    mean, deviation = fit_scale(features[train])
    return CompareData(
        inputs=((features[order] - mean) / deviation).astype(np.float32),
        labels=data.target[order],
        groups=None if groups is None else groups[order],
        n_train=len(train),
        n_classes=len(data.classes),
        ids=names[data.ids[order]],
        is_chosen=None if is_chosen is None else is_chosen[order],
    )


def choose_records(condition: str, columns: Columns) -> npt.NDArray[np.bool_]:
    """Which records a condition such as ``age == 40`` holds for.

    Example:
        >>> choose_records("age == 40", {"age": np.array([39, 40, 40])}.__getitem__).tolist()
        [False, True, True]
    """
    column, sign, value = (part.strip() for part in condition.partition("=="))
    if not (column and sign and value):
        raise InputError(
            'forget must be a share such as 0.1, "class == LABEL", "group == NAME" or "COLUMN == VALUE"; '
            f"got {condition!r}."
        )
    found = columns(column)
    if column in ("class", "group"):
        return np.asarray(found == Registry(column, {str(one): one for one in np.unique(found)})[value])
    if found.dtype.kind in "iufb":
        try:
            found, wanted = found.astype(np.float64), float(value)
        except ValueError:
            raise InputError(f"forget must compare {column}, which holds numbers, with one; got {value!r}.") from None
        is_chosen = found == wanted
    else:
        is_chosen = found.astype(str) == value
    if not is_chosen.any():
        raise InputError(f"forget must hold for some records; got {condition!r}, which holds for none.")
    return np.asarray(is_chosen)
