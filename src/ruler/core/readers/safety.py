"""What every reader of files needs: limits on what a file may hold, checked before memory is taken, and errors."""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
        text = str(error)
        raise FileFormatError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    except BaseException as error:  # parsers raise anything
        if not isinstance(error, Exception) and not is_panic(error):
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


VARIABLE = "RULER_LIMITS"
_BYTES_PER_CHARACTER = 4  # NumPy's text
_CHARACTERS_SHOWN = 40


@dataclass(frozen=True)
class Limit:
    """One limit: its value, and why there is one."""

    value: int
    reason: str


LIMITS = {
    "unfolding": Limit(100, "times that a file may unfold; deflate reaches 1,000 on constant data, embeddings 2"),
    "unfolded_bytes": Limit(16 << 20, "bytes that every file may unfold to, since small tables pack well"),
    "id_characters": Limit(1024, "characters of one id, label or group; NumPy keeps all at the width of the longest"),
    "text_bytes": Limit(4 << 30, "bytes of all ids, labels or groups of a file, at the width of the longest"),
    "text_characters": Limit(10_000_000, "characters of one text for a model; tokenizers take 50 bytes for each"),
    "tokens": Limit(1 << 20, "tokens of one text where a model names no limit of its own"),
    "pixels": Limit(50_000_000, "pixels of an image, before and after it is prepared; each takes 4 bytes, 3 times"),
    "toml_bytes": Limit(1 << 18, "bytes of a TOML file; real ones have a few thousand"),
    "toml_key_parts": Limit(16, "parts of a dotted TOML key; the parser's time grows with their square"),
    "json_bytes": Limit(64 << 20, "bytes of a JSON file beside data or a model; tokenizers have up to 35 million"),
    "report_bytes": Limit(256 << 20, "bytes of a report.json, which holds some numbers per record"),
    "header_bytes": Limit(16 << 20, "bytes of a .safetensors header; 10,000 tensors need one million"),
    "layers": Limit(
        1024, "layers, blocks or experts that a config.json may name; each is built before weights are read"
    ),
    "model_growth": Limit(8, "times that a model may be larger in memory than its weights on disk; 4-bit ones grow 8"),
}
"""By name; each may be raised, such as ``RULER_LIMITS="id_characters=4096 unfolding=1000"``."""


def limit(name: str) -> int:
    """The limit of this name: the user's, from ``RULER_LIMITS``, or ours.

    Example:
        >>> limit("id_characters")
        1024
    """
    return _parse_limits(os.environ.get(VARIABLE, "")).get(name, LIMITS[name].value)


@cache
def _parse_limits(text: str) -> dict[str, int]:
    chosen = {}
    for part in text.replace(",", " ").split():
        name, _, number = part.partition("=")
        if name not in LIMITS or not number.isdecimal() or len(number) > 18:
            raise InputError(
                f"{VARIABLE} must be a list such as 'id_characters=4096 unfolding=1000' of {', '.join(LIMITS)}; "
                f"got {part!r:.80}."
            )
        chosen[name] = int(number)
    return chosen


def say_how_to_raise(name: str) -> str:
    """The sentence that ends every refusal by a limit."""
    return f"If it is genuine, raise the limit: {VARIABLE}={name}=NUMBER."


def check_at_most(n: int, name: str, path: Path | str, noun: str) -> None:
    """Refuse a file that holds more of something than the limit of this name.

    Example:
        >>> check_at_most(2000, "layers", "config.json", "layers")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: config.json must have at most 1,024 layers; got 2,000. If it is genuine, ...
    """
    most = limit(name)
    if n > most:
        raise FileFormatError(f"{path} must have at most {most:,} {noun}; got {n:,}. {say_how_to_raise(name)}")


def check_unfolded_size(n_bytes: int, path: Path, size: int | None = None) -> None:
    """Refuse a file that unfolds to far more than its own ``size``, as a decompression bomb does."""
    allowed = limit("unfolding") * (path.stat().st_size if size is None else size) + limit("unfolded_bytes")
    if n_bytes > allowed:
        raise FileFormatError(
            f"{path} must not unfold to more than {limit('unfolding')} times its size; it claims {n_bytes:,} bytes. "
            f"Write it uncompressed. {say_how_to_raise('unfolding')}"
        )


def pack_texts(texts: Sequence[str], noun: str) -> npt.NDArray[np.str_]:
    """Texts as a NumPy array, once none is too long and all together fit; ``noun`` says what they are.

    Example:
        >>> pack_texts(["ann", "bob"], "ids").dtype
        dtype('<U3')
    """
    longest = max(map(len, texts), default=0)
    if longest > limit("id_characters"):
        text = next(text for text in texts if len(text) == longest)
        raise InputError(
            f"{noun} must have at most {limit('id_characters'):,} characters each; got one of {longest:,}, "
            f"{text[:_CHARACTERS_SHOWN]!r}... {say_how_to_raise('id_characters')}"
        )
    check_text_bytes(len(texts) * longest * _BYTES_PER_CHARACTER, noun)
    return np.array(texts, dtype=np.str_)


def check_text_bytes(n_bytes: int, noun: str) -> None:
    """Refuse texts that would take too much memory together."""
    if n_bytes > limit("text_bytes"):
        raise InputError(
            f"{noun} must take at most {limit('text_bytes'):,} bytes, as wide as the longest; got {n_bytes:,}. "
            f"Shorten the longest. {say_how_to_raise('text_bytes')}"
        )


def check_text_array(values: npt.NDArray[Any], noun: str) -> None:
    """Refuse a NumPy array of texts, perhaps still on disk, that is too wide or too large to be copied."""
    if values.dtype.kind not in "US":
        return
    if values.dtype.itemsize > limit("id_characters") * _BYTES_PER_CHARACTER:
        raise InputError(
            f"{noun} must have at most {limit('id_characters'):,} characters each; got {values.dtype}. "
            f"{say_how_to_raise('id_characters')}"
        )
    check_text_bytes(values.nbytes, noun)


def check_ends(ends: npt.NDArray[Any], n_bytes: int, noun: str) -> None:
    """Texts that lie one behind the other end in ascending order, the last where the data ends.

    Example:
        >>> check_ends(np.array([3, 6]), 6, "ids")
    """
    is_list = ends.ndim == 1 and ends.dtype.kind in "iu"
    starts = np.concatenate([[0], ends[:-1]]) if is_list else ends
    if not is_list or (ends < starts).any() or (ends[-1] if len(ends) else 0) != n_bytes:
        raise InputError(
            f"{noun}_ends must be whole numbers that ascend to the {n_bytes:,} bytes of text; got others. "
            "Write the file again."
        )
