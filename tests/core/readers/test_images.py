import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from ruler.core.errors import FileFormatError
from ruler.core.readers.images import decode_image


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
