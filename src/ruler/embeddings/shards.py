"""A folder of embedding files as one matrix that may be larger than memory."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.stacked import StackedRows
from ruler.core.types import Embeddings
from ruler.embeddings.formats import FORMATS
from ruler.embeddings.formats.entries import Opened, reading_safely, storable_ids

_ENDINGS = tuple(ending for ending, one in FORMATS.items() if one.open_rows is not None)


def open_shards(folder: Path) -> Embeddings:
    """The shards of a folder, sorted by name, as one matrix whose rows are read when asked for.

    Passed over: hidden files, files that are no embeddings, and ``*.ids.npy``, which names the rows of the shard beside
    it. Either every shard names its rows or none does.

    Args:
        folder: With .npy, .parquet or .safetensors files; number them with leading zeros.

    Raises:
        FileFormatError: No shard; one that is broken, of another width or in need of pickle; ids for some shards only;
            .npz or .pt files, which cannot be read in parts.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for i in range(3):
        ...     np.save(folder / f"rows-{i}.npy", np.full((2, 4), i))
        >>> open_shards(folder).values[[5, 0]].tolist()
        [[2, 2, 2, 2], [0, 0, 0, 0]]
    """
    files = _list_shards(folder)
    opened = [_open_one(file) for file in files]
    with reading_safely(folder):
        values = StackedRows([one.values for one in opened], [file.name for file in files])
        ids = _join_ids(opened, files)
        return Embeddings(values, ids, opened[0].layer)  # type: ignore[arg-type]


def _list_shards(folder: Path) -> list[Path]:
    files = sorted(
        file for file in folder.iterdir() if not file.name.startswith(".") and file.suffix.lower() in FORMATS
    )
    shards = [file for file in files if not file.name.endswith(".ids.npy")]
    unfit = [file.name for file in shards if file.suffix.lower() not in _ENDINGS]
    if unfit or not shards:
        found = f"{unfit[0]!r}" if unfit else "none"
        raise FileFormatError(
            f"{folder} must be an embedding file or hold shards ending in {', '.join(_ENDINGS)}; got {found}. "
            "Check the path, or convert the files."
        )
    return shards


def _open_one(file: Path) -> Opened:
    open_rows = FORMATS[file.suffix.lower()].open_rows
    assert open_rows is not None
    with reading_safely(file):
        opened = open_rows(file)
        if opened.ids is not None and opened.ids.shape != opened.values.shape[:1]:
            raise FileFormatError(
                f"{file} must have one id a row; got {opened.ids.shape} for {opened.values.shape[0]} rows."
            )
        return opened


def _join_ids(opened: list[Opened], files: list[Path]) -> npt.NDArray[Any] | None:
    """Names of all rows; None where no shard has any but the numbers of its own rows."""
    named = [one.ids is not None for one in opened]
    if all(one.ids is None or np.array_equal(one.ids, np.arange(len(one.ids))) for one in opened):
        return None
    if not all(named):
        raise FileFormatError(
            f"{files[named.index(False)]} must name its rows, as {files[named.index(True)].name} does; got no ids. "
            "Name the rows of all shards or of none."
        )
    return storable_ids(np.concatenate([storable_ids(one.ids) for one in opened if one.ids is not None]))
