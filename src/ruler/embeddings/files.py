"""Embeddings to and from files and folders of shards, each read without running anything that it contains."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import as_matrix, check_same_columns, check_same_layer
from ruler.core.errors import FileFormatError
from ruler.core.readers.safety import reading_safely
from ruler.core.registry import Registry
from ruler.core.stacked import StackedRows
from ruler.core.types import Embeddings
from ruler.embeddings.formats import BESIDE_NAMES, Format, Opened, arrays, beside_of, parquet, storable

FORMATS = Registry(
    "ending",
    {
        ".npy": Format(arrays.load_npy, arrays.save_npy, arrays.load_npy),
        ".npz": Format(arrays.load_npz, arrays.save_npz),
        ".parquet": Format(parquet.load, parquet.save, parquet.open_rows),
        ".safetensors": Format(arrays.load_safetensors, arrays.save_safetensors, arrays.open_safetensors),
        ".pt": Format(arrays.load_pt, arrays.save_pt),
    },
    group="ruler.formats",
    type=Format,
)


def load_embeddings(path: str | os.PathLike[str], *, strata: str | None = None) -> Embeddings:
    """Which vectors, of which records, does this file, or folder of shards, hold?

    ``.npy``, ``.safetensors`` and ``.pt`` are memory-mapped, so that a file larger than memory can be used;
    ``.npz`` and ``.parquet`` are read. The matrix is the entry ``values``, ``embeddings`` or ``embedding``, else
    the only 2-D array; of a table, the list column of that name, else all other columns, in their order.

    In every format but ``.npy``, the entries ``ids``, ``labels``, ``losses`` and ``groups`` (or ``id``, ``label``,
    ``loss`` and ``group``) and ``strata`` stand beside the rows and are never taken for embeddings; so does the entry
    that ``strata`` names. Beside ``rows.npy``, ids lie in ``rows.ids.npy``. Without ids, the records are named 0..n-1.
    Whether the embeddings are finite is checked where they are used.

    A folder is one matrix in shards: its .npy, .parquet and .safetensors files, sorted by name (as text on every
    system: ``rows-10`` comes before ``rows-2``, but after ``rows-02``), one under the other; hidden files, files with
    other endings and subfolders are passed over. Either every shard has ids or none, likewise labels, losses, groups
    and strata; tables must have the same columns; numbers are read in a precision that holds them all. A folder may be
    larger than memory: .npy and .safetensors are read in place, .parquet is unpacked to a temporary file.

    Args:
        path: A file ending in .npy, .npz, .parquet, .safetensors or .pt, or a folder of shards.
        strata: The column or array that forget and held-out records are to be matched on, such as ``"age_band"``.

    Returns:
        Embeddings with values (n, p); of a folder, `StackedRows`, which read rows when asked for.

    Raises:
        FileFormatError: Missing, truncated, of another kind, in need of pickle, far larger inside than outside, with
            several entries that may be the matrix, or shards that do not fit together or only differ in their endings.
        MissingPackageError: The format's package is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_embeddings(Embeddings(np.eye(2), ids=["ann", "bob"]), f"{folder}/rows.npz")
        ...     load_embeddings(f"{folder}/rows.npz").ids.tolist()
        ['ann', 'bob']
        >>> shards = Path(tempfile.mkdtemp())
        >>> for i in range(3):
        ...     np.save(shards / f"rows-{i}.npy", np.full((2, 4), i))
        >>> load_embeddings(shards).values[[5, 0]].tolist()
        [[2, 2, 2, 2], [0, 0, 0, 0]]
    """
    file = Path(path)
    if file.is_dir():
        return _open_shards(file, strata)
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
    if not has_format(file):
        raise FileFormatError(f"{file} must end in one of {', '.join(FORMATS)}; got {file.suffix or 'no ending'!r}.")
    return FORMATS[file.suffix.lower()]


def has_format(file: Path) -> bool:
    """Whether its name ends as that of an embedding file."""
    return file.suffix.lower() in FORMATS


def _open_shards(folder: Path, strata: str | None) -> Embeddings:
    """The shards of a folder as one matrix whose rows are read when asked for."""
    with reading_safely(folder):
        files = _list_shards(folder)
    opened: list[Opened] = []
    table: tuple[Path, tuple[str, ...]] | None = None
    source: tuple[Path, str] | None = None
    for file in files:  # each compared with those before it at once: to unpack them all first may take long
        one = _open_shard(file, strata)
        opened.append(one)
        if one.columns is not None:
            table = table or (file, one.columns)
            check_same_columns(table[1], one.columns, (str(table[0]), file.name), error=FileFormatError)
        if one.layer is not None:
            source = source or (file, one.layer)
            check_same_layer(source[1], one.layer, (str(source[0]), file.name), error=FileFormatError)
    with reading_safely(folder):
        values: Any = StackedRows([one.values for one in opened], [file.name for file in files])
        named = table[1] if table else ()
        columns = named if len(named) == values.shape[1] > 1 else None  # lists have one name for all
        beside = {name: _join(name, opened, files) for name in BESIDE_NAMES}
        return Embeddings(values, layer=source[1] if source else None, columns=columns, **beside)


def _list_shards(folder: Path) -> list[Path]:
    """The shards, provided that whatever looks like rows or their ids is used, and once."""
    files = sorted(
        (file for file in folder.iterdir() if not file.name.startswith(".") and has_format(file)),
        key=lambda file: file.name,
    )
    shards = [file for file in files if not file.name.lower().endswith(".ids.npy")]
    unfit = [file.name for file in shards if _format_of(file).open_rows is None]
    if unfit or not shards:
        endings = ", ".join(ending for ending, one in FORMATS.items() if one.open_rows is not None)
        raise FileFormatError(
            f"{folder} must be an embedding file or hold shards ending in {endings}; got "
            f"{repr(unfit[0]) if unfit else 'none'}. Check the path, or convert the files."
        )
    used = {arrays.ids_path(file) for file in shards if file.suffix.lower() == ".npy"}.union(shards)
    by_stem = {file.stem: file for file in reversed(shards)}
    for file in files:
        if not file.is_file():  # a pipe, for one, would keep its reader waiting
            raise FileFormatError(f"{file} must be a plain file; got something else. Move it away.")
        if file not in used:
            raise FileFormatError(
                f"{file} must lie beside the .npy shard whose rows it names; got no such shard. Bring it, or move the "
                "ids away: .parquet and .safetensors hold their own."
            )
        other = by_stem.get(file.stem, file)
        if other != file:
            raise FileFormatError(
                f"{file} must differ from other shards in more than its ending, or rows may count twice; got "
                f"{other.name} too. Move one of them away, or rename it."
            )
    return shards


def _open_shard(file: Path, strata: str | None) -> Opened:
    open_rows = _format_of(file).open_rows
    assert open_rows is not None
    with reading_safely(file):
        opened = open_rows(file, strata)
        beside = {name: storable(name, values) for name, values in opened.beside.items()}
        for name, values in beside.items():
            if values.shape != opened.values.shape[:1]:
                raise FileFormatError(
                    f"{file} must have {name} for each row; got {values.shape} for {opened.values.shape[0]} rows."
                )
        return replace(opened, beside=beside)


def _join(name: str, opened: list[Opened], files: list[Path]) -> npt.NDArray[Any] | None:
    """What stands beside all rows; None where no shard has it, or where ids are only row numbers."""
    parts = [one.beside.get(name) for one in opened]
    if name == "ids" and _are_row_numbers(parts, [len(one.values) for one in opened]):
        return None
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if len(known) < len(parts):
        is_known = [part is not None for part in parts]
        raise FileFormatError(
            f"{files[is_known.index(False)]} must have {name}, as {files[is_known.index(True)].name} does; got none. "
            f"Give {name} in all shards or in none."
        )
    kinds = ["text" if part.dtype.kind == "U" else "numbers" for part in known]
    if len(set(kinds)) > 1:
        odd = next(number for number, kind in enumerate(kinds) if kind != kinds[0])
        raise FileFormatError(
            f"{files[odd]} must have {name} of the same kind as {files[0].name}; got {kinds[odd]} and {kinds[0]}. "
            "Write all as text."
        )
    return np.concatenate(known)


def _are_row_numbers(parts: list[npt.NDArray[Any] | None], sizes: list[int]) -> bool:
    """Whether ids count the rows of each shard, or those of the folder, or are not given."""

    def is_range(ids: npt.NDArray[Any], start: int) -> bool:
        return np.array_equal(ids, np.arange(start, start + len(ids)))

    if all(part is None or is_range(part, 0) for part in parts):
        return True
    starts = np.cumsum([0, *sizes])
    # a .npy whose ids are 0..n-1 is written without them
    return parts[0] is None and all(
        part is not None and is_range(part, start) for part, start in zip(parts[1:], starts[1:], strict=False)
    )
