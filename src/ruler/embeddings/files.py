"""Embeddings to and from files, each format read without running anything that the file contains."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.checks import as_matrix
from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings.formats import FORMATS, Format
from ruler.embeddings.formats.entries import beside_of, reading_safely, storable
from ruler.embeddings.shards import open_shards

SIDES = ("forget", "retain", "held_out")
_BESIDE = ("ids", "labels", "losses", "groups", "strata", "features")


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


def load_model_folder(path: str | os.PathLike[str], *, strata: str | None = None) -> tuple[Embeddings, ...]:
    """Which forget, retain and held-out rows does this folder hold of one model?

    The folder has a file ``forget``, ``retain`` and, if there are held-out records, ``held_out``, each ending in .npy,
    .npz, .parquet, .safetensors or .pt, or a sub-folder of shards of that name; all are read by `load_embeddings`. What
    a file has no room for may lie beside it: ``forget_ids.npy``, ``forget_labels.npy``, ``forget_losses.npy``,
    ``forget_groups.npy``, ``forget_strata.npy`` and ``forget_features.npy``, and the same for the other sides. Other
    files are not looked at.

    Args:
        path: Of the folder.
        strata: The column or array of the files that serves as strata, as `load_embeddings` takes it.

    Returns:
        (forget, retain), or (forget, retain, held_out) where the folder has held-out records.

    Raises:
        FileFormatError: No such folder, a side that is missing or there twice, a file that cannot be read safely, or
            labels, losses and the like that are not one per record.
        MissingPackageError: A format's package is not installed.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> np.save(folder / "forget.npy", np.eye(2))
        >>> np.save(folder / "retain.npy", np.eye(3))
        >>> np.save(folder / "forget_labels.npy", np.array(["cat", "dog"]))
        >>> forget, retain = load_model_folder(folder)
        >>> forget.labels.tolist(), retain.shape
        (['cat', 'dog'], (3, 3))
    """
    folder = Path(path)
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing there"
        raise FileFormatError(
            f"{folder} must be a folder with forget.*, retain.* and, if you have them, held_out.*; got {found}. "
            "Check the path."
        )
    with reading_safely(folder):
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    places = {side: _find_side(entries, side, folder) for side in SIDES}
    missing = [side for side in ("forget", "retain") if places[side] is None]
    if missing:
        found = ", ".join(entry.name for entry in entries[:5]) or "nothing"
        raise FileFormatError(
            f"{folder} must hold {missing[0]}.* (one of {', '.join(FORMATS)}, or a sub-folder of shards); got {found}. "
            "Name the files forget, retain and held_out."
        )
    if places["held_out"] is None and any(_is_rows(entry) and _stem(entry) == "test" for entry in entries):
        raise FileFormatError(
            f"{folder} must hold records that no model was trained on as held_out.*; got test. Rename it to held_out."
        )
    return tuple(_load_side(place, side, entries, strata) for side, place in places.items() if place is not None)


def _find_side(entries: list[Path], side: str, folder: Path) -> Path | None:
    found = [entry for entry in entries if _is_rows(entry) and _stem(entry) == side]
    if len(found) > 1:
        raise FileFormatError(
            f"{folder} must hold the {side} records once; got {' and '.join(entry.name for entry in found)}. "
            "Remove all but one."
        )
    return found[0] if found else None


def _load_side(place: Path, side: str, entries: list[Path], strata: str | None) -> Embeddings:
    """The rows of a side with everything that lies beside them."""
    rows = load_embeddings(place, strata=strata)
    for file in entries:
        kind = file.stem.removeprefix(f"{side}_")
        if file.suffix.lower() != ".npy" or kind == file.stem:
            continue
        if kind not in _BESIDE:
            raise FileFormatError(
                f"{file} must be named {side}_ and one of {', '.join(_BESIDE)}; got {kind!r}. Rename or remove it."
            )
        is_known = getattr(rows, kind) is not None
        if kind == "ids":
            is_known = not np.array_equal(rows.ids, np.arange(len(rows)))
        if is_known:
            raise FileFormatError(f"{file} must not repeat what {place.name} holds; both have {kind}. Remove one.")
        with reading_safely(file):
            array = np.array(np.lib.format.open_memmap(file, mode="r"))  # refuses pickled objects and truncated files
            if array.dtype.kind not in "biufU":
                raise FileFormatError(f"{file} must hold numbers or text; got {array.dtype}. Save a plain array.")
            beside: dict[str, Any] = {kind: array if kind == "features" else storable(kind, array)}
            rows = replace(rows, **beside)
    return rows


def _is_rows(entry: Path) -> bool:
    return entry.is_dir() or entry.suffix.lower() in FORMATS


def _stem(entry: Path) -> str:
    return entry.name if entry.is_dir() else entry.stem
