"""Parquet tables: one list column of vectors, or one numeric column a dimension, and an optional id column."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.core.types import Embeddings
from ruler.embeddings.formats.entries import Opened, appearing_whole, check_unfolded_size, find_named

_ROWS_AT_ONCE = 8192


def load(path: Path) -> Embeddings:
    """All rows, read a few thousand at a time."""
    blocks, ids = [], []
    with _reading(path) as table:
        for vectors, names in table.iterate():
            blocks.append(vectors)
            ids += names
    columns = None if table.vector else table.columns
    return Embeddings(np.concatenate(blocks), np.array(ids) if table.has_ids else None, table.layer, columns)


def open_rows(path: Path) -> Opened:
    """All rows, unpacked a few thousand at a time into a nameless temporary file and memory-mapped from there.

    Rows of a packed table can only be had by whole row groups, and a search asks for single ones millions of times.
    """
    ids: list[Any] = []
    width, dtype = 0, np.dtype(np.float32)
    with tempfile.TemporaryFile(prefix="ruler-rows-") as unpacked:
        with _reading(path) as table:
            for vectors, names in table.iterate():
                if unpacked.tell() == 0:
                    width, dtype = vectors.shape[1], vectors.dtype
                if vectors.shape[1] != width:
                    raise FileFormatError(f"{path} must hold lists of one length; got {width} and {vectors.shape[1]}.")
                unpacked.write(np.ascontiguousarray(vectors, dtype=dtype).data)
                ids += names
        unpacked.flush()
        values = np.memmap(unpacked, dtype, mode="r", shape=(unpacked.tell() // (width * dtype.itemsize), width))
    return Opened(values, np.array(ids) if table.has_ids else None, table.layer, table.columns)


@dataclass(frozen=True)
class _Table:
    """An open parquet file of embeddings."""

    path: Path
    file: Any
    vector: str | None
    width: int

    @property
    def has_ids(self) -> bool:
        return "id" in self.file.schema_arrow.names

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.vector,) if self.vector else tuple(_names_of_numbers(self.file.schema_arrow))

    @property
    def layer(self) -> str | None:
        layer = (self.file.schema_arrow.metadata or {}).get(b"layer")
        return None if layer is None else str(layer.decode())

    def iterate(self) -> Iterator[tuple[npt.NDArray[Any], list[Any]]]:
        """Vectors (n, p) and their ids, a few thousand rows at a time."""
        n_bytes = 0
        for batch in self.file.iter_batches(min(_ROWS_AT_ONCE, block_rows_for(self.width))):
            vectors = _vectors(batch.column(self.vector), self.path) if self.vector else _columns(batch, self.path)
            n_bytes += vectors.nbytes
            check_unfolded_size(n_bytes, self.path)
            yield vectors, batch.column("id").to_pylist() if self.has_ids else []
        if not n_bytes:
            raise FileFormatError(f"{self.path} must hold at least one row; got none.")


@contextmanager
def _reading(path: Path) -> Iterator[_Table]:
    parquet = load_optional("pyarrow.parquet", "reading .parquet")
    with parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        vector = find_named(schema.names, path)
        if vector is None:
            _check_no_index(schema, path)
        width, n_bits = _width_of(schema, vector)
        check_unfolded_size(file.metadata.num_rows * width * n_bits // 8, path)
        yield _Table(path, file, vector, width)


def save(embeddings: Embeddings, path: Path) -> None:
    """Write the columns ``id`` and ``embedding`` in row groups of about a million numbers."""
    arrow = load_optional("pyarrow", "writing .parquet")
    parquet = load_optional("pyarrow.parquet", "writing .parquet")
    values, n_columns = embeddings.values, embeddings.values.shape[1]
    number = arrow.from_numpy_dtype(values.dtype)
    name = arrow.string() if embeddings.ids.dtype.kind == "U" else arrow.int64()
    schema = arrow.schema([("id", name), ("embedding", arrow.list_(number, n_columns))])
    if embeddings.layer is not None:
        schema = schema.with_metadata({"layer": embeddings.layer})
    with appearing_whole(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for start, stop in iterate_blocks(len(values), block_rows_for(n_columns)):
            flat = arrow.array(np.ascontiguousarray(values[start:stop]).reshape(-1))
            vectors = arrow.FixedSizeListArray.from_arrays(flat, n_columns)
            ids = arrow.array(embeddings.ids[start:stop].tolist(), type=name)
            writer.write_table(arrow.Table.from_arrays([ids, vectors], schema=schema))


def _width_of(schema: Any, vector: str | None) -> tuple[int, int]:
    """How many numbers a row holds, and the bits of each, as far as the schema tells."""
    if vector is None:
        types = [field.type for field in schema if field.name != "id"]
        return max(1, len(types)), max((_bits_of(kind) for kind in types), default=1)
    kind = schema.field(vector).type
    return max(1, getattr(kind, "list_size", 1)), _bits_of(getattr(kind, "value_type", kind))


def _names_of_numbers(schema: Any) -> list[str]:
    return [name for name in schema.names if name != "id"]


def _check_no_index(schema: Any, path: Path) -> None:
    """Row labels that pandas wrote among the columns are no dimension of the embeddings."""
    labels = [label for label in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(label, str)]
    found = [name for name in _names_of_numbers(schema) if name in labels]
    if found:
        raise FileFormatError(
            f"{path} must hold embeddings and ids only; got column {found[0]!r}, the index of a DataFrame. "
            "Name the index 'id', or write the table with index=False."
        )


def _bits_of(kind: Any) -> int:
    try:
        return int(kind.bit_width)
    except ValueError:  # text and lists have no fixed width
        return 1


def _vectors(column: Any, path: Path) -> npt.NDArray[Any]:
    """A list column (n of them) as (n, p)."""
    lengths = column.value_lengths()
    flat = column.flatten()
    if column.null_count or flat.null_count or len(lengths.unique()) != 1:
        raise FileFormatError(f"{path}: its embedding column must hold lists of one length without nulls; got others.")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def _columns(batch: Any, path: Path) -> npt.NDArray[Any]:
    """All columns but ``id``, side by side, as (n, p)."""
    names = _names_of_numbers(batch.schema)
    for name in names:
        if batch.column(name).null_count:
            raise FileFormatError(f"{path} must hold no nulls; got some in column {name!r}. Drop these records.")
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.dtype.kind not in "fiub":
            raise FileFormatError(
                f"{path} must be numeric but for its id; got column {name!r} of {batch.schema.field(name).type}."
            )
    if not columns:
        raise FileFormatError(f"{path} must have columns besides its id; got none.")
    return np.column_stack(columns)
