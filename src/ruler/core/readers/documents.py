"""TOML and JSON files from others: bounded in size and nesting before they are parsed."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from ruler.core.errors import FileFormatError
from ruler.core.readers.safety import check_at_most, limit, reading_safely, say_how_to_raise

_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "audit.toml"
        >>> _ = path.write_text("a" + ".a" * 100_000 + " = 1")
        >>> read_toml(path)
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: ... must have keys of at most 16 parts; got a longer one in line 1. ...
    """
    return parse_toml(read_toml_text(path), str(path))


def read_toml_text(path: Path) -> str:
    """The text of a TOML file, not parsed yet; raises as `read_toml`."""
    with reading_safely(path, "TOML file"):
        check_at_most(path.stat().st_size, "toml_bytes", path, "bytes")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise FileFormatError(
                f"{path} must be TOML in UTF-8; got other bytes. Embeddings go into --unlearned and --oracle, as "
                "folders."
            ) from None


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The content of TOML text; ``source`` names it in errors."""
    most = limit("toml_key_parts")
    long_key = re.search(rf"(?<![\w\\-]){_PART}(?:\.[ \t]*+{_PART}){{{most}}}", text)
    if long_key:
        line = text.count("\n", 0, long_key.start()) + 1
        raise FileFormatError(
            f"{source} must have keys of at most {most} parts; got a longer one in line {line}. "
            f"{say_how_to_raise('toml_key_parts')}"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{source} must be TOML; got {error}.") from error
    except RecursionError:
        raise FileFormatError(f"{source} must be TOML; got values that nest too deeply.") from None
    except ValueError as error:  # a date that no calendar has, or a number of thousands of digits
        raise FileFormatError(f"{source} must be TOML; got a value that cannot be held: {error}.") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "state.json"
        >>> _ = path.write_text("[" * 100_000)
        >>> read_json(path)
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: ... must be a sound JSON file; it nests too deeply. Write it again.
    """
    content = _load_json(path)
    if not isinstance(content, dict):
        raise FileFormatError(f"{path} must hold a JSON object; got {type(content).__name__}. Write it again.")
    return content


def read_json_list(path: Path) -> list[dict[str, Any]]:
    """The objects that a JSON file lists; raises as `read_json`."""
    content = _load_json(path)
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise FileFormatError(f"{path} must hold a list of JSON objects; got something else. Write it again.")
    return content


def _load_json(path: Path) -> Any:
    with reading_safely(path, "JSON file"):
        check_at_most(path.stat().st_size, "json_bytes", path, "bytes")
        return json.loads(path.read_text(encoding="utf-8"))
