"""The TOML file of `ruler audit`: which models or embeddings, which records, which settings."""

import difflib
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ruler.auditing.settings import AuditSettings
from ruler.core.errors import FileFormatError

_STRICT = ConfigDict(extra="forbid", strict=True)
_LARGEST_BYTES = 1 << 20
_OLD_EMBEDDINGS = re.compile(r"(unlearned|oracle|original)_(forget|retain|held_out)")


class ModelsTable(BaseModel):
    """``[models]``: a function that builds the architecture and a checkpoint for each model, or a folder for each."""

    model_config = _STRICT
    factory: str | None = None
    unlearned: str
    oracle: str | list[str] | None = None
    original: str | None = None
    layer: str | list[str] | None = None


class DataTable(BaseModel):
    """``[data]``: a function that returns the records, or a file (or a folder of images) for each side.

    ``label`` and ``strata`` name columns of tables of texts, where these are not called so.
    """

    model_config = _STRICT
    factory: str | None = None
    forget: str | None = None
    retain: str | None = None
    held_out: str | None = None
    label: str | None = None
    strata: str | None = None


class EmbeddingsTable(BaseModel):
    """``[embeddings]``: a folder for each model, and the column that serves as strata, for `load_model_folder`."""

    model_config = _STRICT
    unlearned: str
    oracle: str | list[str] | None = None
    original: str | None = None
    strata: str | None = None


_SETTINGS: Any = {name: (kind, None) for name, kind in AuditSettings.__annotations__.items()}
SettingsTable: Any = create_model("SettingsTable", __config__=_STRICT, **_SETTINGS)


class AuditConfig(BaseModel):
    """The whole file: ``[embeddings]``, or ``[models]`` with ``[data]``; ``groups`` and ``[settings]`` as needed."""

    model_config = _STRICT
    embeddings: EmbeddingsTable | None = None
    models: ModelsTable | None = None
    data: DataTable | None = None
    settings: SettingsTable | None = None
    groups: str | None = None

    def make_settings(self) -> AuditSettings:
        """The settings, checked by their own rules.

        Raises:
            InputError: A value out of its range.
        """
        return AuditSettings(**(self.settings.model_dump(exclude_unset=True) if self.settings else {}))


def read_config(path: Path) -> AuditConfig:
    """The configuration in a TOML file. Paths in it are as written: they lie relative to the file itself.

    Args:
        path: Of the file.

    Raises:
        FileFormatError: Not there, not TOML, a key that nobody knows, a value of the wrong kind, or tables that do not
            go together.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "audit.toml"
        >>> _ = path.write_text('[embedings]')
        >>> read_config(path)
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: ... must have known keys only; got 'embedings'. Did you mean 'embeddings'?
    """
    try:
        config = AuditConfig.model_validate(tomllib.loads(_read_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{path} must be TOML; got {error}.") from error
    except ValidationError as error:
        raise FileFormatError(_explain(error, path)) from error
    _check_tables(config, path)
    return config


def _read_text(path: Path) -> str:
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing there"
        advice = "Folders of embeddings go into --unlearned and --oracle." if path.is_dir() else "Check the path."
        raise FileFormatError(f"{path} must be a TOML file; got {found}. {advice}")
    if path.stat().st_size > _LARGEST_BYTES:
        raise FileFormatError(f"{path} must be under 1 MiB; got {path.stat().st_size:,} bytes. Give the TOML file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path} must be TOML in UTF-8; got other bytes. Embeddings go into --unlearned and --oracle, as folders."
        ) from error


def _check_tables(config: AuditConfig, path: Path) -> None:
    has_models = config.models is not None
    if has_models == (config.embeddings is not None):
        found = "both" if has_models else "neither"
        raise FileFormatError(f"{path} must have either [embeddings] or [models] with [data]; got {found}.")
    if has_models != (config.data is not None):
        raise FileFormatError(f"{path} must have [data] with [models], and only then. Say which records to embed.")
    data = config.data
    if data is None:
        return
    has_files = bool(data.forget and data.retain)
    is_mixed = data.factory is not None and any((data.forget, data.retain, data.held_out, data.label, data.strata))
    if is_mixed or (data.factory is None and not has_files):
        raise FileFormatError(
            f"{path} must have in [data] either factory, or the files forget and retain (and held_out, if you have it)."
        )


def _explain(error: ValidationError, path: Path) -> str:
    problems = error.errors(include_url=False, include_input=False)
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])  # the likelier cause
    place = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return f"{path} must hold sound values; got {place}: {first['msg']}."
    table, key = first["loc"][:-1], str(first["loc"][-1])
    known = list(_TABLES[table].model_fields)
    near = difflib.get_close_matches(key, known, n=1)
    old = _OLD_EMBEDDINGS.fullmatch(key) if table == ("embeddings",) else None
    if old:
        advice = f'Write {old[1]} = "DIR", a folder that holds {old[2]}.* and the other sides.'
    elif table == ("data",) and key == "test":
        advice = "Write held_out: the records that no model was trained on."
    else:
        advice = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(known)}."
    return f"{path} must have known keys only; got {place!r}. {advice}"


_TABLES: dict[tuple[int | str, ...], Any] = {
    (): AuditConfig,
    ("models",): ModelsTable,
    ("data",): DataTable,
    ("embeddings",): EmbeddingsTable,
    ("settings",): SettingsTable,
}
