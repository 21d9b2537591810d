"""Evidence with and without a planted fault, and what the guards say of it."""

import numpy as np

from ruler.auditing.gather import gather_evidence
from ruler.auditing.guards import run_guards
from ruler.core.types import Embeddings

N_FORGET, N_RETAIN, N_HELD_OUT, WIDTH = 40, 300, 80, 16


def cut(rows, sizes=(N_FORGET, N_RETAIN, N_HELD_OUT)):
    """Forget, retain and held-out rows, one after the other."""
    return tuple(np.split(rows, np.cumsum(sizes))[: len(sizes)])


def make_models(rng, inputs, *, width=WIDTH, noise=0.05):
    """Three seed-paired ReLU layers over the same inputs, of which two are a little further on."""
    weights = rng.normal(size=(inputs.shape[1], width))
    bias = rng.normal(size=width)
    steps = {"unlearned": noise, "oracle": noise, "original": noise}
    return {
        name: np.maximum(inputs @ (weights + step * rng.normal(size=weights.shape)) + bias + 1.0, 0.0)
        for name, step in steps.items()
    }


def guards_of(models, **options):
    return run_guards(gather_evidence(models.pop("unlearned"), **models, **options))


def names_of(models, **options):
    return [(finding.name, finding.severity) for finding in guards_of(models, **options)]


def shift(models, amount, **beside):
    """Forget records that lie apart in every model, as those of a class do."""
    moved = {}
    for name, sides in models.items():
        rows = [side.copy() for side in sides]
        rows[0][:, 0] += amount * rows[0][:, 0].std()
        moved[name] = tuple(
            Embeddings(row, **{key: value[side] for key, value in beside.items()}) for side, row in enumerate(rows)
        )
    return moved
