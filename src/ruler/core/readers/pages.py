"""How much a parquet file unfolds to, counted from the headers of its pages: what the footer says may be a lie."""

from pathlib import Path
from typing import IO, Any

from ruler.core.optional import load_optional
from ruler.core.readers.bounds import check_unfolded_size

_LEAST_BYTES_PER_VALUE = 8  # a number, an offset of a text, or a reference to a Python object
_PREFIXED = 7  # texts that each repeat the start of the one before
_SHARED = (2, 8)  # values by their number in a dictionary
_SMALL = 1 << 20
_FIRST_READ, _LONGEST_HEADER = 1 << 12, 1 << 24
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_SIZE, _PACKED_SIZE, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8  # fields of a page header


def check_pages(path: Path, metadata: Any) -> None:
    """Refuse a parquet file whose pages unfold to much more than the file; only dictionaries are unpacked for that.

    Args:
        path: The file.
        metadata: Its ``pyarrow.parquet.FileMetaData``.

    Raises:
        FileFormatError: They do.
    """
    n_bytes = 0
    with path.open("rb") as stream:
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for number in range(metadata.num_columns if group.num_rows > 0 else 0):
                chunk = _Chunk(stream, group.column(number))
                n_bytes += chunk.n_bytes
                check_unfolded_size(n_bytes, path)
                n_bytes += chunk.count_shared()
                check_unfolded_size(n_bytes, path)


class _Chunk:
    """The pages of one column in one row group, by their headers."""

    def __init__(self, stream: IO[bytes], described: Any) -> None:
        self._stream, self._kind, self._packing = stream, described.physical_type, described.compression
        self.n_bytes = self._n_shared = 0
        self._place = (0, 0, 0, 0)
        starts = [described.data_page_offset]
        if described.has_dictionary_page and described.dictionary_page_offset > 0:
            starts.append(described.dictionary_page_offset)
        start = min(starts)
        stop = start + described.total_compressed_size
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
            self._place = start, max(0, header[_PACKED_SIZE]), n_page, max(1, n_values)
        elif encoding in _SHARED:
            self._n_shared += n_values

    def count_shared(self) -> int:
        """Bytes of the texts that rows share, at the length of the longest, once each row has its own."""
        start, n_packed, n_page, n_values = self._place
        if self._kind == "FIXED_LEN_BYTE_ARRAY":
            return self._n_shared * (n_page // n_values)
        if self._kind != "BYTE_ARRAY" or self._n_shared * n_page <= _SMALL:
            return 0
        self._stream.seek(start)
        page = self._stream.read(n_packed)
        if self._packing != "UNCOMPRESSED":
            arrow = load_optional("pyarrow", "reading .parquet")
            page = arrow.Codec(self._packing.lower()).decompress(page, n_page, asbytes=True)
        longest = at = 0
        while at + 4 <= len(page):
            length = int.from_bytes(page[at : at + 4], "little")
            longest, at = max(longest, min(length, n_page)), at + 4 + length
        return self._n_shared * longest


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
    """A struct of Thrift's compact protocol, by field number, and where it ends."""
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
        return None, at + length
    if kind in (_LIST, _SET):
        length, inner = content[at] >> 4, content[at] & 15
        at += 1
        if length == 15:
            length, at = _read_varint(content, at)
        for _ in range(length):
            _, at = _read_value(inner, content, at)
        return None, at
    if kind == _MAP:
        raise ValueError("a page header holds a map")
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
            raise ValueError("a page header holds a number of too many digits")
