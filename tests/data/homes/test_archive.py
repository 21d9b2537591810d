import io
import tarfile

import pytest

from ruler.core.errors import FileFormatError
from ruler.data.homes.archive import opened, read_member


@pytest.fixture
def archive_path(tmp_path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        plain = tarfile.TarInfo("set/data.bin")
        plain.size = 6
        archive.addfile(plain, io.BytesIO(b"abcdef"))
        link = tarfile.TarInfo("set/link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        hard = tarfile.TarInfo("set/hard.bin")
        hard.type, hard.linkname = tarfile.LNKTYPE, "set/data.bin"
        archive.addfile(hard)
        folder = tarfile.TarInfo("set/folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return path


def test_member_is_read_in_memory_up_to_a_limit(archive_path):
    with opened(archive_path) as archive:
        assert read_member(archive, "set/data.bin", at_most=4) == b"abcd"
        assert read_member(archive, "set/data.bin", at_most=99) == b"abcdef"
    assert [path.name for path in archive_path.parent.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize("name", ["set/link.bin", "set/hard.bin", "set/folder"])
def test_links_and_folders_are_refused(archive_path, name):
    with opened(archive_path) as archive, pytest.raises(FileFormatError, match="must be a plain file in the archive"):
        read_member(archive, name, at_most=9)


def test_absent_member(archive_path):
    with opened(archive_path) as archive, pytest.raises(FileFormatError, match=r"must hold set/other\.bin; got none"):
        read_member(archive, "set/other.bin", at_most=9)


def test_broken_archive(tmp_path, archive_path):
    for content in (b"not a tar", archive_path.read_bytes()[:60]):
        path = tmp_path / "b.tar.gz"
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match="must be a gzipped tar archive; got a broken one"), opened(path) as a:
            a.getnames()
