"""Arrays of strangers: bounded, never unpickled, and every fault in one line that names the file."""

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from ruler.core.errors import FileFormatError
from ruler.core.readers.arrays import decode_image, open_npy, open_npz, read_npz, read_torch

torch = pytest.importorskip("torch")


class Trap:
    def __reduce__(self):
        return print, ("the trap ran",)


def test_npy_is_mapped(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    assert isinstance(open_npy(tmp_path / "a.npy"), np.memmap)


def test_npz_arrays_are_read_when_asked_for(tmp_path):
    np.savez(tmp_path / "a.npz", rows=np.eye(3), names=["x", "y", "z"])
    with open_npz(tmp_path / "a.npz") as arrays:
        assert (arrays.shapes, list(arrays), len(arrays)) == ({"rows": (3, 3), "names": (3,)}, ["rows", "names"], 2)
        np.testing.assert_array_equal(arrays["rows"], np.eye(3))


def test_other_entries_of_an_archive_are_not_looked_at(tmp_path):
    np.savez(tmp_path / "a.npz", rows=np.eye(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("README.txt", "no array")
    assert list(read_npz(tmp_path / "a.npz")) == ["rows"]


@pytest.mark.parametrize(("reader", "name"), [(open_npy, "a.npy"), (read_npz, "a.npz"), (read_torch, "a.pt")])
def test_what_is_no_file_is_told(tmp_path, reader, name):
    with pytest.raises(FileFormatError, match=f"{name} must be a file; got nothing there"):
        reader(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(FileFormatError, match=f"{name} must be a file; got a folder"):
        reader(tmp_path / name)


@pytest.mark.parametrize(("reader", "name"), [(open_npy, "a.npy"), (read_npz, "a.npz"), (read_torch, "a.pt")])
def test_pickles_never_run(tmp_path, capfd, reader, name):
    trap = np.array([Trap()], dtype=object)
    if name == "a.pt":
        torch.save(Trap(), tmp_path / name)
    else:
        np.save(tmp_path / name, trap) if name == "a.npy" else np.savez(tmp_path / name, a=trap)
    with pytest.raises(FileFormatError, match=rf"{name} must"):
        reader(tmp_path / name)
    assert "trap" not in capfd.readouterr().out


def test_tensors_may_be_mapped(tmp_path):
    torch.save({"values": torch.eye(3)}, tmp_path / "a.pt")
    assert torch.equal(read_torch(tmp_path / "a.pt", is_mapped=True)["values"], torch.eye(3))
    torch.save(torch.eye(3), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert torch.equal(read_torch(tmp_path / "old.pt", is_mapped=True), torch.eye(3))


def write_header(path, shape, descr):
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00"])
def test_a_header_of_gigabytes_takes_none(tmp_path, version):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY" + version + b"\xff\xff\xff\x7f" + b"{" * 100)
    with pytest.raises(FileFormatError, match=r"a\.npy must have a header .* it claims 2,147,483,647\. Write it again"):
        open_npy(tmp_path / "a.npy")


def test_texts_of_no_letters_are_refused_however_many_there_are(tmp_path):
    write_header(tmp_path / "a.npy", (2**31,), "<U0")
    with pytest.raises(FileFormatError, match=r"a\.npy must hold numbers or text; got <U0, which holds nothing"):
        open_npy(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("forget.npy", (tmp_path / "a.npy").read_bytes())
    with pytest.raises(FileFormatError, match="must hold as many numbers as it claims"):
        read_npz(tmp_path / "a.npz")


def test_a_header_that_promises_more_than_any_memory(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("train_images.npy", header.getvalue())
    with pytest.raises(FileFormatError, match="must hold as many numbers as it claims"):
        read_npz(tmp_path / "bomb.npz")


def test_broken_archives_and_single_arrays_are_refused(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04nonsense")
    np.save(tmp_path / "single.npy", np.zeros(2))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    for name in ("broken", "single"):
        with pytest.raises(FileFormatError, match=rf"{name}\.npz must be a sound \.npz file"):
            read_npz(tmp_path / f"{name}.npz")


def _png(pixels, **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", **options)
    return buffer.getvalue()


PIXELS = np.random.default_rng(1).integers(0, 256, (3, 5, 3), dtype=np.uint8)


def test_png_comes_back_exactly():
    np.testing.assert_array_equal(decode_image(_png(PIXELS), "x"), PIXELS)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_every_common_mode_becomes_three_colours(mode):
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(buffer, "PNG")
    decoded = decode_image(buffer.getvalue(), "x")
    assert (decoded.shape, decoded.dtype) == ((3, 5, 3), np.uint8)
    if mode == "RGBA":
        np.testing.assert_array_equal(decoded, PIXELS)


def test_a_photo_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    np.testing.assert_array_equal(decode_image(_png(PIXELS, exif=exif), "x"), np.rot90(PIXELS, -1))


def test_broken_notes_of_a_camera_leave_the_photo_as_it_lies():
    buffer = io.BytesIO()
    notes = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\xff\xff\xff\xff\x06"
    Image.fromarray(PIXELS).save(buffer, "JPEG", exif=notes)
    assert decode_image(buffer.getvalue(), "x").shape == PIXELS.shape


def test_size_is_height_then_width():
    assert decode_image(_png(PIXELS), "x", (7, 2)).shape == (7, 2, 3)


def _bomb(side=60_000):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


def _other(form):
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, form)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        _png(PIXELS)[:60],
        _other("GIF"),
        _other("TIFF"),
        _bomb(),
        _bomb(10_000),  # where Pillow only warns
        _png(np.arange(6, dtype=np.uint16).reshape(2, 3)),
    ],
    ids=["empty", "text", "cut", "gif", "tiff", "bomb", "half a bomb", "16 bit"],
)
def test_anything_else_is_refused(content):
    with pytest.raises(FileFormatError, match=r"a/b\.png must be a PNG or JPEG image of at most 50,000,000 pixels"):
        decode_image(content, "a/b.png")


def test_what_is_no_image_is_said_in_words():
    with pytest.raises(FileFormatError, match=r"a file that cannot be read \(not one of the two\)\. Remove or convert"):
        decode_image(b"text", "a/b.png")


@pytest.mark.parametrize("field", ["stored", "packed"])
def test_an_entry_that_claims_more_than_the_file_has_is_refused_before_memory_is_taken(tmp_path, field):
    path = tmp_path / "a.pt"
    torch.save(torch.eye(3), path)
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")  # the first one of the central directory: packing, then both sizes
    if field == "packed":
        content[entry + 10 : entry + 12] = struct.pack("<H", zipfile.ZIP_DEFLATED)
    content[entry + 20 : entry + 24] = struct.pack("<I", 1 << 30)
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"claim; entry .* claims 1,073,741,824 bytes of"):
        read_torch(path)
