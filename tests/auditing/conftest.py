"""Small worlds in which the truth about forgetting is known."""

import numpy as np
import pytest

SIDES = (150, 400, 250)


@pytest.fixture
def make_world():
    def make(seed=0, *, moved=0.0, nearer=0.0, noise=0.2):
        """Rows of a model and of its oracle; forget records lie ``moved`` off it, or ``nearer`` to retain records."""
        rng = np.random.default_rng(seed)
        base = rng.normal(size=(sum(SIDES), 6))
        model = base + noise * rng.normal(size=base.shape)
        n_forget = SIDES[0]
        model[:n_forget] += moved * rng.normal(size=(n_forget, 6))
        model[:n_forget] += nearer * (model[n_forget : 2 * n_forget] - model[:n_forget])
        return tuple(tuple(np.split(rows, np.cumsum(SIDES)[:-1])) for rows in (model, base))

    return make
