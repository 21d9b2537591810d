"""A line for files that become shorter while they are read in place, which would end the process without a word."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from ruler.core.terminal import show_text

_MISUSE = 2
_lock = Lock()
_watched: list[Callable[[], Sequence[Path]]] = []


def _tell(_: int) -> None:
    """Say the line and end the process. Nothing else is done: memory may be in any state."""
    names = ", ".join(show_text(path) for find_shrunk in _watched for path in find_shrunk()) or "an input file"
    line = f"ruler: {names} must stay as it is while it is audited; it became shorter, or its disk failed. "
    os.write(2, f"{line}Audit a copy that nothing writes to.\n".encode(errors="backslashreplace"))
    os._exit(_MISUSE)


_handler: Any = ctypes.CFUNCTYPE(None, ctypes.c_int)(_tell)
_earlier: list[int | None] = []


@contextmanager
def telling_of_shrunk_files(find_shrunk: Callable[[], Sequence[Path]]) -> Iterator[None]:
    """Say which file shrank if reading beyond its new end is what ends the process, which then ends with 2.

    Python's own signal handlers run only after the instruction that failed, which fails again, for ever. So C calls
    ours at once. Outside of the context the signal does what it did before.

    Args:
        find_shrunk: Lists the files that are shorter than they were.
    """
    if not hasattr(signal, "SIGBUS"):
        yield
        return
    with _lock:
        _watched.append(find_shrunk)
        if len(_watched) == 1:
            _earlier[:] = [_install(ctypes.cast(_handler, ctypes.c_void_p).value)]
    try:
        yield
    finally:
        with _lock:
            _watched.remove(find_shrunk)
            if not _watched:
                _install(_earlier[0])


def _install(handler: int | None) -> int | None:
    """Let C call another function on SIGBUS; returns the one before."""
    install = ctypes.CDLL(None).signal
    install.restype, install.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    earlier: int | None = install(int(signal.SIGBUS), handler)
    return earlier
