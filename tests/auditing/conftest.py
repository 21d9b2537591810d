"""Small worlds in which the truth about forgetting is known."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from ruler.auditing.contrasts import OWN, Contrast
from ruler.core.registry import Registry
from ruler.core.types import Embeddings

SIDES = ("forget", "retain", "held_out")
SIZES = (150, 400, 300)
WIDTH = 6


@dataclass
class World:
    """Rows, losses and labels of all records in several models of the same data; forget records come first.

    Rows of a model are those of the data, and noise of its own. What ``marks`` holds is added to the forget records.
    """

    rng: np.random.Generator
    sizes: tuple[int, int, int] = SIZES
    noise: float = 0.2
    base: np.ndarray = field(init=False)
    marks: np.ndarray = field(init=False)
    labels: np.ndarray = field(init=False)
    hardness: np.ndarray = field(init=False)

    def __post_init__(self):
        n = sum(self.sizes)
        self.base = self.rng.normal(size=(n, WIDTH))
        self.marks = self.rng.normal(size=(self.sizes[0], WIDTH))
        self.labels = self.rng.integers(0, 3, size=n)
        self.hardness = 0.5 * self.rng.normal(size=n) - 1.0

    def embed(self, mark=0.0):
        """Rows of one model, (n, p): forget records lie ``mark`` off where they would otherwise."""
        rows = self.base + self.noise * self.rng.normal(size=self.base.shape)
        rows[: self.sizes[0]] += np.multiply(np.reshape(mark, (-1, 1)) if np.ndim(mark) else mark, self.marks)
        return rows

    def lose(self, gain=0.0):
        """Losses of one model, (n,): forget records are answered better by ``gain``, retain records by 1."""
        losses = np.exp(self.hardness + 0.3 * self.rng.normal(size=len(self.hardness)))
        losses[: self.sizes[0]] *= np.exp(-np.asarray(gain))
        losses[self.sizes[0] : sum(self.sizes[:2])] *= np.exp(-1.0)
        return losses

    def cut(self, rows):
        """What belongs to forget, retain and held-out records."""
        return tuple(np.split(rows, np.cumsum(self.sizes)[:2]))

    def model(self, mark=0.0, gain=None, **beside):
        """One model as `audit` takes it; with losses if ``gain`` is given, and what else stands beside the rows."""
        if gain is not None:
            beside["losses"] = self.lose(gain)
        if not beside:
            return self.cut(self.embed(mark))
        parts = {name: self.cut(values) for name, values in beside.items()}
        return tuple(
            Embeddings(rows, **{name: part[side] for name, part in parts.items()})
            for side, rows in enumerate(self.cut(self.embed(mark)))
        )


@pytest.fixture
def build_world() -> Callable[..., World]:
    def build(seed=0, **options):
        return World(np.random.default_rng(seed), **options)

    return build


@pytest.fixture
def make_world(build_world):
    def make(seed=0, *, moved=0.0, nearer=0.0):
        """Rows of a model and of its oracle; forget records lie ``moved`` off it, or ``nearer`` to retain records."""
        world = build_world(seed)
        model, oracle = world.embed(moved), world.base
        n_forget = SIZES[0]
        model[:n_forget] += nearer * (model[n_forget : 2 * n_forget] - model[:n_forget])
        return world.cut(model), world.cut(oracle)

    return make


@pytest.fixture
def table() -> Registry[Contrast]:
    """A table of its own, so that no test adds to the program's."""
    return Registry("metric", OWN, type=Contrast)
