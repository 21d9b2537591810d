"""Tables and digits as records, and perceptrons trained on them: what the worlds of the calibration are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch.nn import functional

from calibration.world import SIDES, Model
from ruler.core.types import Embeddings
from ruler.data import load_tabular
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.ensemble import Group, MLPShape, StackedMLP, descend_groups
from ruler.training.ensemble.gradient import Pass
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy

PAPER = TrainingSettings()
"""50 full-batch epochs of Adam at 1e-3."""

OVERFIT = TrainingSettings(epochs=400, learning_rate=5e-3)
"""Long enough to fit nearly every training label."""


@dataclass(frozen=True, eq=False)
class Source:
    """All records of a set: (n, d) features as the paper encodes them, and (n,) classes."""

    name: str
    features: np.ndarray
    target: np.ndarray
    column_names: tuple[str, ...]

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.target.max()) + 1


@cache
def load_source(name: str) -> Source:
    """A table of the paper, or scikit-learn's digits."""
    if name == "digits":
        from sklearn.datasets import load_digits

        bundle = load_digits()
        names = tuple(map(str, bundle.feature_names))
        return Source(name, bundle.data.astype(np.float64), bundle.target.astype(np.int64), names)
    data = load_tabular(name)
    return Source(name, data.features, data.target, data.feature_names)


@dataclass(frozen=True, eq=False)
class Draw:
    """Forget, retain and held-out rows of a set, standardised on the retain rows.

    Args:
        source: Where the rows come from.
        rows: By side; no row stands on two sides.
        features: (n, d) of the whole set, standardised, float32.
        labels: (n,) of the whole set, as the records carry them.
    """

    source: Source
    rows: Mapping[str, np.ndarray]
    features: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, source: Source, *, forget: np.ndarray, retain: np.ndarray, held_out: np.ndarray) -> "Draw":
        """Standardise the set on the retain rows."""
        mean, spread = source.features[retain].mean(axis=0), source.features[retain].std(axis=0)
        features = ((source.features - mean) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
        rows = {"forget": forget, "retain": np.sort(retain), "held_out": held_out}
        return cls(source, rows, np.clip(features, -20, 20), source.target)

    def choose(self, *, forget: np.ndarray, held_out: np.ndarray) -> "Draw":
        """The same retain rows with other forget and held-out rows."""
        return replace(self, rows={"forget": forget, "retain": self.rows["retain"], "held_out": held_out})

    def flip_labels(self, rng: np.random.Generator, share: float = 1.0) -> "Draw":
        """Wrong labels for this share of forget and of held-out records alike, so that the two stay comparable."""
        labels, k = self.labels.copy(), self.source.n_classes
        moved = np.concatenate([self.rows["forget"], self.rows["held_out"]])
        moved = moved[rng.random(len(moved)) < share]
        labels[moved] = (labels[moved] + rng.integers(1, k, size=len(moved))) % k
        return replace(self, labels=labels)

    def train(
        self,
        rows: np.ndarray,
        *,
        start: int,
        dropout_seed: int,
        settings: TrainingSettings = PAPER,
        labels: np.ndarray | None = None,
    ) -> TabularMLP:
        """A model trained on these rows: ``start`` decides its initial weights, ``dropout_seed`` what it drops."""
        shape = MLPShape(self.features.shape[1], self.source.n_classes)
        known = torch.from_numpy((self.labels if labels is None else labels)[rows])
        targets = functional.one_hot(known, self.source.n_classes).T.float().contiguous()
        passes = [Pass(torch.from_numpy(self.features[rows]), targets)]
        found = descend_groups(
            StackedMLP.from_seeds([start], shape), [Group([0], [dropout_seed], lambda members: passes)], settings
        )
        model = shape.make_model(start)
        model.load_state_dict(found.state_dict(0))
        return model.eval()

    def retrain(self, model: TabularMLP, rows: np.ndarray, settings: TrainingSettings, seed: int) -> TabularMLP:
        """Train those parameters that still ask for gradients, in place."""
        torch.manual_seed(seed)
        optimize(model, cross_entropy, {"data": self.pair(rows)}, settings, seed=seed)
        return model.requires_grad_(True).eval()

    def pair(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features and labels of some rows."""
        return self.features[rows], self.labels[rows]

    def embed(self, model: TabularMLP) -> Model:
        """(forget, retain, held_out) in this model, with labels, losses and input features."""
        forget, retain, held_out = (self._embed_side(model, self.rows[side]) for side in SIDES)
        return forget, retain, held_out

    @torch.no_grad()
    def _embed_side(self, model: TabularMLP, rows: np.ndarray) -> Embeddings:
        features, labels = torch.from_numpy(self.features[rows]), torch.from_numpy(self.labels[rows])
        values = model.penultimate(features)
        losses = functional.cross_entropy(model.net[-1](values).double(), labels, reduction="none")
        return Embeddings(
            values.numpy(),
            ids=rows,
            labels=self.labels[rows],
            losses=losses.numpy(),
            features=self.features[rows],
            layer="penultimate",
        )

    @torch.no_grad()
    def count_right(self, model: TabularMLP, rows: np.ndarray) -> float:
        """Share of rows whose label the model gives."""
        guess = model(torch.from_numpy(self.features[rows])).argmax(dim=1).numpy()
        return float((guess == self.labels[rows]).mean())

    def measure_skill(self, model: TabularMLP) -> float:
        """Balanced accuracy on the retain rows, from 0 (chance) to 1."""
        return measure_skill(lambda rows: self._guess(model, rows), self.labels, self.rows["retain"])

    @torch.no_grad()
    def _guess(self, model: TabularMLP, rows: np.ndarray) -> np.ndarray:
        return model(torch.from_numpy(self.features[rows])).argmax(dim=1).numpy()


def measure_skill(guess, labels: np.ndarray, rows: np.ndarray) -> float:
    """Mean over classes of the share that is recognised, rescaled so that guessing gives 0 and knowing all gives 1."""
    guesses, truth = guess(rows), labels[rows]
    known = [np.mean(guesses[truth == label] == label) for label in np.unique(truth)]
    return float((np.mean(known) - 1 / len(known)) / (1 - 1 / len(known)))
