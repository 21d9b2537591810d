"""The only argument validators: what comes from outside becomes a checked (n, p) matrix."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import iterate_blocks, norm_rows
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.stacked import StackedRows
from ruler.core.threads import run_in_threads
from ruler.core.types import Embeddings, FloatArray

Shape = tuple[int, ...]
_DLPACK_CPU, _DLPACK_CUDA = 1, 2
_BLOCK_ELEMENTS = 1 << 20
_CACHED_ELEMENTS = 1 << 17
_SMALLEST_SQUARE = np.finfo(np.float64).tiny


def as_matrix(value: Any, name: str) -> npt.NDArray[Any]:
    """A NumPy (n, p) view of anything array-like, on the host.

    Takes NumPy arrays and memory maps (not copied), `StackedRows` (passed on as they are), torch tensors on any
    device, JAX, CuPy and other DLPack arrays, ``Embeddings``, and nested lists.

    Raises:
        InputError: Not numeric, not 2-D, empty, or in part masked. The message names the argument.
    """
    array = _as_array(value, name)
    if array.dtype.kind not in "fiub":
        is_nested = array.dtype.kind == "O" and array.size and np.ndim(array.flat[0]) > 0
        advice = "Stack its vectors: np.stack(list(column))" if is_nested else "Convert it to float first"
        raise InputError(f"{name} must hold real numbers; got dtype {array.dtype}. {advice}.")
    if array.ndim != 2:
        raise InputError(
            f"{name} must be 2-D, one row per record; got {array.ndim}-D, shape {array.shape}. "
            "Flatten or pool each record into one vector."
        )
    if 0 in array.shape:
        raise InputError(f"{name} must not be empty; got shape {array.shape}. Give at least one row and column.")
    n_masked = np.count_nonzero(getattr(array, "mask", False))  # of a masked array
    if n_masked:
        raise InputError(f"{name} must have no masked numbers; got {n_masked}. Drop these records or fill them in.")
    return array


def _as_array(value: Any, name: str) -> npt.NDArray[Any]:
    held = value.values if isinstance(value, Embeddings) else value
    if isinstance(held, StackedRows):  # rows beyond memory, to be read in blocks
        return cast(npt.NDArray[Any], held)
    if hasattr(value, "detach"):  # a torch tensor: leave the graph, the device and bfloat16 behind
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    elif not isinstance(value, np.ndarray) and _find_device(value) not in (_DLPACK_CPU, None):
        torch = load_optional("torch", "reading an array that lies on an accelerator")
        value = torch.from_dlpack(value).cpu()
    try:
        return np.asanyarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be an array of numbers; got {type(value).__name__} ({error}).") from error


def is_on_cuda(value: Any) -> bool:
    """Whether an array lies in the memory of a CUDA device."""
    return not isinstance(value, np.ndarray) and _find_device(value) == _DLPACK_CUDA


def _find_device(value: Any) -> int | None:
    """The kind of device that an array says it lies on, as DLPack numbers them; None for other objects."""
    return int(value.__dlpack_device__()[0]) if hasattr(value, "__dlpack_device__") else None


def check_same_shape(a: Shape, b: Shape, names: tuple[str, str]) -> None:
    """Both matrices describe the same records with the same width."""
    if a != b:
        raise InputError(
            f"{names[0]} and {names[1]} must have the same shape, the same records in the same order; got {a} and {b}. "
            "Embed the same records with both models."
        )


def check_same_width(a: Shape, b: Shape, names: tuple[str, str]) -> None:
    """Both matrices come from the same embedding space."""
    if a[1] != b[1]:
        raise InputError(
            f"{names[0]} and {names[1]} must have the same number of columns; got {a[1]} and {b[1]}. "
            "Embed both with the same model and layer."
        )


def check_same_space(a: Any, b: Any, names: tuple[str, str]) -> None:
    """`Embeddings` were read at one layer and have the same columns; plain arrays say nothing about either."""
    if isinstance(a, Embeddings) and isinstance(b, Embeddings):
        check_same_layer(a.layer, b.layer, names)
        check_same_columns(a.columns, b.columns, names)


def check_same_layer(
    a: str | None, b: str | None, names: tuple[str, str], *, error: type[InputError] = InputError
) -> None:
    """Both, where it is known, were read at the same place in the model."""
    if a is not None and b is not None and a != b:
        raise error(
            f"{names[0]} and {names[1]} must be read at the same layer; got {a!r} and {b!r}. "
            "Embed all records at one layer."
        )


def check_same_columns(
    a: tuple[str, ...] | None,
    b: tuple[str, ...] | None,
    names: tuple[str, str],
    *,
    error: type[InputError] = InputError,
) -> None:
    """Both tables, where their columns have names, hold the same ones in the same order, as far as both go."""
    for number, (name, other) in enumerate(zip(a or (), b or (), strict=False)):
        if name != other:
            raise error(
                f"{names[0]} and {names[1]} must have the same columns in the same order; got {name!r} and {other!r} "
                f"in place {number}. Write all tables with the same columns."
            )


def measure_norms(matrix: npt.NDArray[Any], name: str, *, is_whole: bool = False) -> FloatArray:
    """Euclidean norms of all rows in float64, shape (n,), read in blocks, with every row checked.

    Args:
        matrix: (n, p).
        name: What errors call it.
        is_whole: It is all that the caller gave, no part of it that numbers its rows differently.

    Raises:
        InputError: NaN or inf, or norms that over- or underflow; the message counts the rows and, of `StackedRows` and
            whole matrices, says where the first is.
    """
    norms = np.empty(len(matrix))

    def measure(span: tuple[int, int]) -> dict[str, tuple[int, int]]:
        """Measure a block; returns how many of its rows have a fault, and the first, by fault."""
        start, stop = span
        block = np.asarray(matrix[start:stop], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            norms[start:stop] = norm_rows(block)
            is_sound = (norms[start:stop] < np.inf) & (norms[start:stop] ** 2 >= _SMALLEST_SQUARE)
        if is_sound.all():
            return {}
        suspects = np.flatnonzero(~is_sound)
        return {
            fault: (int(is_bad.sum()), start + int(suspects[is_bad.argmax()]))
            for fault, is_bad in _find_faults(block[suspects]).items()
            if is_bad.any()
        }

    found = run_in_threads(measure, iterate_blocks(len(matrix), cached_rows_for(matrix.shape[1])))
    for fault, message in _FAULTS.items():
        seen = [faults[fault] for faults in found if fault in faults]
        if seen:
            n_bad, first = sum(n for n, _ in seen), seen[0][1]
            held: Any = matrix
            is_stacked = isinstance(held, StackedRows)
            place = held.locate(first) if is_stacked else f"row {first}" if is_whole else ""
            rows = f"{n_bad} rows, the first is {place}" if place else f"{n_bad} rows"
            raise InputError(message.format(name=name, rows=rows))
    return norms


_FAULTS = {
    "not finite": "{name} must be finite; got NaN or inf in {rows}. "
    "Drop these records or repair the model that made them.",
    "overflow": "{name} must have norms that float64 can hold; got overflow in {rows}. Rescale the rows.",
    "underflow": "{name} must have norms that float64 can hold; got underflow in {rows}. Rescale the rows.",
}


def _find_faults(suspects: FloatArray) -> dict[str, npt.NDArray[np.bool_]]:
    is_finite = np.isfinite(suspects).all(axis=1)
    is_zero = (suspects == 0).all(axis=1)
    is_large = np.abs(suspects).max(axis=1) > 1
    return {
        "not finite": ~is_finite,
        "overflow": is_finite & is_large,
        "underflow": is_finite & ~is_large & ~is_zero,
    }


def block_rows_for(n_columns: int) -> int:
    """How many rows of this width make a block of about 8 MB in float64."""
    return max(1, _BLOCK_ELEMENTS // n_columns)


def cached_rows_for(n_columns: int) -> int:
    """How many rows of this width make a block of about 1 MB in float64.

    For steps that go row by row: such a block stays in a processor's cache from one step to the next.
    """
    return max(1, _CACHED_ELEMENTS // n_columns)


def check_number(value: Any, name: str, *, minimum: float, is_strict: bool = False, is_whole: bool = False) -> None:
    """A finite number on the right side of ``minimum``; ``is_strict`` excludes the minimum itself.

    Example:
        >>> check_number(0, "epochs", minimum=1, is_whole=True)
        Traceback (most recent call last):
        ruler.core.errors.InputError: epochs must be a whole number of at least 1; got 0.
    """
    kinds: Any = (int, np.integer) if is_whole else (int, float, np.integer, np.floating)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if is_number and isinstance(value, int) and abs(value) >= 2**53:
        raise InputError(f"{name} must be under 2**53, so that JSON and float64 can hold it; got a larger number.")
    if not is_number or not np.isfinite(value) or value < minimum or (is_strict and value == minimum):
        noun = "a whole number" if is_whole else "a finite number"
        rule = f"above {minimum:g}" if is_strict else f"of at least {minimum:g}"
        raise InputError(f"{name} must be {noun} {rule}; got {value!r:.40}.")
