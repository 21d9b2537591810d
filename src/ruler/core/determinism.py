"""How precisely, by which algorithms and from which seeds torch computes: settings that all threads share."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from ruler.core.optional import load_optional

Turn = Callable[[Any, ExitStack], None]
"""Changes settings of torch and pushes onto the stack what restores each of them."""


class _Switch:
    """Holds settings of torch while any thread asks for them, and restores the caller's after the last."""

    def __init__(self, tighten: Turn) -> None:
        self._tighten = tighten
        self._lock = threading.Lock()
        self._n_under_way = 0
        self._is_loose = False
        self._before = ExitStack()

    @contextmanager
    def hold(self, torch: Any) -> Iterator[None]:
        with self._lock, ExitStack() as turned:
            self._tighten(torch, turned)
            before = turned.pop_all()
            if not self._is_loose:  # else these were not the caller's settings, and `loosen` restores them
                self._before.push(before)
            self._n_under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_under_way -= 1
                if self._n_under_way == 0:
                    self._before.close()

    @contextmanager
    def loosen(self, torch: Any, loosen: Turn) -> Iterator[None]:
        """Make other settings for a while, if no other thread holds the switch."""
        turned, is_alone = ExitStack(), False
        try:
            with self._lock:
                is_alone = self._n_under_way == 1
                if is_alone:
                    self._is_loose = True
                    loosen(torch, turned)
            yield
        finally:
            with self._lock:
                turned.close()
                if is_alone:
                    self._is_loose = False


@contextmanager
def full_precision(torch: Any) -> Iterator[None]:
    """Compute float32 products and convolutions, and sums of bfloat16 products, without the rounding torch may add.

    torch's own default rounds the inputs of convolutions on a GPU to ten bits.
    """
    with _PRODUCTS.hold(torch), _CONVOLUTIONS.hold(torch):
        yield


@contextmanager
def tensor_cores(torch: Any) -> Iterator[None]:
    """Within `full_precision`: TF32 for float32 products on a GPU, unless another thread needs full precision too."""
    with _PRODUCTS.loosen(torch, _loosen_products):
        yield


@contextmanager
def fixed_algorithms(torch: Any) -> Iterator[None]:
    """Let cuDNN choose algorithms by rule, not by timing, from those that give the same bits every time."""
    with _ALGORITHMS.hold(torch):
        yield


@contextmanager
def repeatable_only(torch: Any) -> Iterator[None]:
    """Make every operation on a GPU give the same bits every time; one that cannot raises RuntimeError.

    Attention needs this. For convolutional networks `fixed_algorithms` is enough, and torch would refuse the gradient
    of pooling here, though it is safe where windows do not overlap.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or torch refuses every product
    with fixed_algorithms(torch), _OPERATIONS.hold(torch):
        yield


def _set(owner: Any, name: str, value: Any, turned: ExitStack) -> None:
    before = getattr(owner, name)
    if before != value:
        turned.callback(setattr, owner, name, before)
        setattr(owner, name, value)


def _set_word(part: Any, word: str, turned: ExitStack) -> None:
    """Set a precision by torch's newer interface, in which a part may inherit from the whole that it belongs to."""
    before = part.fp32_precision
    if before != word:
        turned.callback(_put_word_back, part, before)
        part.fp32_precision = word


def _put_word_back(part: Any, word: str) -> None:
    part.fp32_precision = "none"  # inherits again; if that gives another word, the word was the part's own
    if part.fp32_precision != word:
        part.fp32_precision = word


def _list_parts(owner: Any, *names: str) -> list[Any]:
    """The parts that the newer interface knows; none in a torch that has only the older one."""
    parts = [getattr(owner, name, None) for name in names]
    return [part for part in parts if hasattr(part, "fp32_precision")]


def _tighten_products(torch: Any, turned: ExitStack) -> None:
    _set(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False, turned)
    if not _set_old_word(torch, "highest", turned):
        for part in _list_matmuls(torch):
            _set_word(part, "ieee", turned)


def _loosen_products(torch: Any, turned: ExitStack) -> None:
    if not _set_old_word(torch, "high", turned):
        _set_word(torch.backends.cuda.matmul, "tf32", turned)


def _set_old_word(torch: Any, word: str, turned: ExitStack) -> bool:
    """Set a precision by torch's older interface; False if that raises, because the caller has used the newer one.

    Products raise where the two disagree, and the older one changes the newer's words, which are restored too.
    """
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        return False
    if before != word:
        for part in _list_matmuls(torch):
            turned.callback(_put_word_back, part, part.fp32_precision)
        turned.callback(torch.set_float32_matmul_precision, before)
        torch.set_float32_matmul_precision(word)
    return True


def _list_matmuls(torch: Any) -> list[Any]:
    return _list_parts(torch.backends.cuda, "matmul") + _list_parts(torch.backends.mkldnn, "matmul")


def _tighten_convolutions(torch: Any, turned: ExitStack) -> None:
    for part in _list_parts(torch.backends.mkldnn, "conv", "rnn"):
        _set_word(part, "ieee", turned)
    if not torch.cuda.is_initialized():  # more would start the driver, after which no process can fork
        return
    cudnn = torch.backends.cudnn
    parts = _list_parts(cudnn, "conv", "rnn")
    if parts:
        # The whole first: parts that inherit from it need no word of their own, which could not be removed again.
        for part in (cudnn, *parts):
            _set_word(part, "ieee", turned)
    else:
        _set(cudnn, "allow_tf32", False, turned)


def _fix_algorithms(torch: Any, turned: ExitStack) -> None:
    if torch.cuda.is_initialized():
        _set(torch.backends.cudnn, "benchmark", False, turned)
        _set(torch.backends.cudnn, "deterministic", True, turned)


def _refuse_others(torch: Any, turned: ExitStack) -> None:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    if before != (True, False):
        turned.callback(torch.use_deterministic_algorithms, before[0], warn_only=before[1])
        torch.use_deterministic_algorithms(True)
    _set(torch.utils.deterministic, "fill_uninitialized_memory", False, turned)


_PRODUCTS = _Switch(_tighten_products)
_CONVOLUTIONS = _Switch(_tighten_convolutions)
_ALGORITHMS = _Switch(_fix_algorithms)
_OPERATIONS = _Switch(_refuse_others)


@contextmanager
def one_thread(torch: Any) -> Iterator[None]:
    """Compute on one thread: libraries round a product of few rows by how many of them each thread gets."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def seed_everything(seed: int) -> None:
    """Seed torch and NumPy's global stream, as the paper's protocol does before a model is built."""
    load_optional("torch", "training a model").manual_seed(seed)
    np.random.seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block on freshly seeded torch and NumPy streams and restore the caller's streams after it.

    Example:
        >>> import torch
        >>> with seeded(3):
        ...     first = torch.rand(2)
        >>> with seeded(3):
        ...     bool((torch.rand(2) == first).all())
        True
    """
    torch = load_optional("torch", "training a model")
    # Asking CUDA for its state would start it; a stream that was never used need not be kept.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    numpy_state = np.random.get_state()
    with torch.random.fork_rng(devices=list(devices)):
        seed_everything(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)


@contextmanager
def kept_modes(model: Any) -> Iterator[None]:
    """A context in which a torch model may change to train or eval mode; at the end each module has its own again."""
    with ExitStack() as stack:
        for module in model.modules():
            stack.callback(setattr, module, "training", module.training)
        yield
