"""Explicit seeds: every random stream is seeded where it is used, with a number that the caller gives."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ruler.core.optional import load_optional


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
