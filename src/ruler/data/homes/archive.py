"""Members of a tar archive, read in memory: nothing is ever unpacked onto the disk."""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ruler.core.errors import FileFormatError


@contextmanager
def opened(path: Path) -> Iterator[tarfile.TarFile]:
    """A gzipped tar archive, opened to read.

    Raises:
        FileFormatError: Not such an archive, or a broken one.
    """
    try:
        with tarfile.open(path, "r:gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FileFormatError(f"{path.name} must be a gzipped tar archive; got a broken one ({error}).") from error


def read_member(archive: tarfile.TarFile, name: str, *, at_most: int) -> bytes:
    """The first ``at_most`` bytes of a plain file in the archive.

    Raises:
        FileFormatError: No such member, or one that is no plain file (a link could point anywhere).
    """
    try:
        member = archive.getmember(name)
    except KeyError:
        raise FileFormatError(f"archive must hold {name}; got none of that name.") from None
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise FileFormatError(f"{name} must be a plain file in the archive; got a link or folder.")
    with stream:
        return stream.read(at_most)
