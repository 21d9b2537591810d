"""manifest.json: the SHA-256 of all that a report was made from and of all its files, as canonical JSON (RFC 8785)."""

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ruler.auditing.findings import Report, Verdict
from ruler.core import __version__
from ruler.core.errors import FileFormatError

NAME = "manifest.json"
MOST_BYTES = 64 << 20
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_IS_DIGEST = re.compile("[0-9a-f]{64}")
_PACKAGES = (
    *("cryptography", "jinja2", "numpy", "pandas", "pyarrow", "pydantic", "rfc8785", "safetensors", "scikit-learn"),
    *("scipy", "torch", "transformers"),
)
M = TypeVar("M", bound="Part")


class Part(BaseModel):
    """A part of a sealed file: no unknown keys, no conversions."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)


class Code(Part):
    """What made the report: RULER's version, the SHA-256 of its source, and of constraints.txt in a checkout."""

    version: str
    sha256: Digest
    constraints: Digest | None


class Environment(Part):
    """Where the report was saved."""

    python: str
    platform: str
    packages: dict[str, str]


class Content(Part):
    """All that the report says and rests on. Its SHA-256 is the fingerprint that the page shows."""

    verdict: Verdict
    created_at: str
    report: Digest
    records: Digest
    settings: Digest
    inputs: dict[str, Digest]
    arrays: dict[str, Digest]
    names: dict[str, Digest]
    code: Code
    environment: Environment


class Manifest(Part):
    """The whole file: the content, and the SHA-256 of every file of the report but the manifest and its seal."""

    format: Literal["ruler-manifest"] = "ruler-manifest"
    version: Literal[1] = 1
    content: Content
    files: dict[str, Digest]

    @property
    def fingerprint(self) -> str:
        """What the page shows, and what stands for the whole report."""
        return take_fingerprint(self.content)


def hash_bytes(content: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def take_fingerprint(content: Content) -> str:
    """SHA-256 of the canonical JSON of the content."""
    return hash_bytes(rfc8785.dumps(content.model_dump()))


def describe_content(report: Report, *, document: bytes, records: bytes) -> Content:
    """The content of a report whose files were written.

    Args:
        report: What they hold.
        document: The bytes of report.json.
        records: The bytes of records.parquet.
    """
    known = report.provenance
    return Content(
        verdict=report.verdict,
        created_at=str(known.get("created_at", "")),
        report=hash_bytes(document),
        records=hash_bytes(records),
        settings=hash_bytes(rfc8785.dumps(vars(report.settings))),
        inputs=dict(find_digests(known.get("inputs"))),
        arrays=dict(find_digests(known.get("arrays"))),
        names=dict(find_digests(known.get("names"))),
        code=describe_code(),
        environment=_describe_environment(),
    )


def write_canonical(part: Part) -> bytes:
    """A manifest or seal as canonical JSON, the same bytes for the same content."""
    return rfc8785.dumps(part.model_dump(by_alias=True))


def read_canonical(kind: type[M], path: Path) -> M:
    """A manifest or seal that `write_canonical` wrote.

    Raises:
        FileFormatError: Not there, too large, of another form, or not in canonical form to the byte.
    """
    if not path.is_file():
        raise FileFormatError(f"{path.name} must be a file in {path.parent}; got nothing there.")
    if path.stat().st_size > MOST_BYTES:
        raise FileFormatError(f"{path.name} must be under {MOST_BYTES >> 20} MiB; got {path.stat().st_size:,} bytes.")
    content = path.read_bytes()
    try:
        part = kind.model_validate_json(content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, found["loc"]))[:200] or "the file"
        raise FileFormatError(f"{path.name} must be as RULER writes it; got {place}: {found['msg']}.") from error
    if write_canonical(part) != content:
        raise FileFormatError(f"{path.name} must be canonical JSON, to the byte; got other spaces, order or numbers.")
    return part


def find_digests(entries: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every SHA-256 in a part of the provenance, by its place, such as "unlearned/forget"."""
    digest = entries.get("sha256") if isinstance(entries, Mapping) else entries
    if isinstance(digest, str) and _IS_DIGEST.fullmatch(digest):
        yield path, digest
    elif isinstance(entries, Mapping):
        for name, entry in entries.items():
            yield from find_digests(entry, f"{path}/{name}" if path else str(name))


@cache
def _hash_code() -> str:
    """SHA-256 over the name and content of every file of the package, in order."""
    digest = hashlib.sha256()
    root = Path(str(files("ruler")))
    for path in sorted(one for one in root.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
        digest.update(f"{path.relative_to(root).as_posix()}\n{hash_bytes(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def describe_code() -> Code:
    """The code that runs now."""
    path = Path(str(files("ruler"))).parents[1] / "constraints.txt"
    constraints = hash_bytes(path.read_bytes()) if path.is_file() else None
    return Code(version=__version__, sha256=_hash_code(), constraints=constraints)


@cache  # the version of a package is in a long text that takes 10 ms to read
def _describe_environment() -> Environment:
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return Environment(python=platform.python_version(), platform=platform.platform(), packages=packages)
