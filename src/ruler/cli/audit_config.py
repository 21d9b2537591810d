"""The TOML file of `ruler audit`: which models or embeddings, which records, which settings."""

import difflib
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ruler.auditing.settings import AuditSettings
from ruler.core.errors import FileFormatError

_STRICT = ConfigDict(extra="forbid", strict=True)
_LARGEST_BYTES = 1 << 20


class ModelsTable(BaseModel):
    """``[models]``: a function that builds the architecture and a checkpoint for each model, or a folder for each."""

    model_config = _STRICT
    factory: str | None = None
    unlearned: str
    oracle: str | None = None
    original: str | None = None
    layer: str | None = None


class DataTable(BaseModel):
    """``[data]``: a function that returns the records, or a file (or a folder of images) for each side."""

    model_config = _STRICT
    factory: str | None = None
    forget: str | None = None
    retain: str | None = None
    test: str | None = None


class EmbeddingsTable(BaseModel):
    """``[embeddings]``: a file for each model and side, named as the options of `ruler audit` are."""

    model_config = _STRICT
    unlearned_forget: str | None = None
    unlearned_retain: str | None = None
    unlearned_held_out: str | None = None
    oracle_forget: str | None = None
    oracle_retain: str | None = None
    oracle_held_out: str | None = None
    original_forget: str | None = None
    original_retain: str | None = None
    original_held_out: str | None = None


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
        raise FileFormatError(f"{path} must be a TOML file; got {found}. Check the path.")
    if path.stat().st_size > _LARGEST_BYTES:
        raise FileFormatError(f"{path} must be under 1 MiB; got {path.stat().st_size:,} bytes. Give the TOML file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{path} must be TOML in UTF-8; got other bytes. Embedding files go into options: see ruler audit --help"
        ) from error


def _check_tables(config: AuditConfig, path: Path) -> None:
    has_models = config.models is not None
    if has_models == (config.embeddings is not None):
        found = "both" if has_models else "neither"
        raise FileFormatError(f"{path} must have either [embeddings] or [models] with [data]; got {found}.")
    if has_models != (config.data is not None):
        raise FileFormatError(f"{path} must have [data] with [models], and only then. Say which records to embed.")
    if config.data is not None:
        _check_data(config.data, path)


def _check_data(data: DataTable, path: Path) -> None:
    has_files = bool(data.forget and data.retain)
    is_mixed = data.factory is not None and any((data.forget, data.retain, data.test))
    if is_mixed or (data.factory is None and not has_files):
        raise FileFormatError(
            f"{path} must have in [data] either factory, or the files forget and retain (and test, if there is one)."
        )


def _explain(error: ValidationError, path: Path) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] != "extra_forbidden":
        return f"{path} must hold sound values; got {place}: {first['msg']}."
    table, key = first["loc"][:-1], str(first["loc"][-1])
    near = difflib.get_close_matches(key, _known_keys(table), n=1)
    advice = f"Did you mean {near[0]!r}?" if near else f"Known are {', '.join(_known_keys(table))}."
    return f"{path} must have known keys only; got {place!r}. {advice}"


def _known_keys(table: tuple[int | str, ...]) -> list[str]:
    tables: dict[tuple[int | str, ...], Any] = {
        (): AuditConfig,
        ("models",): ModelsTable,
        ("data",): DataTable,
        ("embeddings",): EmbeddingsTable,
        ("settings",): SettingsTable,
    }
    return list(tables[table].model_fields)
