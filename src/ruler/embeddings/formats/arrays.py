"""Embeddings in .npy, .npz, .pt and .safetensors files."""

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
from ruler.core.files import writing_atomically
from ruler.core.optional import load_optional
from ruler.core.readers.arrays import open_npy, open_npz, read_torch
from ruler.core.readers.safety import check_at_most, check_ends, check_unfolded_size, pack_texts
from ruler.core.types import Embeddings
from ruler.embeddings.formats import Opened, beside_of, find_beside, pick_matrix

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
_TEXT, _ENDS = "_utf8", "_ends"


def load_npy(path: Path, strata: str | None = None) -> Opened:
    """The array, memory-mapped, and the ids beside it, in ``<stem>.ids.npy``, if there are any."""
    if strata is not None:
        raise FileFormatError(
            f"{path} must have named columns or arrays for strata={strata!r}; .npy has none. Use another format."
        )
    ids = ids_path(path)
    return Opened(open_npy(path), {"ids": open_npy(ids)} if ids.is_file() else {})


def save_npy(embeddings: Embeddings, path: Path) -> None:
    """Write the values, then the ids unless they are 0..n-1; a crash between leaves no ids rather than wrong ones."""
    ids = ids_path(path)
    ids.unlink(missing_ok=True)
    with writing_atomically(path) as stream:
        np.lib.format.write_array(stream, embeddings.values, allow_pickle=False)
    if not np.array_equal(embeddings.ids, np.arange(len(embeddings))):
        with writing_atomically(ids) as stream:
            np.lib.format.write_array(stream, embeddings.ids, allow_pickle=False)


def ids_path(path: Path) -> Path:
    """Where the ids of a ``.npy`` file lie.

    Example:
        >>> ids_path(Path("rows.npy")).name
        'rows.ids.npy'
    """
    return path.with_name(f"{path.stem}.ids.npy")


def load_npz(path: Path, strata: str | None = None) -> Opened:
    """The arrays ``values`` and ``layer`` of the archive, and those that stand beside the rows."""
    with open_npz(path) as arrays:
        names = find_beside(arrays.keys(), path, strata)
        matrix = pick_matrix({name: len(shape) for name, shape in arrays.shapes.items()}, path, names.values())
        beside = {field: arrays[name] for field, name in names.items()}
        layer = str(arrays["layer"]) if arrays.shapes.get("layer") == () else None
        return Opened(arrays[matrix], beside, layer)


