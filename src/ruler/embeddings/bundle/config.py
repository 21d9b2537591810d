"""The TOML file of an audit: which models or embeddings, which records, which settings, and where they lie."""

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ruler.core.errors import FileFormatError
from ruler.core.readers.adapters import find_base, is_adapter
from ruler.core.readers.documents import read_toml
from ruler.core.readers.safety import reading_safely
from ruler.embeddings.sides import SIDES

S = TypeVar("S")
T = TypeVar("T")
Places = Mapping[str, Path | list[Path]]
_OLD_EMBEDDINGS = re.compile(r"(unlearned|oracle|original)_(forget|retain|held_out)")
_OLD_SETTINGS = {
    "margin": "limit, the most that may remain, from 0 (never seen) to 1 (trained on)",
    "margin_chosen_by": "limit_chosen_by",
    "share_limit": "limit, the most that may remain, from 0 (never seen) to 1 (trained on)",
}
"""Settings of earlier versions -> what to write instead."""

_MODELS = ("unlearned", "oracle", "original", "reference")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelsTable(_Table):
    """``[models]``: a function that builds the architecture and a checkpoint for each model, or a folder for each.

    ``reference`` is a model, or several, that never saw the forget or the held-out records.
    ``base`` is the model that LoRA adapters are merged into. ``dtype``, ``load_in`` and ``device_map`` say how folders
    are loaded, ``pooling`` what of a text is read, ``attack`` what else is tried on the models.
    """

    factory: str | None = None
    unlearned: str
    oracle: str | list[str] | None = None
    original: str | None = None
    reference: str | list[str] | None = None
    base: str | None = None
    layer: str | list[str] | None = None
    pooling: Literal["completion", "last", "span"] | None = None
    dtype: Literal["float32", "float16", "bfloat16"] | None = None
    load_in: Literal["8bit", "4bit"] | None = None
    device_map: Literal["auto"] | None = None
    attack: str | list[str] | None = None


class DataTable(_Table):
    """``[data]``: a function that returns the records, or a file (or a folder of images) for each side.

    ``label`` and ``strata`` name columns of tables of texts, where these are not called so; for language models
    ``prompt``, ``completion`` and ``span``. The rest says how those are joined, see `PromptForm`.
    """

    factory: str | None = None
    forget: str | None = None
    retain: str | None = None
    held_out: str | None = None
    label: str | None = None
    strata: str | None = None
    prompt: str | None = None
    completion: str | None = None
    span: str | None = None
    template: bool = False
    form: str | None = None
    max_tokens: int | None = None


class EmbeddingsTable(_Table):
    """``[embeddings]``: a folder for each model, and the column that serves as strata, for `load_model_folder`."""

    unlearned: str
    oracle: str | list[str] | None = None
    original: str | None = None
    reference: str | list[str] | None = None
    strata: str | None = None


class EvidenceTable(_Table):
    """``[evidence]``: what whoever runs the audit declares about it. The report shows it and verifies none of it."""

    model_config = ConfigDict(str_max_length=2000, str_min_length=1)
    run_by: str | None = None
    run_for: str | None = None
    request: str | None = None
    model: str | None = None
    oracle_made: str | None = None
    oracle_declared_by: str | None = None
    reference_made: str | None = None
    reference_declared_by: str | None = None
    held_out_declared_by: str | None = None


class AuditConfig(_Table):
    """The whole file: ``[embeddings]``, or ``[models]`` with ``[data]``; ``groups``, ``[settings]``, ``[evidence]``."""

    embeddings: EmbeddingsTable | None = None
    models: ModelsTable | None = None
    data: DataTable | None = None
    settings: Any = None
    groups: str | None = None
    evidence: EvidenceTable | None = None


