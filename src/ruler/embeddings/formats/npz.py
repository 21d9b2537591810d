"""NumPy's zip of arrays, its sizes checked before anything is unpacked."""

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings.formats.entries import (
    Opened,
    appearing_whole,
    beside_of,
    check_unfolded_size,
    find_beside,
    pick_matrix,
)


def load(path: Path, strata: str | None = None) -> Opened:
    """The arrays ``values`` and ``layer`` of the archive, and those that stand beside the rows."""
    with zipfile.ZipFile(path) as archive:
        entries = {
            info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")
        }
        check_unfolded_size(sum(info.file_size for info in entries.values()), path)
        headers = {name: _read_header(archive, info, path) for name, info in entries.items()}
        names = find_beside(entries.keys(), path, strata)
        matrix = pick_matrix({name: len(shape) for name, shape in headers.items()}, path, names.values())
        values = _read(archive, entries[matrix])
        beside = {field: _read(archive, entries[name]) for field, name in names.items()}
        layer = str(_read(archive, entries["layer"])) if headers.get("layer") == () else None
    return Opened(values, beside, layer)


def save(embeddings: Embeddings, path: Path) -> None:
    """Write an uncompressed archive."""
    arrays = {"values": embeddings.values, **beside_of(embeddings)}
    if embeddings.layer is not None:
        arrays["layer"] = np.array(embeddings.layer)
    with appearing_whole(path) as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> tuple[int, ...]:
    """The shape that an entry claims, once its size proves that the claim is true."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = read(stream)
        if dtype.hasobject:
            raise FileFormatError(
                f"{path} must hold numbers and text only; entry {info.filename!r} holds pickled objects, which are "
                "not opened. Save plain arrays."
            )
        if math.prod(shape) * dtype.itemsize != info.file_size - stream.tell():
            raise FileFormatError(f"{path} must hold as many numbers as it claims; entry {info.filename!r} does not.")
    return shape


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(info) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
