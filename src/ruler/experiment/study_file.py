"""Studies <-> ``study.toml``: the settings that a results folder was made with."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.experiment.settings import StudySettings


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
    pydantic = load_optional("pydantic", "reading a study file")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{source} must be TOML; got {error}.") from error
    tables = content.pop("study", None)
    if content or not isinstance(tables, list) or not tables:
        raise FileFormatError(f"{source} must hold [[study]] tables and nothing else; got {sorted(content) or 'none'}.")
    return tuple(_parse_study(table, pydantic, source) for table in tables)


def _parse_study(table: Any, pydantic: Any, source: str) -> StudySettings:
    # pydantic reads the fields; the class itself keeps the rules, so that both ways of making one agree
    fields = {name: (kind, ...) for name, kind in StudySettings.__annotations__.items() if name in table}
    strict = pydantic.create_model("StudyTable", __config__=pydantic.ConfigDict(extra="forbid"), **fields)
    try:
        values = strict.model_validate(table).model_dump()
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FileFormatError(f"{source} must hold valid settings; got {place}: {first['msg']}.") from error
    if "name" not in values:
        raise FileFormatError(f"{source} must name each study; got a [[study]] table without name.")
    return StudySettings(**values)


def read_studies(path: str | Path) -> tuple[StudySettings, ...]:
    """Studies from a file that `format_studies` wrote, or a person."""
    return parse_studies(Path(path).read_text(encoding="utf-8"), source=str(path))
