"""Tables in files: .csv and .jsonl as rows of text, .parquet as Arrow tables, and both as typed DataFrames."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruler.core.errors import FileFormatError, InputError
from ruler.core.optional import load_optional
from ruler.core.readers.safety import check_unfolded_size, reading_safely

TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet")
_LONGEST_FIELD = (1 << 31) - 1  # what csv takes for a limit on every machine


def read_csv(path: Path) -> list[list[str]]:
    """The lines of a CSV file as fields of text, without empty lines.

    Raises:
        FileFormatError: No such file, or one that is no CSV in UTF-8.
    """
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
    """The records of a ``.csv`` file with a header, all text, or of a ``.jsonl`` file, one JSON object per line.

    Raises:
        FileFormatError: No such file, one that cannot be read, or a line that does not fit.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.csv"
        >>> _ = path.write_text("id,text\\n7,fever\\n")
        >>> read_rows(path)
        [{'id': '7', 'text': 'fever'}]
    """
    if path.suffix.lower() == ".jsonl":
        with reading_safely(path), path.open(encoding="utf-8-sig") as stream:
            rows = [json.loads(line) for line in stream if line.strip()]
        odd = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
        if odd is not None:
            raise FileFormatError(f"{path} must hold one JSON object per line; got another value in line {odd}.")
        return rows
    header, *lines = read_csv(path) or [[]]
    for number, line in enumerate(lines, 1):
        if len(line) > len(header):
            raise FileFormatError(
                f"{path} must have at most the {len(header)} fields of its header in each record; got {len(line)} in "
                f"record {number}. Put quotes around fields with commas."
            )
    return [dict(zip(header, line + [""] * (len(header) - len(line)), strict=True)) for line in lines]


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A ``pyarrow.parquet.ParquetFile`` whose fixed-width columns are known not to unfold beyond bounds.

    Raises:
        FileFormatError: No such file, a broken one, or one that unfolds beyond bounds.
        MissingPackageError: pyarrow is not installed.
    """
    parquet = load_optional("pyarrow.parquet", "reading .parquet")
    with reading_safely(path), parquet.ParquetFile(path) as file:
        n_bits = sum(_bits_of(field.type) for field in file.schema_arrow)
        check_unfolded_size(file.metadata.num_rows * n_bits // 8, path)
        yield file


def read_parquet(path: Path) -> Any:
    """All rows of a ``.parquet`` file as a pyarrow Table; raises as `open_parquet`."""
    arrow = load_optional("pyarrow", "reading .parquet")
    with open_parquet(path) as file:
        batches, n_bytes = [], 0
        for batch in file.iter_batches():
            n_bytes += batch.nbytes
            check_unfolded_size(n_bytes, path)
            batches.append(batch)
        return arrow.Table.from_batches(batches, schema=file.schema_arrow)


def _bits_of(kind: Any) -> int:
    """Bits of one value, as far as its type tells; text and lists of any length count as one."""
    if hasattr(kind, "value_type"):
        return max(1, getattr(kind, "list_size", 1)) * _bits_of(kind.value_type)
    try:
        return int(kind.bit_width)
    except ValueError:
        return 1


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
                table = pandas.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False, **exact)
            except pandas.errors.EmptyDataError:
                table = pandas.DataFrame()
    if 0 in table.shape:
        raise InputError(f"{path} must hold at least one row below its header; got an empty table. Check the file.")
    return table
