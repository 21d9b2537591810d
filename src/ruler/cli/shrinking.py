"""A line for inputs that become shorter while they are read in place, which would end the process without a word."""

import ctypes
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ruler.core.readers.pins import PinnedInputs
from ruler.core.terminal import show_text

if TYPE_CHECKING:
    from ruler.embeddings.bundle.config import Places

_MISUSE = 2
_installed: list[Callable[[int], None]] = []  # what C calls must stay alive


def pin_inputs(places: "Places") -> PinnedInputs:
    """Hash the inputs, and say which one shrank if reading beyond its new end is what ends the process.

    Python's own signal handlers run only after the instruction that failed, which fails again, for ever. So C calls
    this one at once; it says its line and ends the process. Nothing else is done: memory may be in any state.
    """
    pins = PinnedInputs(places)

    def tell(_: int) -> None:
        names = ", ".join(show_text(path) for path in pins.find_shrunk()) or "an input file"
        line = f"ruler: {names} must stay as it is while it is audited; it became shorter, or its disk failed. "
        os.write(2, f"{line}Audit a copy that nothing writes to.\n".encode(errors="backslashreplace"))
        os._exit(_MISUSE)

    if hasattr(signal, "SIGBUS"):
        handler: Any = ctypes.CFUNCTYPE(None, ctypes.c_int)(tell)
        _installed.append(handler)
        ctypes.CDLL(None).signal(int(signal.SIGBUS), handler)
    return pins
