"""Report <-> folder: report.json, report.html, records.parquet and their manifest, written together or not at all."""

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.auditing.findings import Extra, Report
from ruler.auditing.report.display import make_encodable
from ruler.auditing.report.pdf import find_browser, print_page
from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import writing_safely
from ruler.core.optional import load_optional
from ruler.core.readers.pages import check_pages
from ruler.core.readers.safety import reading_safely

if TYPE_CHECKING:
    import pandas as pd
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from ruler.auditing.report.document import ReportDocument
    from ruler.auditing.seal.manifest import Content

NAMES = ("records.parquet", "report.html", "report.json", "manifest.json")
EXTRA_NAMES: dict[Extra, str] = {"pdf": "report.pdf", "sarif": "report.sarif", "junit": "junit.xml"}
SEAL_NAMES = ("seal.json", "seal.tsr")
MOST_JSON_BYTES = 256 << 20
MOST_RECORD_BYTES = 4 << 30
_ROWS_AT_ONCE = 8192


def save_report(report: Report, folder: Path, *, sign_with: Path | None = None, also: Sequence[Extra] = ()) -> Path:
    """Write a report; arguments as `Report.save`. Files in the folder that are not of a report are left alone.

    All files are prepared first. A new folder then appears whole; in an existing one the files are replaced one after
    the other, manifest and seal last, so that a set that was interrupted in between does not pass `ruler verify`.

    Raises:
        InputError: The folder, or one of the names in it, is something else already; or an extra that is not known.
        FileFormatError: Not a private key.
        WriteError: The disk is full, or the folder is read-only.
    """
    also = check_extras(also, "also")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder must be a folder; got the file {folder}. Choose another name.")
    for name in (*NAMES, *EXTRA_NAMES.values(), *SEAL_NAMES):
        if (folder / name).is_dir():
            raise InputError(f"{folder / name} must be a file or free; got a folder. Move it or choose another folder.")
    key = None
    if sign_with is not None:
        from ruler.auditing.seal.signature import load_private_key

        key = load_private_key(sign_with)
    contents, content = _render(report, also)
    with writing_safely(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".writing-"))
        try:
            for name, text in contents.items():
                (aside / name).write_bytes(text)
            if "pdf" in also:
                contents["report.pdf"] = print_page(aside / "report.html", aside / "report.pdf")
            for name, text in _seal(contents, content, key).items():
                contents[name] = text
                (aside / name).write_bytes(text)
            _move(aside, folder, list(contents))
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return folder


def _move(aside: Path, folder: Path, names: Sequence[str]) -> None:
    """Put a report in its place: a new folder at once, in an existing one file by file in the order of the names."""
    if not folder.exists():
        os.chmod(aside, 0o755)
        try:
            os.rename(aside, folder)
            return
        except OSError:
            if not folder.is_dir():  # otherwise another audit was faster
                raise
    for name in {*EXTRA_NAMES.values(), *SEAL_NAMES}.difference(names):
        (folder / name).unlink(missing_ok=True)  # of an earlier report
    for name in names:
        os.replace(aside / name, folder / name)


def check_extras(names: Iterable[str], argument: str) -> list[Extra]:
    """The kinds of files that a report is saved as beside the usual ones, checked; a PDF needs a browser.

    Raises:
        InputError: Another kind, or a PDF without a Chromium.

    Example:
        >>> check_extras(["word"], "also")
        Traceback (most recent call last):
        ruler.core.errors.InputError: also must be one of pdf, sarif, junit; got 'word'.
    """
    found: list[Extra] = []
    for name in [names] if isinstance(names, str) else names:
        if name not in EXTRA_NAMES:
            raise InputError(f"{argument} must be one of {', '.join(EXTRA_NAMES)}; got {name!r}.")
        if name == "pdf":
            find_browser()
        found.append(name)
    return found


def _render(report: Report, also: Sequence[Extra]) -> tuple[dict[str, bytes], "Content"]:
    """The files of a report by name, and what they say for the manifest."""
    for package in ("pydantic", "jinja2", "rfc8785"):
        load_optional(package, "saving a report")
    from ruler.auditing.report.document import ReportDocument, read_document, write_document
    from ruler.auditing.seal.manifest import describe_content, take_fingerprint

    records = write_records(report.records)
    text = write_document(report, records_digest=hashlib.sha256(records).hexdigest())
    document = text.encode("utf-8", "backslashreplace")
    content = describe_content(report, document=document, records=records)
    parsed = ReportDocument.model_validate_json(document)
    saved = read_document(parsed, _read_records(records, parsed, Path("records.parquet")))
    pages = render_files(saved, take_fingerprint(content), [EXTRA_NAMES[extra] for extra in also])
    return {"records.parquet": records, "report.json": document, **pages}, content


def render_files(report: Report, fingerprint: str, names: Collection[str]) -> dict[str, bytes]:
    """What follows from report.json and records.parquet alone: the page and, where named, the files for pipelines.

    Args:
        report: As `load_report` gives it.
        fingerprint: Of its manifest.
        names: ``report.sarif`` and ``junit.xml`` are rendered if they are among these.
    """
    from ruler.auditing.report.page import render_page
    from ruler.auditing.report.pipelines import write_junit, write_sarif

    pages = {"report.html": render_page(report, fingerprint=fingerprint).encode("utf-8", "backslashreplace")}
    writers = {"report.sarif": write_sarif, "junit.xml": write_junit}
    return pages | {name: write(report) for name, write in writers.items() if name in names}


