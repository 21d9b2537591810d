"""Every error that RULER raises on purpose.

RulerError
├── InputError            (ValueError)        an argument breaks a rule
│   ├── UnknownNameError  (ValueError)        a name that is not in a registry
│   └── FileFormatError   (ValueError)        a file that cannot be read safely
├── DataMismatchError     (ValueError)        data that is not the version it claims to be
├── DownloadError         (ConnectionError)   data that is not here and cannot be fetched
├── WriteError            (OSError)           a file or folder that cannot be written: full disk, no rights, locked
├── LayerNotFoundError    (LookupError)       a model without a task head that we can find
├── UnstableModelError    (RuntimeError)      a model that answers differently on the same input
├── DivergedError         (RuntimeError)      training or unlearning left the numbers
├── CheckpointError       (RuntimeError)      a stored model that fails its checksum or manifest
├── ClusterError          (RuntimeError)      a cluster that lost work more often than it is retried
└── MissingPackageError   (ImportError)       an optional package is needed; says how to get it
"""

import difflib
from collections.abc import Iterable
from typing import Any

from ruler.core.text import show_text

_LONGEST_REASON = 300


class RulerError(Exception):
    """Base of all errors that RULER raises on purpose; names of files and columns in it cannot control a terminal."""

    def __str__(self) -> str:
        return show_text(super().__str__())


class InputError(RulerError, ValueError):
    """An argument breaks a stated rule."""


class UnknownNameError(InputError):
    """A name that no registry entry carries."""


class FileFormatError(InputError):
    """A file that cannot be read, or not safely."""


class DataMismatchError(RulerError, ValueError):
    """Data that differs from the version it claims to be."""


class DownloadError(RulerError, ConnectionError):
    """Data that is not on this machine and cannot be fetched."""


class WriteError(RulerError, OSError):
    """A file or folder that cannot be written: the disk is full, it is read-only, or another process holds it."""


class LayerNotFoundError(RulerError, LookupError):
    """A model in which the asked-for layer, or any task head, cannot be found."""


class UnstableModelError(RulerError, RuntimeError):
    """A model that gives different embeddings for the same input."""


class DivergedError(RulerError, RuntimeError):
    """A run whose loss became NaN or passed its bound.

    ``last_good_state`` holds the state dict of the last step with a sound loss: load it to continue from there.
    """

    def __init__(self, message: str, *, last_good_state: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.last_good_state = last_good_state


class CheckpointError(RulerError, RuntimeError):
    """A stored model that does not match its manifest."""


class ClusterError(RulerError, RuntimeError):
    """A cluster that cannot do the work: its workers or nodes are lost again and again."""


class MissingPackageError(RulerError, ImportError):
    """An optional package that this call needs is not installed."""


def suggest(name: str, known: Iterable[object]) -> str:
    """Which of the known names was perhaps meant, as a sentence to add; empty if none is near.

    Example:
        >>> suggest("group", ["side", "grop"])
        " Rename 'grop' to 'group'?"
    """
    near = difflib.get_close_matches(name, [str(one) for one in known], n=1)
    return f" Rename {near[0]!r} to {name!r}?" if near else ""


def shorten(error: BaseException, *, takes_all: bool = True) -> str:
    """An error of somebody else's code in one sentence; without ``takes_all`` its first line alone.

    Example:
        >>> shorten(ValueError("bad\\nnews"))
        'bad news.'
        >>> shorten(ValueError("Is it a key?"))
        'Is it a key?'
    """
    text = str(error) if takes_all else next(iter(str(error).strip().splitlines()), "")
    words = (" ".join(text.split()) or type(error).__name__)[:_LONGEST_REASON].rstrip(".")
    return words if words.endswith(("?", "!")) else f"{words}."
