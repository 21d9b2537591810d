"""What keeps readers safe: bounds on what a file may unfold to, and one line for whatever a broken one raises."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ruler.core.errors import FileFormatError, InputError, MissingPackageError, shorten

_LARGEST_RATIO = 100  # deflate reaches 1000 on constant data; embeddings stay far below
_ALWAYS_ALLOWED_BYTES = 16 << 20
_FAULTS_OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)


@contextmanager
def reading_safely(path: Path) -> Iterator[None]:
    """Turn whatever a missing, broken or hostile file makes its parser raise into a `FileFormatError` in one line."""
    try:
        yield
    except (FileFormatError, MissingPackageError):
        raise
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from None
    except Exception as error:  # parsers raise anything
        if not path.exists():
            raise FileFormatError(f"{path} must be a file; got nothing there. Check the path.") from None
        if path.is_dir() and isinstance(error, IsADirectoryError):
            raise FileFormatError(f"{path} must be a file; got a folder. Check the path.") from None
        if isinstance(error, OSError) and error.errno in _FAULTS_OF_THE_SYSTEM:
            raise FileFormatError(
                f"{path} must be readable; got: {error.strerror}. Check its rights, the disk with the temporary files, "
                "and how many files may be open (ulimit -n; one per shard)."
            ) from None
        raise FileFormatError(
            f"{path} must be a sound {path.suffix} file; it cannot be read: {shorten(error)} Write it again."
        ) from None


def check_unfolded_size(n_bytes: int, path: Path) -> None:
    """Refuse a file that unfolds to much more than its own size, as a decompression bomb does.

    Raises:
        FileFormatError: It would.
    """
    allowed = _LARGEST_RATIO * path.stat().st_size + _ALWAYS_ALLOWED_BYTES
    if n_bytes > allowed:
        raise FileFormatError(
            f"{path} must not unfold to more than {_LARGEST_RATIO} times its size; it claims {n_bytes:,} bytes. "
            "Write it uncompressed if it is genuine."
        )
