"""Tables in files: .csv and .jsonl as rows of text, .parquet as Arrow tables, and both as typed DataFrames."""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ruler.core.errors import FileFormatError, InputError
from ruler.core.optional import load_optional
from ruler.core.readers.pages import check_pages
from ruler.core.readers.safety import check_unfolded_size, reading_safely

TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_LONGEST_FIELD = (1 << 31) - 1  # what csv takes for a limit on every machine
_BYTES_PER_CELL = 64  # of a row of text in Python, at least
_BYTES_PER_VALUE = 8
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 8192, 64 << 20


def read_csv(path: Path) -> list[list[str]]:
    """The lines of a CSV file as fields of text, without empty lines."""
    limit = csv.field_size_limit()
    with reading_safely(path):
        # fields as long as the file, not 131,072 characters; the limit is the process's, so it is put back
        csv.field_size_limit(max(limit, min(path.stat().st_size, _LONGEST_FIELD)))
        try:
            with path.open(newline="", encoding="utf-8-sig") as stream:
                return [row for row in csv.reader(stream, strict=True) if row]
        finally:
            csv.field_size_limit(limit)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The records of a ``.csv`` file with a header, all text, or of a ``.jsonl`` or ``.jsonl.gz`` file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_text("id,text\\n7,fever\\n")
        >>> read_rows(path)
        [{'id': '7', 'text': 'fever'}]
    """
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        return read_json_lines(path)
    header, *lines = read_csv(path) or [[]]
    for number, line in enumerate(lines, 1):
        if len(line) > len(header):
            raise FileFormatError(
                f"{path} must have at most the {len(header)} fields of its header in each record; got {len(line)} in "
                f"record {number}. Put quotes around fields with commas."
            )
    check_unfolded_size(len(lines) * len(header) * _BYTES_PER_CELL, path)  # short lines are filled up
    return [dict(zip(header, line + [""] * (len(header) - len(line)), strict=True)) for line in lines]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file with one JSON object per line, whatever its ending; gzipped if that is ``.gz``."""
    with reading_safely(path):
        text = io.TextIOWrapper(io.BytesIO(_unpack(path)), encoding="utf-8-sig")
        rows = [json.loads(line) for line in text if line.strip()]
    odd = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
    if odd is not None:
        raise FileFormatError(f"{path} must hold one JSON object per line; got another value in line {odd}.")
    return rows


@dataclass(frozen=True)
class ParquetTable:
    """An open ``.parquet`` file whose pages are known not to unfold beyond bounds."""

    path: Path
    file: Any

    @property
    def schema(self) -> Any:
        """Of the columns, a ``pyarrow.Schema``."""
        return self.file.schema_arrow

    def iterate(self, n_rows: int = _ROWS_AT_ONCE, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Batches of at most ``n_rows`` rows, as long as all so far unfold within bounds."""
        n_bytes = 0
        for batch in self.file.iter_batches(n_rows, columns=columns):
            batch.validate(full=True)  # text that is no text, for one
            n_bytes += sum(measure_unfolded(column) for column in batch.columns)
            check_unfolded_size(n_bytes, self.path)
            yield batch


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetTable]:
    """The rows of a ``.parquet`` file, not read yet."""
    parquet = load_optional("pyarrow.parquet", "reading .parquet")
    with reading_safely(path), path.open("rb") as stream:
        check_pages(stream, path)
    with reading_safely(path), parquet.ParquetFile(path) as file:
        if len(set(file.schema_arrow.names)) < len(file.schema_arrow.names):
            raise FileFormatError(f"{path} must have columns of different names; got one twice. Rename it.")
        yield ParquetTable(path, file)


def measure_unfolded(column: Any) -> int:
    """Bytes of a pyarrow array once texts that it shares between rows are copies of their own.

    Example:
        >>> import pyarrow
        >>> measure_unfolded(pyarrow.array(["a" * 92, "a" * 92]).dictionary_encode())
        200
    """
    arrow = load_optional("pyarrow", "reading a table")
    if arrow.types.is_dictionary(column.type):
        if arrow.types.is_primitive(column.type.value_type):
            return _BYTES_PER_VALUE * len(column)
        lengths = load_optional("pyarrow.compute", "reading a table").binary_length(column.dictionary)
        return _BYTES_PER_VALUE * len(column) + (lengths.take(column.indices).cast("int64").sum().as_py() or 0)
    if arrow.types.is_struct(column.type):
        return sum(map(measure_unfolded, column.flatten()))
    if any(word in str(column.type) for word in ("view", "run_end_encoded")):
        raise InputError(
            f"columns must hold their own values; got {column.type}, which may share them. Write them out."
        )
    if arrow.types.is_list(column.type) or arrow.types.is_large_list(column.type):
        return _BYTES_PER_VALUE * len(column) + measure_unfolded(column.flatten())
    return max(_BYTES_PER_VALUE * len(column), int(column.nbytes))


def read_parquet(path: Path) -> Any:
    """All rows of a ``.parquet`` file as a pyarrow Table; raises as `open_parquet`."""
    arrow = load_optional("pyarrow", "reading .parquet")
    with open_parquet(path) as table:
        return arrow.Table.from_batches(table.iterate(), schema=table.schema)


def read_table(path: Path) -> Any:
    """A CSV or parquet file as a DataFrame: its columns as they are, only the empty string missing.

    Returns:
        DataFrame with at least one row and one column.

    Raises:
        InputError: No such file, or nothing in it.
        FileFormatError: Not a table that can be read.
    """
    pandas = load_optional("pandas", "reading a table")
    if not path.is_file():
        raise InputError(f"path must be an existing file; got {str(path)!r}. Check the spelling and the folder.")
    if not path.name.lower().endswith(TABLE_SUFFIXES):
        raise FileFormatError(
            f"path must end in {', '.join(TABLE_SUFFIXES)}; got {path.name!r}. Save the table in one of these forms."
        )
    with reading_safely(path):
        if path.name.lower().endswith(".parquet"):
            with open_parquet(path):
                pass  # checks its size before pandas reads all of it
            table = pandas.read_parquet(path, engine="pyarrow")
        else:
            # Content is hashed, so numbers must be parsed to the nearest float; from pandas 3.1 on they always are.
            version = tuple(map(int, pandas.__version__.split(".")[:2]))
            exact = {} if version >= (3, 1) else {"float_precision": "round_trip"}
            try:
                table = pandas.read_csv(
                    _open_text(path), keep_default_na=False, na_values=[""], low_memory=False, **exact
                )
            except pandas.errors.EmptyDataError:
                table = pandas.DataFrame()
    if 0 in table.shape:
        raise InputError(f"{path} must hold at least one row below its header; got an empty table. Check the file.")
    return table


def _open_text(path: Path) -> IO[bytes]:
    """The bytes of a CSV file, unpacked if need be, once rows as wide as its header fit into memory."""
    text = _unpack(path)
    n_columns = text.partition(b"\n")[0].count(b",") + 1
    check_unfolded_size(text.count(b"\n") * n_columns * _BYTES_PER_VALUE, path)
    return io.BytesIO(text)


def _unpack(path: Path) -> bytes:
    """All bytes of a file, of its content if it is gzipped, as long as that unfolds within bounds."""
    unpack = gzip.open if path.name.lower().endswith(".gz") else open
    content = io.BytesIO()
    with unpack(path, "rb") as stream:
        while block := stream.read(_BYTES_AT_ONCE >> 6):
            content.write(block)
            check_unfolded_size(content.tell(), path)
    return content.getvalue()
