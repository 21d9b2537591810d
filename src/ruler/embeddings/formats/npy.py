"""NumPy's plain array file, with ids beside it in ``<stem>.ids.npy``."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings.formats.entries import Opened, appearing_whole


def load(path: Path, strata: str | None = None) -> Opened:
    """The array, memory-mapped, and the ids beside it if there are any."""
    if strata is not None:
        raise FileFormatError(
            f"{path} must have named columns or arrays for strata={strata!r}; .npy has none. Use another format."
        )
    ids = ids_path(path)
    return Opened(_map(path), {"ids": np.array(_map(ids))} if ids.is_file() else {})


def save(embeddings: Embeddings, path: Path) -> None:
    """Write the values, then the ids unless they are 0..n-1; a crash between leaves no ids rather than wrong ones."""
    ids = ids_path(path)
    ids.unlink(missing_ok=True)
    with appearing_whole(path) as stream:
        np.lib.format.write_array(stream, embeddings.values, allow_pickle=False)
    if not np.array_equal(embeddings.ids, np.arange(len(embeddings))):
        with appearing_whole(ids) as stream:
            np.lib.format.write_array(stream, embeddings.ids, allow_pickle=False)


def ids_path(path: Path) -> Path:
    """Where the ids of this array lie.

    Example:
        >>> ids_path(Path("rows.npy")).name
        'rows.ids.npy'
    """
    return path.with_name(f"{path.stem}.ids.npy")


def _map(path: Path) -> npt.NDArray[Any]:
    return np.lib.format.open_memmap(path, mode="r")  # refuses pickled objects and files that are too short