def _seal(contents: Mapping[str, bytes], content: "Content", key: "Ed25519PrivateKey | None") -> dict[str, bytes]:
    """manifest.json, and seal.json where there is a key."""
    from ruler.auditing.seal.manifest import Manifest, hash_bytes, write_canonical

    manifest = Manifest(content=content, files={name: hash_bytes(text) for name, text in contents.items()})
    written = {"manifest.json": write_canonical(manifest)}
    if key is None:
        return written
    from ruler.auditing.seal.signature import sign

    return written | {"seal.json": sign(manifest, key)}


def describe_report(report: Report) -> dict[str, Any]:
    """The content of report.json as plain Python, without the SHA-256 of the records, which are not written here."""
    load_optional("pydantic", "describing a report")
    from ruler.auditing.report.document import write_document

    content: dict[str, Any] = json.loads(write_document(report, records_digest=64 * "0"))
    del content["records"]["sha256"]
    return content


def load_report(folder: Path) -> Report:
    """The report that `save_report` wrote; nothing in its files is executed.

    Raises:
        FileFormatError: A file is missing, broken, or not of the same report as the other.
    """
    load_optional("pydantic", "loading a report")
    from ruler.auditing.report.document import read_document

    document = _read_document_file(Path(folder) / "report.json")
    path = Path(folder) / document.records.file
    content = _read_bytes(path)
    if hashlib.sha256(content).hexdigest() != document.records.sha256:
        raise FileFormatError(
            f"{path} must be the file that report.json names by its SHA-256; got another. "
            "Restore both files from the same report."
        )
    return read_document(document, _read_records(content, document, path))


def _read_document_file(path: Path) -> "ReportDocument":
    from pydantic import ValidationError

    from ruler.auditing.report.document import VERSION, ReportDocument

    content = _read_bytes(path, most_bytes=MOST_JSON_BYTES)
    try:
        return ReportDocument.model_validate_json(content)
    except InputError as error:
        raise FileFormatError(f"{path} must hold sound settings; got: {error}") from error
    except ValidationError as error:
        expected = f"{path} must be a RULER report of version {VERSION}; got"
        found = error.errors(include_url=False)
        past = [one["input"] for one in found if one["loc"] == ("version",) and one["input"] in range(1, VERSION)]
        if past:
            raise FileFormatError(
                f"{expected} version {past[0]}, written by rules that no longer hold. Audit again."
            ) from error
        place = ".".join(map(str, found[0]["loc"]))[:200] or "the file"
        raise FileFormatError(f"{expected} {place}: {found[0]['msg']}.") from error


def _read_bytes(path: Path, most_bytes: int | None = None) -> bytes:
    if not path.is_file():
        raise FileFormatError(f"{path} must be a file; got nothing there. Name the folder that an audit wrote.")
    if most_bytes is not None and path.stat().st_size > most_bytes:
        raise FileFormatError(f"{path} must be under {most_bytes >> 20} MiB; got {path.stat().st_size >> 20} MiB.")
    return path.read_bytes()


def write_records(records: "pd.DataFrame") -> bytes:
    """The bytes of records.parquet; the same records always give the same bytes."""
    arrow = load_optional("pyarrow", "saving a report")
    parquet = load_optional("pyarrow.parquet", "saving a report")

    def convert(values: "pd.Series[Any]") -> Any:
        is_float = getattr(values.dtype, "kind", "") == "f"  # NaN stays NaN: null is for text that is not there
        try:
            return arrow.array(values, from_pandas=not is_float)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, UnicodeEncodeError):
            # ids of several types, or text that UTF-8 cannot hold: keep what can be read of them
            return arrow.array([None if value is None else make_encodable(value) for value in values], arrow.string())

    table = arrow.Table.from_arrays([convert(records[name]) for name in records], names=list(map(str, records)))
    stream = io.BytesIO()
    parquet.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def _read_records(content: bytes, document: "ReportDocument", path: Path) -> "pd.DataFrame":
    """The records in the bytes of a records.parquet, if they are those that report.json names and of bounded size."""
    arrow = load_optional("pyarrow", "loading a report")
    parquet = load_optional("pyarrow.parquet", "loading a report")
    load_optional("pandas", "loading a report")
    with reading_safely(path):
        check_pages(io.BytesIO(content), path)
        with parquet.ParquetFile(io.BytesIO(content)) as file:
            n_rows, names = file.metadata.num_rows, file.schema_arrow.names
            if n_rows != document.records.n_records or names != document.records.columns:
                raise FileFormatError(
                    f"{path} must hold the {document.records.n_records} records and the columns that report.json "
                    f"names; got {n_rows} rows, columns {', '.join(names)[:200]}. "
                    "Restore both files from the same report."
                )
            batches, n_bytes = [], 0
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                n_bytes += batch.nbytes
                if n_bytes > MOST_RECORD_BYTES:
                    raise FileFormatError(
                        f"{path} must unpack to at most {MOST_RECORD_BYTES >> 30} GiB; got more. "
                        "It does not look like records."
                    )
                batch.validate(full=True)
                batches.append(batch)
            table = arrow.Table.from_batches(batches, schema=file.schema_arrow)
        frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
        return frame
