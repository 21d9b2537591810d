"""How precisely, and by which algorithms, torch computes: switches of the whole process, which threads share."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

State = tuple[Any, ...]


class _Switch:
    """Holds torch in one state while anybody asks for it, and puts the caller's back after the last.

    Args:
        read: torch -> its present state.
        write: Puts torch into a state.
        choose: The caller's state -> the one to hold.
    """

    def __init__(
        self, read: Callable[[Any], State], write: Callable[[Any, State], None], choose: Callable[[State], State]
    ) -> None:
        self._read, self._write, self._choose = read, write, choose
        self._lock = threading.Lock()
        self._n_under_way = 0
        self._before: State = ()

    @contextmanager
    def hold(self, torch: Any) -> Iterator[None]:
        with self._lock:
            if self._n_under_way == 0:
                self._before = self._read(torch)
            self._n_under_way += 1
            self._write(torch, self._choose(self._before))  # also where another one has loosened it just now
        try:
            yield
        finally:
            with self._lock:
                self._n_under_way -= 1
                if self._n_under_way == 0:
                    self._write(torch, self._before)

    @contextmanager
    def loosen(self, torch: Any, choose: Callable[[State], State]) -> Iterator[None]:
        """Another state for a while, for the only one who holds the switch."""
        with self._lock:
            if self._n_under_way == 1:
                self._write(torch, choose(self._before))
        try:
            yield
        finally:
            with self._lock:
                if self._n_under_way:
                    self._write(torch, self._choose(self._before))


@contextmanager
def full_precision(torch: Any) -> Iterator[None]:
    """Products and convolutions as precise as their type says; torch's own default rounds convolutions on a GPU."""
    with _PRODUCTS.hold(torch), _CONVOLUTIONS.hold(torch):
        yield


@contextmanager
def tensor_cores(torch: Any) -> Iterator[None]:
    """Within `full_precision`: TF32 for float32 products on a GPU, unless somebody else needs full precision too."""
    with _PRODUCTS.loosen(torch, _loosen_products):
        yield


@contextmanager
def fixed_algorithms(torch: Any) -> Iterator[None]:
    """cuDNN's algorithms are chosen by rule, not by a race, from those that give the same bits every time."""
    with _ALGORITHMS.hold(torch):
        yield


@contextmanager
def repeatable_only(torch: Any) -> Iterator[None]:
    """Every operation on a GPU gives the same bits every time; one that cannot raises RuntimeError.

    `fixed_algorithms` is enough for convolutional networks, in which torch refuses the gradient of pooling though it
    is safe where windows do not overlap. Attention needs this one.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or torch refuses every product
    with fixed_algorithms(torch), _OPERATIONS.hold(torch):
        yield


def _read_products(torch: Any) -> State:
    """Reduction in bfloat16, then one word of torch's older interface, or one a backend of the newer.

    The older one raises where the caller has set the newer one, and products raise where the two disagree.
    """
    reduction = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    try:
        return reduction, torch.get_float32_matmul_precision()
    except RuntimeError:
        return reduction, torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


def _write_products(torch: Any, state: State) -> None:
    reduction, *words = state
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = reduction
    if len(words) == 1:
        torch.set_float32_matmul_precision(words[0])
    else:
        torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision = words


def _tighten_products(state: State) -> State:
    return (False, "highest") if len(state) == 2 else (False, "ieee", "ieee")


def _loosen_products(state: State) -> State:
    return (False, "high") if len(state) == 2 else (False, "tf32", "ieee")


def _read_convolutions(torch: Any) -> State:
    """Whether TF32 is allowed (None where the caller's own settings disagree), then the newer interface's words."""
    words = [kind.fp32_precision for kind in _list_kinds(torch)]
    try:
        return torch.backends.cudnn.allow_tf32, *words
    except RuntimeError:
        return None, *words


def _write_convolutions(torch: Any, state: State) -> None:
    is_allowed, *words = state
    if is_allowed is not None:
        torch.backends.cudnn.allow_tf32 = is_allowed
    for kind, word in zip(_list_kinds(torch), words, strict=True):
        kind.fp32_precision = word


def _tighten_convolutions(state: State) -> State:
    return False, *("ieee" for _ in state[1:])


def _list_kinds(torch: Any) -> list[Any]:
    """What the newer interface keeps apart; nothing in a torch that has only the older one."""
    cudnn = torch.backends.cudnn
    return [getattr(cudnn, kind) for kind in ("conv", "rnn") if hasattr(getattr(cudnn, kind, None), "fp32_precision")]


def _read_algorithms(torch: Any) -> State:
    return torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic


def _write_algorithms(torch: Any, state: State) -> None:
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = state


def _read_operations(torch: Any) -> State:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def _write_operations(torch: Any, state: State) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])
    torch.utils.deterministic.fill_uninitialized_memory = state[2]


_PRODUCTS = _Switch(_read_products, _write_products, _tighten_products)
_CONVOLUTIONS = _Switch(_read_convolutions, _write_convolutions, _tighten_convolutions)
_ALGORITHMS = _Switch(_read_algorithms, _write_algorithms, lambda state: (False, True))
_OPERATIONS = _Switch(_read_operations, _write_operations, lambda state: (True, False, False))
