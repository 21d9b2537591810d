"""A folder of embedding files becomes the forget, retain and held-out rows of one model."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.errors import FileFormatError
from ruler.core.readers.arrays import open_npy
from ruler.core.readers.safety import reading_safely
from ruler.core.types import Embeddings
from ruler.embeddings.files import FORMATS, has_format, load_embeddings
from ruler.embeddings.formats import BESIDE_NAMES, storable

SIDES = ("forget", "retain", "held_out")
_BESIDE_FILES = (*BESIDE_NAMES, "features")


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
    rows = {entry: entry.name for entry in entries if entry.is_dir()}
    rows |= {entry: entry.stem for entry in entries if not entry.is_dir() and has_format(entry)}
    places: dict[str, Path] = {}
    for side in SIDES:
        matches = [entry for entry, name in rows.items() if name == side]
        if len(matches) > 1:
            raise FileFormatError(
                f"{folder} must hold the {side} records once; got {' and '.join(entry.name for entry in matches)}. "
                "Remove all but one."
            )
        if matches:
            places[side] = matches[0]
        elif side != "held_out":
            listed = ", ".join(entry.name for entry in entries[:5]) or "nothing"
            raise FileFormatError(
                f"{folder} must hold {side}.* (one of {', '.join(FORMATS)}, or a sub-folder of shards); got {listed}. "
                "Name the files forget, retain and held_out."
            )
        elif "test" in rows.values():
            raise FileFormatError(
                f"{folder} must hold records that no model was trained on as held_out.*; got test. "
                "Rename it to held_out."
            )
    return tuple(_load_side(place, side, entries, strata) for side, place in places.items())


def _load_side(place: Path, side: str, entries: list[Path], strata: str | None) -> Embeddings:
    """The rows of a side with everything that lies beside them."""
    rows = load_embeddings(place, strata=strata)
    for file in entries:
        kind = file.stem.removeprefix(f"{side}_")
        if file.suffix.lower() != ".npy" or kind == file.stem:
            continue
        if kind not in _BESIDE_FILES:
            raise FileFormatError(
                f"{file} must be named {side}_ and one of {', '.join(_BESIDE_FILES)}; got {kind!r}. "
                "Rename or remove it."
            )
        is_known = getattr(rows, kind) is not None
        if kind == "ids":
            is_known = not np.array_equal(rows.ids, np.arange(len(rows)))
        if is_known:
            raise FileFormatError(f"{file} must not repeat what {place.name} holds; both have {kind}. Remove one.")
        with reading_safely(file):
            array = open_npy(file)
            if array.dtype.kind not in "biufU":
                raise FileFormatError(f"{file} must hold numbers or text; got {array.dtype}. Save a plain array.")
            beside: dict[str, Any] = {kind: np.array(array if kind == "features" else storable(kind, array))}
            rows = replace(rows, **beside)
    return rows
