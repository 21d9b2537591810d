"""Files that are written whole or not at all."""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def writing_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose file appears under its name only once all is written; missing folders are made.

    Readers, and a killed writer, only ever leave the old file or the new one.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "tables" / "one.csv"
        >>> with writing_atomically(path) as stream:
        ...     _ = stream.write(b"a,b")
        ...     path.exists()
        False
        >>> path.read_text()
        'a,b'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".writing-{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as stream:
            yield stream
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write bytes, or text as UTF-8, by `writing_atomically`."""
    with writing_atomically(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def hash_file(path: Path) -> str:
    """SHA-256 of a file in hexadecimal digits.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "empty"
        >>> path.touch()
        >>> hash_file(path)[:8]
        'e3b0c442'
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
