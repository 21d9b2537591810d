"""How precisely torch multiplies float32: a switch of the whole process, which searches in several threads share."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Switch:
    """Holds torch at full precision while any search is under way, and puts it back after the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_under_way = 0
        self._before: tuple[Any, ...] = ()

    def enter(self, torch: Any) -> None:
        with self._lock:
            if self._n_under_way == 0:
                self._before = _read(torch)
            self._n_under_way += 1
            _write(torch, _full(self._before))  # also where another search has tensor cores just now

    def leave(self, torch: Any) -> None:
        with self._lock:
            self._n_under_way -= 1
            if self._n_under_way == 0:
                _write(torch, self._before)

    def loosen(self, torch: Any) -> None:
        with self._lock:
            if self._n_under_way == 1:
                _write(torch, _loose(self._before))

    def tighten(self, torch: Any) -> None:
        with self._lock:
            if self._n_under_way:
                _write(torch, _full(self._before))


_SWITCH = _Switch()


@contextmanager
def full_precision(torch: Any) -> Iterator[None]:
    """Products as precise as their type says, also where the caller lets torch trade precision for speed."""
    _SWITCH.enter(torch)
    try:
        yield
    finally:
        _SWITCH.leave(torch)


@contextmanager
def tensor_cores(torch: Any) -> Iterator[None]:
    """Within `full_precision`: TF32 for float32 products on a GPU, unless another search is under way too."""
    _SWITCH.loosen(torch)
    try:
        yield
    finally:
        _SWITCH.tighten(torch)


def _read(torch: Any) -> tuple[Any, ...]:
    """Reduction in bfloat16, then one word of torch's older interface, or one a backend of the newer.

    The older one raises where the caller has set the newer one, and products raise where the two disagree.
    """
    reduction = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    try:
        return reduction, torch.get_float32_matmul_precision()
    except RuntimeError:
        return reduction, torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


def _write(torch: Any, state: tuple[Any, ...]) -> None:
    reduction, *words = state
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = reduction
    if len(words) == 1:
        torch.set_float32_matmul_precision(words[0])
    else:
        torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision = words


def _full(state: tuple[Any, ...]) -> tuple[Any, ...]:
    return (False, "highest") if len(state) == 2 else (False, "ieee", "ieee")


def _loose(state: tuple[Any, ...]) -> tuple[Any, ...]:
    return (False, "high") if len(state) == 2 else (False, "tf32", "ieee")
