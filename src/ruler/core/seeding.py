"""Explicit seeds: every random stream is set where it is used, by a number that the caller knows."""

import numpy as np

from ruler.core.optional import load_optional


def seed_everything(seed: int) -> None:
    """Seed torch and NumPy's global stream, as the paper's protocol does before a model is built."""
    load_optional("torch", "training a model").manual_seed(seed)
    np.random.seed(seed)
