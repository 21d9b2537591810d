"""Embeddings to and from files, each format read without running anything that the file contains."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import as_matrix
from ruler.core.errors import FileFormatError, InputError, MissingPackageError
from ruler.core.types import Embeddings
from ruler.embeddings.formats import FORMATS, Format


def load_embeddings(path: str | os.PathLike[str]) -> Embeddings:
    """Which vectors, of which records, does this file hold?

    ``.npy``, ``.safetensors`` and ``.pt`` are memory-mapped, so that a file larger than memory can be used;
    ``.npz`` and ``.parquet`` are read. The matrix is the entry ``values``, ``embeddings`` or ``embedding``, else
    the only 2-D array; of a table, the list column of that name, else all columns but ``id``. Ids are the
    entry ``ids`` (``id`` in a table); beside ``rows.npy`` they lie in ``rows.ids.npy``. Without ids, the
    records are named 0..n-1. Whether the numbers are finite is checked where they are used.

    Args:
        path: A file ending in .npy, .npz, .parquet, .safetensors or .pt.

    Returns:
        Embeddings with values (n, p).

    Raises:
        FileFormatError: Missing, truncated, of another kind, in need of pickle, or far larger inside than outside.
        MissingPackageError: The format's package is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_embeddings(Embeddings(np.eye(2), ids=["ann", "bob"]), f"{folder}/rows.npz")
        ...     load_embeddings(f"{folder}/rows.npz").ids.tolist()
        ['ann', 'bob']
    """
    file = Path(path)
    chosen = _format_of(file)
    if not file.is_file():
        found = "a folder" if file.is_dir() else "nothing there"
        raise FileFormatError(f"{file} must be an embedding file; got {found}. Check the path.")
    try:
        embeddings = chosen.load(file)
        as_matrix(embeddings.values, str(file))
        return replace(embeddings, ids=_storable_ids(embeddings.ids))
    except (FileFormatError, MissingPackageError):
        raise
    except InputError as error:
        raise FileFormatError(f"{file} must hold embeddings: {error}") from None
    except Exception as error:  # a hostile file makes parsers raise anything
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileFormatError(
            f"{file} must be a sound {file.suffix} file; it cannot be read: {reason.rstrip('.')}. Write it again."
        ) from None


def save_embeddings(embeddings: Embeddings, path: str | os.PathLike[str]) -> None:
    """Write embeddings with their ids; the file appears whole or not at all.

    Args:
        embeddings: Values (n, p) in any real dtype, memory-mapped or not; ids that are integers or text.
        path: A file ending in .npy, .npz, .parquet, .safetensors or .pt. A ``.npy`` has no room for names: ids
            other than 0..n-1 go beside it into ``<stem>.ids.npy``, and the layer is not kept.

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
    sound = Embeddings(values.astype(dtype, copy=False), _storable_ids(embeddings.ids), embeddings.layer)
    chosen.save(sound, file)


def _format_of(file: Path) -> Format:
    if file.suffix.lower() not in FORMATS:
        raise FileFormatError(f"{file} must end in one of {', '.join(FORMATS)}; got {file.suffix or 'no ending'!r}.")
    return FORMATS[file.suffix.lower()]


def _storable_ids(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64, copy=False)
    listed = ids.tolist()
    if all(isinstance(name, str) for name in listed):
        for name in listed:
            if not name.isprintable() and name.encode(errors="replace").decode() != name:
                raise InputError(f"ids must be valid Unicode; got {name!r}. Clean the names first.")
        return np.array(listed, dtype=np.str_)
    if all(isinstance(name, int) and not isinstance(name, bool) for name in listed):
        return np.array(listed, dtype=np.int64)
    kinds = sorted({type(name).__name__ for name in listed})
    raise InputError(f"ids must be integers or text; got {', '.join(kinds)}. Convert them to text.")
