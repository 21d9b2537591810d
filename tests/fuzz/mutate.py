"""Bytes -> other bytes: blind changes, and changes inside containers whose checksums are put right again."""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

NUMBERS = [0, 1, -1, 2, 7, 16, 64, 127, 128, 255, 256, 1024, 32767, 65535, 10**6, 2**24, 2**31 - 1, 2**31, 2**32 - 1]
NUMBERS += [2**32, 2**40, 2**53, 2**62, 2**63 - 1, -(2**31), -(2**63)]
WORDS = [b"\xff", b"\0", b"\x1b[31m", b"\n", b'"', b"[", b"{", b"]", b"}", b",", b":", b"null", b"NaN", b"-1", b"1e999"]
WORDS += [
    b"\\u0000",
    b"~nobody",
    b"true",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"9" * 5000,
    b"\xed\xa0\x80",
    "\u202e".encode(),
    b"../",
    b"A" * 3000,
]
_DIGITS = re.compile(rb"\d+")
_MOST_BYTES = 1 << 16


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))


def _set_number(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    size = random.choice((1, 2, 4, 8))
    place = random.randrange(len(data))
    number = random.choice(NUMBERS) & ((1 << 8 * size) - 1)
    data[place : place + size] = number.to_bytes(size, random.choice(("little", "big")))


def _cut(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[random.randrange(len(data)) :]


def _delete(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = random.randrange(len(data))
    del data[start : start + random.randint(1, 16)]


def _repeat(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = random.randrange(len(data))
    piece = data[start : start + random.randint(1, 64)]
    data[start:start] = piece * random.choice((1, 1, 2, 16, 200))


def _insert(random: Random, data: bytearray, words: Sequence[bytes]) -> None:
    place = random.randrange(len(data) + 1)
    data[place:place] = random.choice(words)


def _overwrite(random: Random, data: bytearray, words: Sequence[bytes]) -> None:
    word = random.choice(words)
    place = random.randrange(len(data))
    data[place : place + len(word)] = word


def _swap(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    one, other, size = random.randrange(len(data)), random.randrange(len(data)), random.randint(1, 16)
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def _replace_digits(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    found = _DIGITS.search(data, random.randrange(len(data)))
    if found:
        data[found.start() : found.end()] = str(random.choice(NUMBERS)).encode()


_CHANGES = (_flip, _set_byte, _set_number, _cut, _delete, _repeat, _insert, _overwrite, _swap, _replace_digits)


def mutate(random: Random, content: bytes, words: Sequence[bytes] = WORDS) -> bytes:
    """One to a few random changes, of at most 64 KB more."""
    data = bytearray(content)
    while True:
        if data:
            random.choice(_CHANGES)(random, data, words)
        else:
            data += random.choice(words)
        if random.random() < 0.5 or len(data) > len(content) + _MOST_BYTES:
            return bytes(data)


@dataclass(frozen=True)
class Container:
    """A format whose parts are changed, not its frame: it is closed with lengths and checksums set right."""

    open: Callable[[bytes], list[bytes]]
    close: Callable[[list[bytes]], bytes]

    def mutate(self, random: Random, content: bytes, words: Sequence[bytes] = WORDS) -> bytes:
        """Change one part."""
        parts = self.open(content)
        number = random.randrange(len(parts))
        parts[number] = mutate(random, parts[number], words)
        return self.close(parts)


def _open_zip(content: bytes) -> list[bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [part for name in archive.namelist() for part in (name.encode(), archive.read(name))]


def _close_zip(parts: list[bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in zip(parts[::2], parts[1::2], strict=True):
            entry = zipfile.ZipInfo(name.decode("utf-8", "replace")[:60_000] or "a")
            archive.writestr(entry, content)
    return stream.getvalue()


def _open_safetensors(content: bytes) -> list[bytes]:
    length = int.from_bytes(content[:8], "little")
    return [content[8 : 8 + length], content[8 + length :]]


def _close_safetensors(parts: list[bytes]) -> bytes:
    return len(parts[0]).to_bytes(8, "little") + parts[0] + parts[1]


def _open_png(content: bytes) -> list[bytes]:
    parts, place = [], 8
    while place < len(content):
        length = int.from_bytes(content[place : place + 4], "big")
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        parts.append(kind + (zlib.decompress(body) if kind == b"IDAT" else body))
        place += 12 + length
    return parts


def _close_png(parts: list[bytes]) -> bytes:
    chunks = [b"\x89PNG\r\n\x1a\n"]
    for part in parts:
        kind, body = part[:4].ljust(4, b"x"), part[4:]
        body = zlib.compress(body, 1) if kind == b"IDAT" else body
        chunks.append(struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)))
    return b"".join(chunks)


def _open_gzip(content: bytes) -> list[bytes]:
    return [zlib.decompress(content, 31)]


def _close_gzip(parts: list[bytes]) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(parts[0]) + packer.flush()


ZIP = Container(_open_zip, _close_zip)
SAFETENSORS = Container(_open_safetensors, _close_safetensors)
PNG = Container(_open_png, _close_png)
GZIP = Container(_open_gzip, _close_gzip)