def read_config(path: Path, settings: type[S]) -> tuple[AuditConfig, S]:
    """The configuration in a TOML file. Paths in it are as written: they lie relative to the file itself.

    Args:
        path: Of the file.
        settings: The dataclass that ``[settings]`` fills, such as `AuditSettings`.

    Returns:
        The tables, and the settings, checked by their own rules.

    Raises:
        FileFormatError: Not there, not TOML, an unknown key, a value of the wrong kind, or tables that do not go
            together.
        InputError: A setting out of its range.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "audit.toml"
        >>> _ = path.write_text('[embedings]')
        >>> read_config(path, dict)
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: ... must have known keys only; got 'embedings'. Did you mean 'embeddings'?
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        advice = "Folders of embeddings go into --unlearned and --oracle." if path.is_dir() else "Check the path."
        raise FileFormatError(f"{path} must be a TOML file; got {found}. {advice}")
    form: Any = settings
    whole = _model_file(form)
    try:
        config = whole.model_validate(read_toml(path))
    except ValidationError as error:
        raise FileFormatError(_explain(error, path, list(getattr(settings, "__annotations__", {})))) from error
    _check_tables(config, path)
    return config, settings(**(config.settings.model_dump(exclude_unset=True) if config.settings else {}))


@cache
def _model_file(settings: type) -> type[AuditConfig]:
    """The form of the file whose ``[settings]`` fill this dataclass."""
    fields: Any = {name: (kind, None) for name, kind in getattr(settings, "__annotations__", {}).items()}
    table: Any = create_model("SettingsTable", __base__=_Table, **fields)
    return create_model("AuditFile", __base__=AuditConfig, settings=(table | None, None))


def locate(names: Mapping[str, str | list[str] | None], folder: Path) -> dict[str, Path | list[Path]]:
    """Names of a configuration as paths, those that are given.

    Example:
        >>> locate({"unlearned": "model.pt", "original": None}, Path("bundle"))
        {'unlearned': PosixPath('bundle/model.pt')}
    """
    given = {key: name for key, name in names.items() if name is not None}

    def find(name: str) -> Path:
        with reading_safely(folder / name):
            place = folder / Path(name).expanduser()
            place.is_dir()  # a name that no system takes, or a folder that may not be entered, is told here
            return place

    return {key: apply_to_each(find, name) for key, name in given.items()}


def apply_to_each(load: Callable[[Any], T], place: Any) -> T | list[T]:
    """What ``load`` gives for one place, or for each of a list."""
    return [load(one) for one in place] if isinstance(place, list) else load(place)


def list_places(config: AuditConfig, folder: Path) -> dict[str, Path | list[Path]]:
    """Where the models or embeddings, the records and the groups of a configuration lie, by name.

    Example:
        >>> config = AuditConfig(embeddings=EmbeddingsTable(unlearned="rows"), groups="whose.csv")
        >>> list_places(config, Path("bundle"))
        {'unlearned': PosixPath('bundle/rows'), 'groups': PosixPath('bundle/whose.csv')}
    """
    models = config.embeddings or config.models
    named = models.model_dump(include={*_MODELS, "base"}) if models else {}
    sides = config.data.model_dump(include=set(SIDES)) if config.data else {}
    places = locate({**named, **sides, "groups": config.groups}, folder)
    if config.models is not None and config.models.factory is None and "base" not in places:
        found = [places[name] for name in _MODELS if name in places]
        flat = [one for place in found for one in (place if isinstance(place, list) else [place])]
        bases = dict.fromkeys(find_base(one, folder) for one in flat if is_adapter(one))
        if len(bases) > 1:
            raise FileFormatError(
                f"adapters must have one base model; got {', '.join(map(str, bases))}. Merge them, or name models.base."
            )
        places |= {"base": next(iter(bases))} if bases else {}
    return places


def _check_tables(config: AuditConfig, path: Path) -> None:
    has_models = config.models is not None
    if has_models == (config.embeddings is not None):
        found = "both" if has_models else "neither"
        raise FileFormatError(f"{path} must have either [embeddings] or [models] with [data]; got {found}.")
    models, data = config.models, config.data
    if has_models != (data is not None):
        raise FileFormatError(f"{path} must have [data] with [models], and only then. Say which records to embed.")
    if data is None or models is None:
        return
    only_folders = {"base", "dtype", "load_in", "device_map"} & models.model_fields_set
    if models.factory is not None and only_folders:
        raise FileFormatError(
            f"{path} must have {', '.join(sorted(only_folders))} in [models] for folders only; got them with factory."
        )
    is_mixed = data.factory is not None and bool(data.model_fields_set - {"factory"})
    if is_mixed or (data.factory is None and not (data.forget and data.retain)):
        raise FileFormatError(
            f"{path} must have in [data] either factory, or the files forget and retain (and held_out, if you have it)."
        )


def _explain(error: ValidationError, path: Path, settings: list[str]) -> str:
    problems = error.errors(include_url=False, include_input=False)
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])  # the likelier cause
    place = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return f"{path} must hold sound values; got {place}: {first['msg']}."
    table, key = ".".join(map(str, first["loc"][:-1])), str(first["loc"][-1])
    tables: dict[str, type[BaseModel]] = {"": AuditConfig, "models": ModelsTable, "data": DataTable}
    tables |= {"embeddings": EmbeddingsTable, "evidence": EvidenceTable}
    known = settings if table == "settings" else list(tables[table].model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    old = _OLD_EMBEDDINGS.fullmatch(key) if table == "embeddings" else None
    if old:
        advice = f'Write {old[1]} = "DIR", a folder that holds {old[2]}.* and the other sides.'
    elif table == "data" and key == "test":
        advice = "Write held_out: the records that no model was trained on."
    elif table == "settings" and key in _OLD_SETTINGS:
        advice = f"Write {_OLD_SETTINGS[key]}."
    else:
        advice = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(known)}."
    return f"{path} must have known keys only; got {place!r}. {advice}"
