"""Embeddings to and from files, each format read without running anything that the file contains."""

import os
from pathlib import Path

import numpy as np

from ruler.core.checks import as_matrix
from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings.formats import FORMATS, Format
from ruler.embeddings.formats.entries import beside_of, reading_safely, storable
from ruler.embeddings.shards import open_shards


def load_embeddings(path: str | os.PathLike[str], *, strata: str | None = None) -> Embeddings:
    """Which vectors, of which records, does this file, or folder of shards, hold?

    ``.npy``, ``.safetensors`` and ``.pt`` are memory-mapped, so that a file larger than memory can be used;
    ``.npz`` and ``.parquet`` are read. The matrix is the entry ``values``, ``embeddings`` or ``embedding``, else
    the only 2-D array; of a table, the list column of that name, else all other columns, in their order.

    In every format but ``.npy``, the entries ``ids``, ``labels``, ``losses`` and ``groups`` (or ``id``, ``label``,
    ``loss`` and ``group``) and ``strata`` stand beside the rows and are never taken for embeddings; so does the entry
    that ``strata`` names. Beside ``rows.npy``, ids lie in ``rows.ids.npy``. Without ids, the records are named 0..n-1.
    Whether the embeddings are finite is checked where they are used.

    A folder is one matrix in shards: its .npy, .parquet and .safetensors files, sorted by name (as text: number them
    with leading zeros), one under the other; tables must have the same columns. It may be larger than memory: .npy
    and .safetensors are read in place, .parquet is unpacked to a temporary file.

    Args:
        path: A file ending in .npy, .npz, .parquet, .safetensors or .pt, or a folder of shards.
        strata: The column or array that forget and held-out records are to be matched on, such as ``"age_band"``.

    Returns:
        Embeddings with values (n, p); of a folder, `StackedRows`, which read rows when asked for.

    Raises:
        FileFormatError: Missing, truncated, of another kind, in need of pickle, far larger inside than outside, with
            several entries that may be the matrix, or shards that do not fit together.
        MissingPackageError: The format's package is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_embeddings(Embeddings(np.eye(2), ids=["ann", "bob"]), f"{folder}/rows.npz")
        ...     load_embeddings(f"{folder}/rows.npz").ids.tolist()
        ['ann', 'bob']
    """
    file = Path(path)
    if file.is_dir():
        return open_shards(file, strata)
    if not file.is_file():
        raise FileFormatError(
            f"{file} must be an embedding file or a folder of them; got nothing there. Check the path."
        )
    chosen = _format_of(file)
    with reading_safely(file):
        opened = chosen.load(file, strata)
        as_matrix(opened.values, str(file))
        beside = {name: storable(name, values) for name, values in opened.beside.items()}
        return Embeddings(opened.values, layer=opened.layer, columns=opened.columns, **beside)


def save_embeddings(embeddings: Embeddings, path: str | os.PathLike[str]) -> None:
    """Write embeddings with what stands beside them; the file appears whole or not at all.

    Ids, labels, losses, groups and strata are kept; features and the names of columns are not.

    Args:
        embeddings: Values (n, p) in any real dtype, memory-mapped or not; ids that are integers or text.
        path: A file ending in .npy, .npz, .parquet, .safetensors or .pt. A ``.npy`` has no room for names: ids
            other than 0..n-1 go beside it into ``<stem>.ids.npy``, and nothing else is kept.

    Raises:
        FileFormatError: Another ending, or no such folder.
        InputError: Values that are no (n, p) numbers, or ids that are neither integers nor text.
        MissingPackageError: The format's package is not installed.
    """
    file = Path(path)
    chosen = _format_of(file)
    if not file.parent.is_dir():
        raise FileFormatError(f"{file} must lie in a folder that exists; got {file.parent}. Make the folder.")
    values = as_matrix(embeddings.values, "embeddings")
    is_portable = values.dtype.kind == "f" and values.dtype.itemsize in (2, 4, 8)
    dtype = values.dtype.newbyteorder("=") if is_portable else np.dtype(np.float64)
    beside = {name: storable(name, part) for name, part in beside_of(embeddings).items()}
    chosen.save(Embeddings(np.asanyarray(values).astype(dtype, copy=False), layer=embeddings.layer, **beside), file)


def _format_of(file: Path) -> Format:
    if file.suffix.lower() not in FORMATS:
        raise FileFormatError(f"{file} must end in one of {', '.join(FORMATS)}; got {file.suffix or 'no ending'!r}.")
    return FORMATS[file.suffix.lower()]
