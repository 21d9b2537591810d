"""How much a parquet file unfolds to, counted from the headers of its pages: what the footer says may be a lie.

Footer and headers are read here rather than by pyarrow, which ends the process on some broken footers.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.core.readers.safety import check_at_most, check_unfolded_size

_LEAST_BYTES_PER_VALUE = 8  # a number, an offset of a text, or a reference to a Python object
_FIRST_READ, _LONGEST_HEADER = 1 << 12, 1 << 24
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_GROUPS, _COLUMNS, _N_ROWS, _ELSEWHERE, _CHUNK = 4, 1, 3, 1, 3  # fields of the footer, a row group, a column chunk
_KIND, _CODEC, _TOTAL_SIZE, _FIRST_PAGE, _DICTIONARY_PAGE = 1, 4, 7, 9, 11
_SIZE, _PACKED_SIZE, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8  # fields of a page header
_TEXT, _FIXED = 6, 7  # kinds of columns
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_PREFIXED = 7  # texts that each repeat the start of the one before
_SHARED = (2, 8)  # values by their number in a dictionary
_SMALL = 1 << 20


def check_pages(stream: IO[bytes], path: Path) -> None:
    """Refuse a parquet file whose pages unfold to much more than the file; only dictionaries are unpacked for that."""
    n_bytes, size = 0, stream.seek(0, os.SEEK_END)
    for described in _list_chunks(stream, size, path):
        chunk = _Chunk(stream, described)
        n_bytes += chunk.n_bytes
        check_unfolded_size(n_bytes, path, size)
        n_bytes += chunk.count_shared()
        check_unfolded_size(n_bytes, path, size)


def _list_chunks(stream: IO[bytes], n_bytes: int, path: Path) -> Iterator[dict[int, Any]]:
    """What the footer says of every column in every row group that has rows."""
    stream.seek(max(0, n_bytes - 8))
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > n_bytes - 12:
        raise ValueError("its end is missing or broken")
    check_at_most(length, "header_bytes", path, "bytes of footer")
    stream.seek(n_bytes - 8 - length)
    for group in _read_struct(stream.read(length), 0)[0].get(_GROUPS) or []:
        for column in group[_COLUMNS] if group[_N_ROWS] > 0 else []:
            if column.get(_ELSEWHERE):
                raise FileFormatError(f"{path} must hold all its columns itself; one lies in another file.")
            yield column[_CHUNK]


class _Chunk:
    """The pages of one column in one row group, by their headers."""

    def __init__(self, stream: IO[bytes], described: dict[int, Any]) -> None:
        self._stream, self._kind, self._codec = stream, described[_KIND], described[_CODEC]
        self.n_bytes = self._n_shared = 0
        self._dictionary = (0, 0, 0, 1)
        start = described[_FIRST_PAGE]
        if described.get(_DICTIONARY_PAGE, 0) > 0:
            start = min(start, described[_DICTIONARY_PAGE])
        stop = start + described[_TOTAL_SIZE]
        while start < stop:
            header, length = _read_header(stream, start)
            start += length
            self._count_page(header, start)
            start += max(0, header[_PACKED_SIZE])

    def _count_page(self, header: dict[int, Any], start: int) -> None:
        data = header.get(_DATA) or header.get(_DATA_2) or header.get(_DICTIONARY) or {}
        encoding = data.get(4 if _DATA_2 in header else 2)
        n_values, n_page = max(0, data.get(1, 0)), max(0, header[_SIZE])
        self.n_bytes += n_page * (max(1, n_values) if encoding == _PREFIXED else 1) + n_values * _LEAST_BYTES_PER_VALUE
        if _DICTIONARY in header:
            self._dictionary = start, max(0, header[_PACKED_SIZE]), n_page, max(1, n_values)
        elif encoding in _SHARED:
            self._n_shared += n_values

    def count_shared(self) -> int:
        """Bytes of the texts that rows share, at the length of the longest, once each row has its own."""
        start, n_packed, n_page, n_values = self._dictionary
        if self._kind == _FIXED:
            return int(self._n_shared * (n_page // n_values))
        if self._kind != _TEXT or self._n_shared * n_page <= _SMALL:
            return 0
        self._stream.seek(start)
        page = self._stream.read(n_packed)
        if self._codec:
            codec = load_optional("pyarrow", "reading .parquet").Codec(_CODECS[self._codec])
            page = codec.decompress(page, n_page, asbytes=True)
        longest = at = 0
        while at + 4 <= len(page):
            length = int.from_bytes(page[at : at + 4], "little")
            longest, at = max(longest, min(length, n_page)), at + 4 + length
        return int(self._n_shared * longest)


def _read_header(stream: IO[bytes], start: int) -> tuple[dict[int, Any], int]:
    n_read = _FIRST_READ
    while True:
        stream.seek(start)
        content = stream.read(n_read)
        try:
            return _read_struct(content, 0)
        except IndexError:
            if len(content) < n_read or n_read >= _LONGEST_HEADER:
                raise ValueError("a page header is cut off") from None
            n_read *= 16


def _read_struct(content: bytes, at: int) -> tuple[dict[int, Any], int]:
    """A struct of Thrift's compact protocol, by field number, and where it ends; of text its first byte alone."""
    fields: dict[int, Any] = {}
    number = 0
    while True:
        kind, step = content[at] & 15, content[at] >> 4
        at += 1
        if kind == _STOP:
            return fields, at
        if step:
            number += step
        else:
            number, at = _read_number(content, at)
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _read_value(kind, content, at)


def _read_value(kind: int, content: bytes, at: int) -> tuple[Any, int]:
    if kind == _STRUCT:
        return _read_struct(content, at)
    if kind in (_TRUE, _FALSE, _BYTE):
        return content[at], at + 1
    if kind == _DOUBLE:
        return None, at + 8
    if kind == _BINARY:
        length, at = _read_varint(content, at)
        return content[at : at + min(length, 1)], at + length
    if kind in (_LIST, _SET):
        length, inner = content[at] >> 4, content[at] & 15
        at += 1
        if length == 15:
            length, at = _read_varint(content, at)
        values = []
        for _ in range(length):
            value, at = _read_value(inner, content, at)
            values.append(value)
        return values, at
    if kind == _MAP:
        raise ValueError("its footer or a page header holds a map")
    return _read_number(content, at)


def _read_number(content: bytes, at: int) -> tuple[int, int]:
    packed, at = _read_varint(content, at)
    return (packed >> 1) ^ -(packed & 1), at


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("its footer or a page header holds a number of too many digits")
