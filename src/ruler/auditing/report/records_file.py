"""Records <-> records.parquet, one row per forget record."""

import io
from typing import TYPE_CHECKING, Any

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional

if TYPE_CHECKING:
    import pandas as pd

_MOST_BYTES = 4 << 30
_ROWS_AT_ONCE = 8192


def write_records(records: "pd.DataFrame") -> bytes:
    """The bytes of records.parquet; the same records always give the same bytes."""
    arrow = load_optional("pyarrow", "saving a report")
    parquet = load_optional("pyarrow.parquet", "saving a report")
    columns = [_as_column(records[name], arrow) for name in records.columns]
    table = arrow.Table.from_arrays(columns, names=[str(name) for name in records.columns])
    stream = io.BytesIO()
    parquet.write_table(table, stream, compression="zstd")
    return stream.getvalue()


def _as_column(values: "pd.Series[Any]", arrow: Any) -> Any:
    try:
        return arrow.array(values, from_pandas=not _is_float(values))
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, UnicodeEncodeError):
        # ids of several kinds, or text that UTF-8 cannot hold: keep what can be read of them
        return arrow.array([None if value is None else _as_utf8(value) for value in values], arrow.string())


def _is_float(values: "pd.Series[Any]") -> bool:
    return getattr(values.dtype, "kind", "") == "f"  # NaN stays NaN: null is for text that is not there


def _as_utf8(value: Any) -> str:
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def read_records(content: bytes, columns: list[str], n_records: int, *, source: str) -> "pd.DataFrame":
    """The records in the bytes of a records.parquet.

    Raises:
        FileFormatError: Not parquet, other columns or rows than said, or far larger than it looks.
    """
    arrow = load_optional("pyarrow", "loading a report")
    parquet = load_optional("pyarrow.parquet", "loading a report")
    load_optional("pandas", "loading a report")
    try:
        with parquet.ParquetFile(io.BytesIO(content)) as file:
            if file.metadata.num_rows != n_records or file.schema_arrow.names != columns:
                raise FileFormatError(
                    f"{source} must hold the {n_records} records and the columns that report.json names; got "
                    f"{file.metadata.num_rows} rows, columns {', '.join(file.schema_arrow.names)[:200]}. "
                    "Restore both files from the same report."
                )
            table = arrow.Table.from_batches(_read_bounded(file, source), schema=file.schema_arrow)
    except (arrow.ArrowException, OSError) as error:
        raise FileFormatError(f"{source} must be a parquet file; got {_first_line(error)}.") from error
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    return frame


def _read_bounded(file: Any, source: str) -> list[Any]:
    batches, n_bytes = [], 0
    for batch in file.iter_batches(_ROWS_AT_ONCE):
        n_bytes += batch.nbytes
        if n_bytes > _MOST_BYTES:
            raise FileFormatError(f"{source} must unfold to at most 4 GiB; got more. It does not look like records.")
        batches.append(batch)
    return batches


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200].rstrip(".")
