"""One line for whatever a missing, broken or hostile file makes its reader raise."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ruler.core.errors import FileFormatError, InputError, MissingPackageError, shorten

_FAULTS_OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)


@contextmanager
def reading_safely(path: Path, noun: str | None = None) -> Iterator[None]:
    """Turn whatever a missing, broken or hostile file makes its parser raise into a `FileFormatError` in one line.

    Args:
        path: The file or folder that is read.
        noun: What it is, for the message; by default a file of its ending.
    """
    try:
        yield
    except (FileFormatError, MissingPackageError):
        raise
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from None
    except Exception as error:  # parsers raise anything
        raise FileFormatError(_explain(path, noun or f"{path.suffix} file", error)) from None
    except BaseException as error:
        if not is_panic(error):
            raise
        raise FileFormatError(_explain(path, noun or f"{path.suffix} file", error)) from None


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up: its error is no `Exception`."""
    return type(error).__name__ == "PanicException"


def _explain(path: Path, noun: str, error: BaseException) -> str:
    if not os.path.exists(path):  # unlike Path's, false also for names that no system takes
        return f"{path} must be a file; got nothing there. Check the path."
    if isinstance(error, IsADirectoryError):
        return f"{path} must be a file; got a folder. Check the path."
    if isinstance(error, OSError) and error.errno in _FAULTS_OF_THE_SYSTEM:
        return (
            f"{path} must be readable; got: {error.strerror}. Check its rights, the disk with the temporary files, "
            "and how many files may be open (ulimit -n; one per shard)."
        )
    verb = "hold" if os.path.isdir(path) else "be"
    if isinstance(error, RecursionError):
        return f"{path} must {verb} a sound {noun}; it nests too deeply. Write it again."
    if isinstance(error, MemoryError):
        return f"{path} must fit into memory; it does not. Split it, or use a larger machine."
    reason = f"{type(error).__name__} {error}." if isinstance(error, KeyError) else shorten(error)
    return f"{path} must {verb} a sound {noun}; it cannot be read: {reason} Write it again."
