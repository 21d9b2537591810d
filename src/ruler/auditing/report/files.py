"""Report <-> folder: three files that are written together or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.auditing.findings import Report
from ruler.auditing.report.records_file import read_records, write_records
from ruler.core.errors import FileFormatError, InputError
from ruler.core.optional import load_optional

if TYPE_CHECKING:
    from ruler.auditing.report.document import ReportDocument

NAMES = ("records.parquet", "report.html", "report.json")
_MOST_JSON_BYTES = 256 << 20


def save_report(report: Report, folder: Path) -> Path:
    """Write ``report.json``, ``report.html`` and ``records.parquet``; other files in the folder are left alone.

    Everything is made ready first. A new folder then appears whole; in one that is there, the files change places
    one after the other, and `load_report` refuses a set that was torn in between.

    Args:
        report: Of an audit.
        folder: Where to; made if missing.

    Returns:
        The folder.

    Raises:
        InputError: The folder, or one of the three names in it, is something else already.
    """
    folder = Path(folder)
    _check_free(folder)
    contents = _render(report)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".writing-"))
    try:
        for name, content in contents.items():
            (aside / name).write_bytes(content)
        if folder.exists():
            for name in contents:
                os.replace(aside / name, folder / name)
        else:
            os.chmod(aside, 0o755)
            os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _check_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder must be a folder; got the file {folder}. Choose another name.")
    for name in NAMES:
        if (folder / name).is_dir():
            raise InputError(f"{folder / name} must be a file or free; got a folder. Move it or choose another folder.")


def _render(report: Report) -> dict[str, bytes]:
    load_optional("pydantic", "saving a report")
    load_optional("jinja2", "saving a report")
    from ruler.auditing.report.document import write_document
    from ruler.auditing.report.page import render_page

    records = write_records(report.records)
    text = write_document(report, records_digest=hashlib.sha256(records).hexdigest())
    page = render_page(report).encode("utf-8", "backslashreplace")
    return dict(zip(NAMES, (records, page, text.encode("utf-8", "backslashreplace")), strict=True))


def describe_report(report: Report) -> dict[str, Any]:
    """What report.json holds, as plain Python that JSON can carry: numbers that are not known are the text "NaN".

    Args:
        report: Of an audit.

    Returns:
        The content of report.json without the SHA-256 of the records, which are not written here.
    """
    load_optional("pydantic", "describing a report")
    from ruler.auditing.report.document import write_document

    content: dict[str, Any] = json.loads(write_document(report, records_digest=64 * "0"))
    del content["records"]["sha256"]
    return content


def load_report(folder: Path) -> Report:
    """The report that `save_report` wrote; nothing in its files is executed.

    Args:
        folder: With ``report.json`` and ``records.parquet``.

    Raises:
        FileFormatError: A file is missing, broken, or not of the same report as the other.
    """
    folder = Path(folder)
    load_optional("pydantic", "loading a report")
    from ruler.auditing.report.document import read_document

    document = _read_document_file(folder / "report.json")
    path = folder / document.records.file
    content = _read_bytes(path)
    if hashlib.sha256(content).hexdigest() != document.records.sha256:
        raise FileFormatError(
            f"{path} must be the file that report.json names by its SHA-256; got another. "
            "Restore both files from the same report."
        )
    records = read_records(content, document.records.columns, document.records.n_records, source=str(path))
    return read_document(document, records)


def _read_document_file(path: Path) -> "ReportDocument":
    from pydantic import ValidationError

    from ruler.auditing.report.document import VERSION, ReportDocument

    content = _read_bytes(path, most_bytes=_MOST_JSON_BYTES)
    try:
        return ReportDocument.model_validate_json(content)
    except InputError as error:
        raise FileFormatError(f"{path} must hold sound settings; got: {error}") from error
    except ValidationError as error:
        found = error.errors(include_url=False)
        if any(one["loc"] == ("version",) and one["input"] == 1 for one in found):
            raise FileFormatError(
                f"{path} must be a RULER report of version {VERSION}; got version 1, which an older RULER wrote by "
                "rules that no longer hold. Audit again."
            ) from error
        first = found[0]
        place = ".".join(map(str, first["loc"]))[:200] or "the file"
        raise FileFormatError(
            f"{path} must be a RULER report of version {VERSION}; got {place}: {first['msg']}."
        ) from error


def _read_bytes(path: Path, most_bytes: int | None = None) -> bytes:
    if not path.is_file():
        raise FileFormatError(f"{path} must be a file; got nothing there. Name the folder that an audit wrote.")
    if most_bytes is not None and path.stat().st_size > most_bytes:
        raise FileFormatError(f"{path} must be under {most_bytes >> 20} MiB; got {path.stat().st_size >> 20} MiB.")
    return path.read_bytes()
