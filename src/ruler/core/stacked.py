"""Several matrices read as one, so that more rows than fit in memory can be used like an array."""

import mmap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import IndexArray

_MOST_MAPPED_BYTES = 256 << 20
_BYTES_PER_FAULT = 2 << 20  # a page fault maps the pages around it too, up to this many


class StackedRows:
    """Several (n_i, p) matrices as one (n, p) matrix; rows are read when asked for and never all at once.

    Slices and row numbers give NumPy arrays. Pages of memory-mapped parts are released after every 256 MB read, so that
    the process stays small; the system may keep them in its own cache.

    Args:
        parts: Arrays, memory maps, or anything with ``shape``, ``dtype`` and rows by slice or number.
        names: What the parts are called in messages, instead of row numbers.

    Raises:
        InputError: No part, parts that are not 2-D, or of different widths.

    Example:
        >>> stacked = StackedRows([np.zeros((2, 3)), np.ones((1, 3))])
        >>> stacked.shape, stacked[1:].tolist(), stacked[[2, 0]].sum(axis=1).tolist()
        ((3, 3), [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [3.0, 0.0])
    """

    ndim = 2

    def __init__(self, parts: Sequence[Any], names: Sequence[str] | None = None) -> None:
        self.parts = list(parts)
        self.names = None if names is None else list(names)
        _check_parts(self.parts, self.names or [f"part {i}" for i in range(len(self.parts))])
        self.starts: IndexArray = np.concatenate([[0], np.cumsum([len(part) for part in self.parts])])
        self.shape = (int(self.starts[-1]), int(self.parts[0].shape[1]))
        self.dtype = np.result_type(*{part.dtype for part in self.parts})
        self._n_mapped = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """Size of all rows in memory."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __reduce__(self) -> tuple[Any, ...]:
        """Send memory maps to other processes by the name of their file, not by their content."""
        return _reopen, ([_refer(part) for part in self.parts], self.names)

    def locate(self, row: int) -> str:
        """Where a row is, in words: its number within its part, if parts have names.

        Example:
            >>> StackedRows([np.zeros((2, 3)), np.ones((4, 3))], ["a.npy", "b.npy"]).locate(4)
            'row 2 of b.npy'
        """
        if self.names is None:
            return f"row {row}"
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"row {row - int(self.starts[number])} of {self.names[number]}"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step == 1:
                return self._read_run(start, max(start, stop))
            key = np.arange(start, stop, step)
        index = np.asarray(key)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        return self._read_rows(np.asarray(index, dtype=np.int64))

    def _read_run(self, start: int, stop: int) -> npt.NDArray[Any]:
        first, last = np.searchsorted(self.starts, [start, max(start, stop - 1)], side="right") - 1
        if first == last < len(self.parts):
            rows = np.asarray(self.parts[first][start - self.starts[first] : stop - self.starts[first]])
            self._count(rows.nbytes + _BYTES_PER_FAULT)
            return rows.astype(self.dtype, copy=False)
        rows = np.empty((stop - start, self.shape[1]), self.dtype)
        for number in range(first, min(last + 1, len(self.parts))):
            low, high = max(start, self.starts[number]), min(stop, self.starts[number + 1])
            rows[low - start : high - start] = self.parts[number][
                low - self.starts[number] : high - self.starts[number]
            ]
        self._count(rows.nbytes + _BYTES_PER_FAULT)
        return rows

    def _read_rows(self, index: IndexArray) -> npt.NDArray[Any]:
        index = np.where(index < 0, index + len(self), index)
        if index.size and not 0 <= index.min() <= index.max() < len(self):
            raise IndexError(f"rows must be within the {len(self)} of the matrix; got {index.min()} to {index.max()}")
        if index.ndim == 0:
            return np.asarray(self._read_run(int(index), int(index) + 1)[0])
        rows = np.empty((len(index), self.shape[1]), self.dtype)
        part_of = np.searchsorted(self.starts, index, side="right") - 1
        order = np.argsort(index, kind="stable")  # ascending, as the disk likes it
        bounds = np.searchsorted(part_of[order], np.arange(len(self.parts) + 1))
        for number in np.flatnonzero(np.diff(bounds)):
            places = order[bounds[number] : bounds[number + 1]]
            rows[places] = self.parts[number][index[places] - self.starts[number]]
            self._count(len(places) * _BYTES_PER_FAULT)
        return rows

    def _count(self, n_bytes: int) -> None:
        """Count what was read, and release mapped pages before they add up."""
        with self._lock:
            self._n_mapped += n_bytes
            if self._n_mapped < _MOST_MAPPED_BYTES:
                return
            self._n_mapped = 0
        for part in self.parts:
            release_pages(part)


def release_pages(rows: Any) -> None:
    """Let the process forget the pages of a memory map that were read; they are read again when asked for."""
    mapped = getattr(rows, "_mmap", None)
    is_own = getattr(rows, "mode", "r") == "c"  # changes to a private map are nowhere else
    if isinstance(mapped, mmap.mmap) and not is_own and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class _MappedFile:
    """Where a memory-mapped matrix lies."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]

    def open(self) -> "np.memmap[Any, Any]":
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)


def _refer(part: Any) -> Any:
    if isinstance(part, np.memmap) and part.filename is not None and part.base is part._mmap:  # type: ignore[attr-defined]
        order: Literal["C", "F"] = "C" if part.flags.c_contiguous else "F"
        return _MappedFile(str(part.filename), part.dtype.str, part.shape, part.offset, order)
    return part


def _reopen(references: list[Any], names: list[str] | None) -> StackedRows:
    return StackedRows([one.open() if isinstance(one, _MappedFile) else one for one in references], names)


def _check_parts(parts: Sequence[Any], names: Sequence[str]) -> None:
    if not parts:
        raise InputError("parts must be at least one matrix; got none. Give the rows.")
    for name, part in zip(names, parts, strict=True):
        if len(part.shape) != 2 or 0 in part.shape:
            raise InputError(f"{name} must be 2-D with at least one row; got shape {tuple(part.shape)}.")
        if part.shape[1] != parts[0].shape[1]:
            raise InputError(
                f"{name} must be as wide as {names[0]}; got {part.shape[1]} and {parts[0].shape[1]} columns. "
                "Embed all with the same model and layer."
            )
        if part.dtype.kind not in "fiub":
            raise InputError(f"{name} must hold real numbers; got dtype {part.dtype}. Convert it to float first.")
