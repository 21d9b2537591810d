"""Parquet tables: one list column of vectors, or one numeric column per dimension, and what stands beside them."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.errors import FileFormatError
from ruler.core.files import writing_atomically
from ruler.core.optional import load_optional
from ruler.core.readers.safety import pack_texts
from ruler.core.readers.tables import ParquetTable, open_parquet
from ruler.core.types import Embeddings
from ruler.embeddings.formats import BESIDE_NAMES, MATRIX_NAMES, Opened, beside_of, find_beside, find_named

_ROWS_AT_ONCE = 8192


def load(path: Path, strata: str | None = None) -> Opened:
    """All rows, read a few thousand at a time."""
    with _reading(path, strata) as table:
        blocks = list(table.iterate())
    columns = None if table.vector else table.columns
    return Opened(np.concatenate(blocks), table.beside, table.layer, columns)


def open_rows(path: Path, strata: str | None = None) -> Opened:
    """All rows, unpacked a few thousand at a time into a nameless temporary file and memory-mapped from there.

    Rows of a packed table can only be had by whole row groups, and a search asks for single ones millions of times.
    """
    width, dtype = 0, np.dtype(np.float32)
    with tempfile.TemporaryFile(prefix="ruler-rows-") as unpacked:
        with _reading(path, strata) as table:
            for vectors in table.iterate():
                if unpacked.tell() == 0:
                    width, dtype = vectors.shape[1], vectors.dtype
                if vectors.shape[1] != width:
                    raise FileFormatError(f"{path} must hold lists of one length; got {width} and {vectors.shape[1]}.")
                unpacked.write(np.ascontiguousarray(vectors, dtype=dtype).data)
        unpacked.flush()
        values = np.memmap(unpacked, dtype, mode="r", shape=(unpacked.tell() // (width * dtype.itemsize), width))
    return Opened(values, table.beside, table.layer, table.columns)


@dataclass(frozen=True)
class _Table:
    """An open parquet file of embeddings; what stands beside the rows is known once they were read."""

    path: Path
    table: ParquetTable
    vector: str | None
    columns: tuple[str, ...]
    width: int
    names_beside: dict[str, str]
    _read: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def layer(self) -> str | None:
        layer = (self.table.schema.metadata or {}).get(b"layer")
        return None if layer is None else str(layer.decode())

    @property
    def beside(self) -> dict[str, npt.NDArray[Any]]:
        """By field, (n,) each, of the rows that were read; what is neither text nor number stays as it is."""
        found = {}
        for name, values in self._read.items():
            kinds = {type(value) for value in values}
            if kinds == {str}:
                found[name] = pack_texts(values, name)
            else:
                found[name] = np.array(values, dtype=None if kinds in ({int}, {float}) else object)
        return found

    def iterate(self) -> Iterator[npt.NDArray[Any]]:
        """Vectors (n, p), a few thousand rows at a time."""
        n_rows = 0
        wanted = list(dict.fromkeys([*self.columns, *self.names_beside.values()]))
        for batch in self.table.iterate(min(_ROWS_AT_ONCE, block_rows_for(self.width)), wanted):
            if self.vector:
                vectors = _vectors(batch.column(self.vector), self.path)
            else:
                vectors = _columns(batch, self.columns, self.path)
            for name, column in self.names_beside.items():
                self._read.setdefault(name, []).extend(batch.column(column).to_pylist())
            n_rows += batch.num_rows
            yield vectors
        if not n_rows:
            raise FileFormatError(f"{self.path} must hold at least one row; got none.")


@contextmanager
def _reading(path: Path, strata: str | None) -> Iterator[_Table]:
    with open_parquet(path) as table:
        schema = table.schema
        vector, beside = find_named(schema.names, path), find_beside(schema.names, path, strata)
        apart = {*beside.values(), *(name for aliases in BESIDE_NAMES.values() for name in aliases)}
        columns = [vector] if vector else [name for name in schema.names if name not in apart]
        if vector is None:
            _check_no_index(schema, columns, path)
        width = getattr(schema.field(vector).type, "list_size", 1) if vector else len(columns)
        yield _Table(path, table, vector, tuple(columns), max(1, width), beside)


def save(embeddings: Embeddings, path: Path) -> None:
    """Write the column ``embedding`` and what stands beside it in row groups of about a million numbers."""
    arrow = load_optional("pyarrow", "writing .parquet")
    parquet = load_optional("pyarrow.parquet", "writing .parquet")
    values, n_columns = embeddings.values, embeddings.values.shape[1]
    beside = {BESIDE_NAMES[name][-1]: part for name, part in beside_of(embeddings).items()}
    kinds = {"U": arrow.string(), "i": arrow.int64(), "f": arrow.float64()}
    fields = [(name, kinds[part.dtype.kind]) for name, part in beside.items()]
    schema = arrow.schema([*fields, ("embedding", arrow.list_(arrow.from_numpy_dtype(values.dtype), n_columns))])
    if embeddings.layer is not None:
        schema = schema.with_metadata({"layer": embeddings.layer})
    with writing_atomically(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for start, stop in iterate_blocks(len(values), block_rows_for(n_columns)):
            flat = arrow.array(np.ascontiguousarray(values[start:stop]).reshape(-1))
            vectors = arrow.FixedSizeListArray.from_arrays(flat, n_columns)
            columns = [arrow.array(part[start:stop].tolist(), type=kinds[part.dtype.kind]) for part in beside.values()]
            writer.write_table(arrow.Table.from_arrays([*columns, vectors], schema=schema))


def _check_no_index(schema: Any, names: Sequence[str], path: Path) -> None:
    """Row labels that pandas wrote among the columns are no dimension of the embeddings."""
    labels = [label for label in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(label, str)]
    found = [name for name in names if name in labels]
    if found:
        raise FileFormatError(
            f"{path} must hold embeddings and ids only; got column {found[0]!r}, the index of a DataFrame. "
            "Name the index 'id', or write the table with index=False."
        )


def _vectors(column: Any, path: Path) -> npt.NDArray[Any]:
    """A list column (n of them) as (n, p)."""
    lengths = column.value_lengths()
    flat = column.flatten()
    if column.null_count or flat.null_count or len(lengths.unique()) != 1:
        raise FileFormatError(f"{path}: its embedding column must hold lists of one length without nulls; got others.")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)


def _columns(batch: Any, names: Sequence[str], path: Path) -> npt.NDArray[Any]:
    """Numeric columns side by side, as (n, p)."""
    if not names:
        raise FileFormatError(f"{path} must have columns besides its id; got none.")
    columns = []
    for name in names:
        if batch.column(name).null_count:
            raise FileFormatError(f"{path} must hold no nulls; got some in column {name!r}. Drop these records.")
        columns.append(batch.column(name).to_numpy(zero_copy_only=False))
        if "list" in str(batch.schema.field(name).type):
            raise FileFormatError(
                f"{path} must name its column of vectors one of {', '.join(MATRIX_NAMES)}; got {name!r}. Rename it."
            )
        if columns[-1].dtype.kind not in "fiub":
            raise FileFormatError(
                f"{path} must be numeric but for its {', '.join(BESIDE_NAMES)}; got column {name!r} of "
                f"{batch.schema.field(name).type}. Remove it, or name it as strata."
            )
    return np.column_stack(columns)
