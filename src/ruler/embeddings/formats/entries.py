"""What the formats share: which entry holds the matrix, how large a file may unfold, writing whole files."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ruler.core.errors import FileFormatError

MATRIX_NAMES = ("values", "embeddings", "embedding")
_LARGEST_RATIO = 100  # deflate reaches 1000 on constant data; embeddings stay far below
_ALWAYS_ALLOWED_BYTES = 16 << 20


def pick_matrix(n_dims_of: Mapping[str, int], path: Path) -> str:
    """The name of the entry that holds the embedding matrix.

    Raises:
        FileFormatError: No entry of a known name, and not exactly one that is 2-D.

    Example:
        >>> pick_matrix({"penultimate": 2, "labels": 1}, Path("rows.npz"))
        'penultimate'
    """
    for name in MATRIX_NAMES:
        if name in n_dims_of:
            return name
    matrices = [name for name, n_dims in n_dims_of.items() if n_dims == 2]
    if len(matrices) != 1:
        raise FileFormatError(
            f"{path} must hold one 2-D array, or name it 'values'; got {len(matrices)} of them among "
            f"{len(n_dims_of)} entries."
        )
    return matrices[0]


def check_unfolded_size(n_bytes: int, path: Path) -> None:
    """A file does not unfold to much more than its own size, as a decompression bomb would.

    Raises:
        FileFormatError: It would.
    """
    allowed = _LARGEST_RATIO * path.stat().st_size + _ALWAYS_ALLOWED_BYTES
    if n_bytes > allowed:
        raise FileFormatError(
            f"{path} must not unfold to more than {_LARGEST_RATIO} times its size; it claims {n_bytes:,} bytes. "
            "Write it uncompressed if it is genuine."
        )


@contextmanager
def appearing_whole(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose file appears under its name only once all is written."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with draft.open("xb") as stream:
            yield stream
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
