"""The safetensors layout: a JSON header, then raw numbers, which can be memory-mapped in place."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings.formats.entries import Opened, appearing_whole, beside_of, find_beside, pick_matrix

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "U8": "|u1",
    "BOOL": "|b1",
    "BF16": "<u2",
}
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items() if code != "BF16"}
_LARGEST_HEADER = 100_000_000  # the limit of the format itself
_TEXT, _ENDS = "_utf8", "_ends"


def load(path: Path, strata: str | None = None) -> Opened:
    """`open_rows`, in memory where the file cannot be used in place."""
    opened = open_rows(path, strata)
    is_mapped = isinstance(opened.values, np.ndarray) and opened.values.flags.aligned
    return opened if is_mapped else replace(opened, values=np.array(opened.values[:]))


def open_rows(path: Path, strata: str | None = None) -> Opened:
    """The tensor ``values`` in place, bfloat16 widened when it is read, and what stands beside the rows.

    That is a tensor each, or text as UTF-8 with its ends, ``ids_utf8`` and ``ids_ends``.
    """
    header, data_start = _read_header(path)
    metadata = header.pop("__metadata__", {})
    texts = {name.removesuffix(_TEXT) for name in header if name.endswith(_TEXT) and _ends_of(name) in header}
    names = find_beside({*header, *texts}, path, strata)
    matrix = pick_matrix({name: len(entry["shape"]) for name, entry in header.items()}, path, names.values())
    beside = {}
    for field, name in names.items():
        if name in header:
            beside[field] = np.array(_map(path, header[name], data_start))
        else:
            text, ends = header[name + _TEXT], header[name + _ENDS]
            beside[field] = _decode(_map(path, text, data_start), _map(path, ends, data_start))
    values = _map(path, header[matrix], data_start)
    is_half = header[matrix]["dtype"] == "BF16"
    return Opened(WidenedRows(values) if is_half else values, beside, metadata.get("layer"))


class WidenedRows:
    """Rows of a memory-mapped bfloat16 matrix as float32: each number is the upper half of one."""

    dtype = np.dtype(np.float32)

    def __init__(self, halves: npt.NDArray[np.uint16]) -> None:
        self._halves = halves
        self.shape = halves.shape
        self._mmap = getattr(halves, "_mmap", None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to other processes by the name of its file."""
        mapped: Any = self._halves
        return _reopen_widened, (str(mapped.filename), mapped.offset, mapped.shape)

    def __len__(self) -> int:
        return len(self._halves)

    def __getitem__(self, key: Any) -> npt.NDArray[np.float32]:
        rows: npt.NDArray[np.float32] = (np.asarray(self._halves[key]).astype(np.uint32) << 16).view(np.float32)
        return rows


def save(embeddings: Embeddings, path: Path) -> None:
    """Write the values block by block, so that a memory map is never loaded whole."""
    tensors = {"values": embeddings.values}
    for name, beside in beside_of(embeddings).items():
        tensors |= _encode(name, beside)
    header: dict[str, Any] = {} if embeddings.layer is None else {"__metadata__": {"layer": embeddings.layer}}
    end = 0
    for name, array in tensors.items():
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODES[array.dtype.newbyteorder("<")],
            "shape": array.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with appearing_whole(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            width = math.prod(array.shape[1:])
            for start, stop in iterate_blocks(len(array), block_rows_for(max(width, 1))):
                block = array[start:stop]
                stream.write(np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<")).tobytes())


def _reopen_widened(path: str, offset: int, shape: tuple[int, ...]) -> WidenedRows:
    return WidenedRows(np.memmap(path, "<u2", "r", offset, shape))


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            raise FileFormatError(f"{path} must be a sound .safetensors file; its header is longer than the file.")
        header = json.loads(stream.read(length), object_pairs_hook=_refuse_repeats)
    return header, 8 + length


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("its header names an entry twice")
    return entries


def _map(path: Path, entry: dict[str, Any], data_start: int) -> npt.NDArray[Any]:
    if entry["dtype"] not in _DTYPES:
        raise FileFormatError(
            f"{path} must hold tensors of {', '.join(_DTYPES)}; got {entry['dtype']!r}. Convert it to F32."
        )
    dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
    start, stop = entry["data_offsets"]
    if not 0 <= start <= stop or min(shape, default=1) < 0 or stop - start != math.prod(shape) * dtype.itemsize:
        raise FileFormatError(f"{path} must be a sound .safetensors file; a tensor's size and offsets disagree.")
    if start == stop:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=data_start + start, shape=shape)


def _ends_of(name: str) -> str:
    return name.removesuffix(_TEXT) + _ENDS


def _encode(name: str, values: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    if values.dtype.kind != "U":
        return {name: values}
    texts = [text.encode() for text in values.tolist()]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return {name + _TEXT: np.frombuffer(b"".join(texts), np.uint8), name + _ENDS: ends}


def _decode(text: npt.NDArray[Any], ends: npt.NDArray[Any]) -> npt.NDArray[Any]:
    whole, bounds = text.tobytes(), [0, *ends.tolist()]
    return np.array([whole[start:stop].decode() for start, stop in itertools.pairwise(bounds)])
