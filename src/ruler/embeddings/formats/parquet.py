"""Parquet tables: one list column of vectors, or one numeric column per dimension, and what stands beside them."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from ruler.core.readers.tables import open_parquet
from ruler.core.types import Embeddings
from ruler.embeddings.formats import BESIDE_NAMES, MATRIX_NAMES, Opened, beside_of, find_beside, find_named

_ROWS_AT_ONCE = 8192


def load(path: Path, strata: str | None = None) -> Opened:
    """All rows, read a few thousand at a time."""
    blocks: list[npt.NDArray[Any]] = []
    found = _read(path, strata, blocks.append)
    is_list = found.columns is not None and found.columns[0] in MATRIX_NAMES
    return replace(found, values=np.concatenate(blocks), columns=None if is_list else found.columns)


def open_rows(path: Path, strata: str | None = None) -> Opened:
    """All rows, unpacked a few thousand at a time into a nameless temporary file and memory-mapped from there.

    Rows of a packed table can only be had by whole row groups, and a search asks for single ones millions of times.
    """
    width, dtype = 0, np.dtype(np.float32)
    with tempfile.TemporaryFile(prefix="ruler-rows-") as unpacked:

        def unpack(vectors: npt.NDArray[Any]) -> None:
            nonlocal width, dtype
            if unpacked.tell() == 0:
                width, dtype = vectors.shape[1], vectors.dtype
            if vectors.shape[1] != width:
                raise FileFormatError(f"{path} must hold lists of one length; got {width} and {vectors.shape[1]}.")
            unpacked.write(np.ascontiguousarray(vectors, dtype=dtype).data)

        found = _read(path, strata, unpack)
        unpacked.flush()
        values = np.memmap(unpacked, dtype, mode="r", shape=(unpacked.tell() // (width * dtype.itemsize), width))
    return replace(found, values=values)


def _read(path: Path, strata: str | None, take: Callable[[npt.NDArray[Any]], None]) -> Opened:
    """Hand on vectors (n, p), a few thousand rows at a time; returns what else the file holds, without values."""
    with open_parquet(path) as table:
        schema = table.schema
        vector, beside = find_named(schema.names, path), find_beside(schema.names, path, strata)
        apart = {*beside.values(), *(name for aliases in BESIDE_NAMES.values() for name in aliases)}
        columns = [vector] if vector else [name for name in schema.names if name not in apart]
        labels = (schema.pandas_metadata or {}).get("index_columns", [])
        index = next((name for name in columns if name in labels), None) if vector is None else None
        if index is not None:  # row labels that pandas wrote are no dimension of the embeddings
            raise FileFormatError(
                f"{path} must hold embeddings and ids only; got column {index!r}, the index of a DataFrame. "
                "Name the index 'id', or write the table with index=False."
            )
        width = getattr(schema.field(vector).type, "list_size", 1) if vector else len(columns)
        wanted = list(dict.fromkeys([*columns, *beside.values()]))
        read: dict[str, list[Any]] = {}
        n_rows = 0
        for batch in table.iterate(min(_ROWS_AT_ONCE, block_rows_for(max(1, width))), wanted):
            take(_vectors(batch.column(vector), path) if vector else _columns(batch, columns, path))
            for name, column in beside.items():
                read.setdefault(name, []).extend(batch.column(column).to_pylist())
            n_rows += batch.num_rows
        if not n_rows:
            raise FileFormatError(f"{path} must hold at least one row; got none.")
    layer = (schema.metadata or {}).get(b"layer")
    packed = {name: _pack(values, name) for name, values in read.items()}
    return Opened(None, packed, None if layer is None else str(layer.decode()), tuple(columns))


def _pack(values: list[Any], name: str) -> npt.NDArray[Any]:
    """A column as an array; what is neither text nor number stays as it is."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return pack_texts(values, name)
    return np.array(values, dtype=None if kinds in ({int}, {float}) else object)


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
