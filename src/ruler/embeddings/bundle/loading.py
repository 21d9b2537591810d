"""Models, records and groups that the TOML file of an audit names, loaded."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError, suggest
from ruler.core.readers.adapters import is_adapter
from ruler.core.readers.arrays import open_npy, read_npz
from ruler.core.readers.safety import check_text_array, pack_texts, reading_safely
from ruler.core.readers.tables import read_csv, read_parquet, read_rows
from ruler.embeddings.bundle.checkpoints import find_factory, load_checkpoint, load_transformer
from ruler.embeddings.bundle.config import AuditConfig, apply_to_each, list_places
from ruler.embeddings.bundle.prompts import PromptForm
from ruler.embeddings.bundle.records import FolderRecords, load_records
from ruler.embeddings.sides import SIDES


def load_bundle(config: AuditConfig, folder: Path) -> dict[str, Any]:
    """Load the models, records and groups of a configuration that has ``[models]`` and ``[data]``.

    Only code that ``models.factory`` and ``data.factory`` name is executed; see `find_factory`.

    Returns:
        Arguments of `audit_models` by name, and under "described" what the report should say of how they were read.
    """
    assert config.models is not None
    assert config.data is not None
    places = list_places(config, folder)
    groups = load_groups(Path(str(places.pop("groups")))) if "groups" in places else None
    sides = {side: Path(str(places.pop(side))) for side in SIDES if side in places}
    base = Path(str(places.pop("base"))) if "base" in places else None
    options = config.models.model_dump(include={"dtype", "load_in", "device_map"}, exclude_none=True)
    described: dict[str, Any] = dict(options)
    if base is not None:
        described["adapters"] = f"merged into {base}"
    models: dict[str, Any] = {}
    factory = None if config.models.factory is None else find_factory(config.models.factory, "models.factory", folder)
    for name, place in places.items():
        if factory is None:
            models[name] = apply_to_each(partial(load_transformer, name=name, base=base, options=options), place)
        else:
            models[name] = apply_to_each(partial(load_checkpoint, factory, name=name), place)
    if config.data.factory is not None:
        records = _check_records(find_factory(config.data.factory, "data.factory", folder)())
    elif factory is None:
        columns = {"label": config.data.label, "strata": config.data.strata}
        named = config.data.model_dump(include={"prompt", "completion", "span", "strata"})
        prompts = PromptForm(named, config.data.template, config.data.form, config.data.max_tokens)
        unlearned = Path(str(places["unlearned"]))
        home = base if base is not None and is_adapter(unlearned) else unlearned  # where the tokenizer lies
        prepared = FolderRecords(home, models["unlearned"], columns, prompts)
        if prepared.takes_prompts(sides["forget"]):
            described["records"] = prompts.describe()
        records = {side: prepared.load(path) for side, path in sides.items()}
    else:
        records = {side: load_records(path) for side, path in sides.items()}
    found = records.pop("groups", None)
    if found is not None and groups is not None:
        raise InputError("groups must come from data.factory or from a file; got both. Leave one of them out.")
    return {**models, **records, "groups": groups if found is None else found, "described": described}


def _check_records(content: Any) -> dict[str, Any]:
    """What data.factory returned, by side, without sides that are None."""
    rule = "data.factory must return a dict with forget and retain, and perhaps held_out and groups"
    if not isinstance(content, dict):
        raise InputError(f"{rule}; got {type(content).__name__}.")
    if "test" in content:
        raise InputError(f"{rule}; got test. Rename it to held_out.")
    if not {"forget", "retain"} <= content.keys() <= {*SIDES, "groups"}:
        raise InputError(f"{rule}; got {', '.join(map(str, content))}.")
    return {name: value for name, value in content.items() if value is not None}


Labels = npt.NDArray[Any]


def load_groups(path: Path, column: str = "group") -> Labels | dict[str, Labels]:
    """One label per forget record, or by side: whose record is it?

    Args:
        path: ``.csv`` or ``.parquet`` with a column ``group`` (or one column only) and, for several sides, a column
            ``side``; ``.npy`` with one label per forget record; ``.npz`` with ``forget``, ``retain``, ``held_out``.
        column: Of the table: "group", or "id" for the names of the records.

    Returns:
        (n,) labels of the forget records, or a dict of them by side.
    """
    ending = path.suffix.lower()
    if ending == ".npy":
        return _check_labels(open_npy(path), path, column)
    if ending == ".npz":
        return {side: _check_labels(labels, path, column) for side, labels in read_npz(path).items()}
    if ending == ".csv":
        lines = read_csv(path)
        if not lines:
            raise FileFormatError(f"{path} must hold one {column} per record; got an empty file.")
        if column not in lines[0] and len(lines[0]) == 1:
            return _check_labels([line[0] for line in lines], path, column)
        rows = read_rows(path)
        columns = {name: [row[name] for row in rows] for name in lines[0]}
    elif ending == ".parquet":
        columns = read_parquet(path).to_pydict()
        if len(columns) == 1:
            columns = {column: next(iter(columns.values()))}
    else:
        raise FileFormatError(
            f"{path} must end in one of .csv, .parquet, .npy, .npz; got {path.suffix or 'no ending'!r}."
        )
    if column not in columns:
        raise FileFormatError(
            f"{path} must have a column {column}, or one column only; got {', '.join(columns)}."
            f"{suggest(column, columns)}"
        )
    labels = _check_labels(columns[column], path, column)
    if "side" not in columns:
        return labels
    sides = np.array(columns["side"])
    unknown = sorted(set(map(str, sides.tolist())) - set(SIDES))
    if unknown:
        raise FileFormatError(f"{path} must name the sides {', '.join(SIDES)}; got {unknown[0]!r}.")
    return {side: labels[sides == side] for side in SIDES if (sides == side).any()}


def _check_labels(found: npt.NDArray[Any] | list[Any], path: Path, column: str) -> Labels:
    with reading_safely(path):
        if isinstance(found, list):
            labels = pack_texts(found, f"{column}s") if set(map(type, found)) == {str} else np.array(found)
        else:
            check_text_array(found, f"{column}s")
            labels = found
    is_text = labels.dtype.kind == "U"
    if labels.ndim != 1 or not (is_text or labels.dtype.kind in "iu") or (is_text and (labels == "").any()):
        raise FileFormatError(
            f"{path} must hold one {column} per record, as whole numbers or text, none missing; got {labels.dtype}, "
            f"shape {labels.shape}. Fill in the missing ones."
        )
    return np.array(labels)
