"""Report <-> folder: report.json, report.html and records.parquet, written together or not at all."""

import hashlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.auditing.findings import Report
from ruler.auditing.report.display import make_encodable
from ruler.core.errors import FileFormatError, InputError
from ruler.core.optional import load_optional

if TYPE_CHECKING:
    import pandas as pd

    from ruler.auditing.report.document import ReportDocument

NAMES = ("records.parquet", "report.html", "report.json")
MOST_JSON_BYTES = 256 << 20
MOST_RECORD_BYTES = 4 << 30
_ROWS_AT_ONCE = 8192


def save_report(report: Report, folder: Path) -> Path:
    """Write ``report.json``, ``report.html`` and ``records.parquet``; other files in the folder are left alone.

    All three are prepared first. A new folder then appears whole; in an existing one the files are replaced one after
    the other, and `load_report` refuses a set that was interrupted in between.

    Raises:
        InputError: The folder, or one of the three names in it, is something else already.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder must be a folder; got the file {folder}. Choose another name.")
    for name in NAMES:
        if (folder / name).is_dir():
            raise InputError(f"{folder / name} must be a file or free; got a folder. Move it or choose another folder.")
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


def _render(report: Report) -> dict[str, bytes]:
    load_optional("pydantic", "saving a report")
    load_optional("jinja2", "saving a report")
    from ruler.auditing.report.document import write_document
    from ruler.auditing.report.page import render_page

    records = _write_records(report.records)
    text = write_document(report, records_digest=hashlib.sha256(records).hexdigest())
    page = render_page(report).encode("utf-8", "backslashreplace")
    return dict(zip(NAMES, (records, page, text.encode("utf-8", "backslashreplace")), strict=True))


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
        if any(one["loc"] == ("version",) and one["input"] == 1 for one in found):
            raise FileFormatError(
                f"{expected} version 1, which an older RULER wrote by rules that no longer hold. Audit again."
            ) from error
        place = ".".join(map(str, found[0]["loc"]))[:200] or "the file"
        raise FileFormatError(f"{expected} {place}: {found[0]['msg']}.") from error


def _read_bytes(path: Path, most_bytes: int | None = None) -> bytes:
    if not path.is_file():
        raise FileFormatError(f"{path} must be a file; got nothing there. Name the folder that an audit wrote.")
    if most_bytes is not None and path.stat().st_size > most_bytes:
        raise FileFormatError(f"{path} must be under {most_bytes >> 20} MiB; got {path.stat().st_size >> 20} MiB.")
    return path.read_bytes()


def _write_records(records: "pd.DataFrame") -> bytes:
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
    try:
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
                batches.append(batch)
            table = arrow.Table.from_batches(batches, schema=file.schema_arrow)
    except (arrow.ArrowException, OSError) as error:
        first_line = str(error).partition("\n")[0][:200].rstrip(".")
        raise FileFormatError(f"{path} must be a parquet file; got {first_line}.") from error
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame
