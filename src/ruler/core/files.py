"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that readers, and a killed writer, only ever leave the old one or the new one.

    Args:
        path: Where to; missing folders are made.
        content: Bytes, or text that is written as UTF-8.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_atomically(folder / "tables" / "one.csv", "a,b\\n")
        >>> (folder / "tables" / "one.csv").read_text()
        'a,b\\n'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".writing-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