def save_npz(embeddings: Embeddings, path: Path) -> None:
    """Write an uncompressed archive."""
    arrays = {"values": embeddings.values, **beside_of(embeddings)}
    if embeddings.layer is not None:
        arrays["layer"] = np.array(embeddings.layer)
    with writing_atomically(path) as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def load_pt(path: Path, strata: str | None = None) -> Opened:
    """A bare tensor, or a dict with ``values``, ``layer`` and what stands beside the rows; memory-mapped.

    What stands beside the rows may be tensors or lists.
    """
    content = read_torch(path, is_mapped=True)
    entries = content if isinstance(content, dict) else {"values": content}
    names = find_beside([name for name in entries if isinstance(name, str)], path, strata)
    n_dims = {name: value.ndim for name, value in entries.items() if hasattr(value, "detach")}
    matrix = pick_matrix(n_dims, path, names.values())

    def as_array(value: Any) -> npt.NDArray[Any]:
        if isinstance(value, list) and set(map(type, value)) == {str}:
            return pack_texts(value, "texts")
        if not hasattr(value, "detach"):
            return np.asarray(value)
        check_unfolded_size(value.numel() * value.element_size(), path)
        value = value.detach()
        return np.asarray((value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy())

    layer = entries.get("layer")
    beside = {field: as_array(entries[name]) for field, name in names.items()}
    return Opened(as_array(entries[matrix]), beside, layer if isinstance(layer, str) else None)


def save_pt(embeddings: Embeddings, path: Path) -> None:
    """Write a dict of ``values``, ``layer`` and what stands beside the rows, text as lists."""
    torch = load_optional("torch", "writing .pt")
    content: dict[str, Any] = {
        # copies, for torch warns of arrays that it must not write to, as memory maps are
        "values": torch.from_numpy(np.array(embeddings.values)),
        "layer": embeddings.layer,
    }
    for name, beside in beside_of(embeddings).items():
        content[name] = beside.tolist() if beside.dtype.kind == "U" else torch.from_numpy(np.array(beside))
    with writing_atomically(path) as stream:
        torch.save(content, stream)


def load_safetensors(path: Path, strata: str | None = None) -> Opened:
    """`open_safetensors`, in memory where the file cannot be used in place."""
    opened = open_safetensors(path, strata)
    is_mapped = isinstance(opened.values, np.ndarray) and opened.values.flags.aligned
    return opened if is_mapped else replace(opened, values=np.array(opened.values[:]))


def open_safetensors(path: Path, strata: str | None = None) -> Opened:
    """The tensor ``values`` in place, bfloat16 widened when it is read, and what stands beside the rows.

    That is a tensor each, or text as UTF-8 with its ends, ``ids_utf8`` and ``ids_ends``.

    Read here rather than by ``safe_open``, whose slices take no list of rows, keep what they mapped until the file is
    closed, and cannot be sent to other processes.
    """
    header, data_start = _read_header(path)
    metadata = header.pop("__metadata__", {})
    texts = {name.removesuffix(_TEXT) for name in header if name.endswith(_TEXT)}
    texts = {name for name in texts if name + _ENDS in header}
    names = find_beside({*header, *texts}, path, strata)
    matrix = pick_matrix({name: len(entry["shape"]) for name, entry in header.items()}, path, names.values())

    def map_entry(name: str) -> npt.NDArray[Any]:
        return _map(path, header[name], data_start)

    beside = {}
    for field, name in names.items():
        if name in header:
            beside[field] = np.array(map_entry(name))
        else:
            text, ends = map_entry(name + _TEXT), map_entry(name + _ENDS)
            check_ends(ends, text.nbytes, name)
            whole, pairs = text.tobytes(), itertools.pairwise([0, *ends.tolist()])
            beside[field] = pack_texts([whole[start:stop].decode() for start, stop in pairs], name)
    values = map_entry(matrix)
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


def _reopen_widened(path: str, offset: int, shape: tuple[int, ...]) -> WidenedRows:
    return WidenedRows(np.memmap(path, "<u2", "r", offset, shape))


def save_safetensors(embeddings: Embeddings, path: Path) -> None:
    """Write the values block by block, so that a memory map is never loaded whole."""
    tensors: dict[str, npt.NDArray[Any]] = {"values": embeddings.values}
    for name, beside in beside_of(embeddings).items():
        if beside.dtype.kind == "U":
            texts = [text.encode() for text in beside.tolist()]
            tensors[name + _TEXT] = np.frombuffer(b"".join(texts), np.uint8)
            tensors[name + _ENDS] = np.cumsum([len(text) for text in texts], dtype=np.int64)
        else:
            tensors[name] = beside
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
    with writing_atomically(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            width = math.prod(array.shape[1:])
            for start, stop in iterate_blocks(len(array), block_rows_for(max(width, 1))):
                block = array[start:stop]
                stream.write(np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<")).tobytes())


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) != len(pairs):
            raise ValueError("its header names an entry twice")
        return entries

    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise FileFormatError(f"{path} must be a sound .safetensors file; its header is longer than the file.")
        check_at_most(length, "header_bytes", path, "bytes of header")
        header = json.loads(stream.read(length), object_pairs_hook=refuse_repeats)
    parts = sorted(tuple(entry["data_offsets"]) for name, entry in header.items() if name != "__metadata__")
    if any(stop > start for (_, stop), (start, _) in itertools.pairwise(parts)):
        raise FileFormatError(f"{path} must be a sound .safetensors file; its tensors overlap.")
    return header, 8 + length


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
