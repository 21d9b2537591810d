"""A folder of embedding files as one matrix that may be larger than memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import check_same_columns, check_same_layer
from ruler.core.errors import FileFormatError
from ruler.core.stacked import StackedRows
from ruler.core.types import Embeddings
from ruler.embeddings.formats import FORMATS
from ruler.embeddings.formats.entries import BESIDE_NAMES, Opened, reading_safely, storable
from ruler.embeddings.formats.npy import ids_path

_ENDINGS = tuple(ending for ending, one in FORMATS.items() if one.open_rows is not None)


def open_shards(folder: Path, strata: str | None = None) -> Embeddings:
    """The shards of a folder, sorted by name, as one matrix whose rows are read when asked for.

    Names are compared as text, on every system: ``rows-10`` comes before ``rows-2``, but after ``rows-02``.

    Passed over: hidden files, files with other endings, subfolders, and ``*.ids.npy``, which names the rows of the .npy
    shard beside it. Either every shard names its rows or none does; likewise with labels, losses, groups and strata.
    Numbers of different precision are read in one that holds them all. Shards may leave out the layer that they were
    read at, as .npy must.

    Args:
        folder: With .npy, .parquet or .safetensors files; number them with leading zeros.
        strata: The column or array that serves as strata, if it is not called so.

    Raises:
        FileFormatError: No shard; one that is broken, empty, in need of pickle, or of another width or layer; tables
            with other columns; ids for some shards only, of two kinds, or without a shard; shards that only differ in
            their endings; .npz or .pt files, which cannot be read in parts.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for i in range(3):
        ...     np.save(folder / f"rows-{i}.npy", np.full((2, 4), i))
        >>> open_shards(folder).values[[5, 0]].tolist()
        [[2, 2, 2, 2], [0, 0, 0, 0]]
    """
    with reading_safely(folder):
        files = _list_shards(folder)
    opened = _open_all(files, strata)
    with reading_safely(folder):
        values = StackedRows([one.values for one in opened], [file.name for file in files])
        layer = next((one.layer for one in opened if one.layer is not None), None)
        named = next((one.columns for one in opened if one.columns is not None), ())
        columns = named if len(named) == values.shape[1] > 1 else None  # lists have one name for all
        beside = {name: _join(name, opened, files) for name in BESIDE_NAMES}
        return Embeddings(values, layer=layer, columns=columns, **beside)  # type: ignore[arg-type]


def _list_shards(folder: Path) -> list[Path]:
    visible = [file for file in folder.iterdir() if not file.name.startswith(".") and file.suffix.lower() in FORMATS]
    files = sorted(visible, key=lambda file: file.name)
    shards = [file for file in files if not file.name.lower().endswith(".ids.npy")]
    unfit = [file.name for file in shards if file.suffix.lower() not in _ENDINGS]
    if unfit or not shards:
        found = f"{unfit[0]!r}" if unfit else "none"
        raise FileFormatError(
            f"{folder} must be an embedding file or hold shards ending in {', '.join(_ENDINGS)}; got {found}. "
            "Check the path, or convert the files."
        )
    _check_listing(files, shards)
    return shards


def _check_listing(files: list[Path], shards: list[Path]) -> None:
    """Whatever looks like rows or their ids is used, and once."""
    used = {ids_path(file) for file in shards if file.suffix.lower() == ".npy"}.union(shards)
    by_stem = {file.stem: file for file in reversed(shards)}
    for file in files:
        if not file.is_file():  # a pipe, for one, would keep its reader waiting
            raise FileFormatError(f"{file} must be a plain file; got something else. Move it away.")
        if file not in used:
            raise FileFormatError(
                f"{file} must lie beside the .npy shard whose rows it names; got no such shard. Bring it, or move the "
                "ids away: .parquet and .safetensors hold their own."
            )
        twin = by_stem.get(file.stem, file)
        if twin != file:
            raise FileFormatError(
                f"{file} must differ from other shards in more than its ending, or rows may count twice; got "
                f"{twin.name} too. Move one of them away, or rename it."
            )


def _open_all(files: list[Path], strata: str | None) -> list[Opened]:
    """Every shard, compared with those before it at once: to unpack them all first may take long."""
    opened: list[Opened] = []
    table: tuple[Path, tuple[str, ...]] | None = None
    source: tuple[Path, str] | None = None
    for file in files:
        one = _open_one(file, strata)
        opened.append(one)
        if one.columns is not None:
            table = table or (file, one.columns)
            check_same_columns(table[1], one.columns, (str(table[0]), file.name), error=FileFormatError)
        if one.layer is not None:
            source = source or (file, one.layer)
            check_same_layer(source[1], one.layer, (str(source[0]), file.name), error=FileFormatError)
    return opened


def _open_one(file: Path, strata: str | None) -> Opened:
    open_rows = FORMATS[file.suffix.lower()].open_rows
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
    """What stands beside all rows; None where no shard has it, or where ids are but row numbers."""
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
    if all(part is None or _is_range(part, 0) for part in parts):
        return True
    starts = np.cumsum([0, *sizes])
    # a .npy whose ids are 0..n-1 is written without them
    return parts[0] is None and all(
        part is not None and _is_range(part, start) for part, start in zip(parts[1:], starts[1:], strict=False)
    )


def _is_range(ids: npt.NDArray[Any], start: int) -> bool:
    return np.array_equal(ids, np.arange(start, start + len(ids)))
