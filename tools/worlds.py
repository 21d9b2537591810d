"""Worlds in which the truth about forgetting is known: real tables, models trained on them, and synthetic rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ruler.auditing import AuditSettings
from ruler.data import load_tabular
from ruler.models import TabularMLP
from ruler.training import TrainingSettings, train_classifier
from ruler.unlearning import METHODS, unlearn

SIZES = {"heart_disease": 40, "breast_cancer": 80, "german_credit": 100, "wine_quality": 100, "phoneme": 100}
"""Forget records an audit; twice as many are held out."""

POWER_SETS = ("heart_disease", "breast_cancer", "german_credit", "wine_quality")

_MOST_ROWS = 1200  # of a table, drawn anew for each audit
_FITTED = 0.95
PAPER = TrainingSettings()


@dataclass(frozen=True, eq=False)
class Draw:
    """One drawing of forget, retain and held-out rows from the whole of a table."""

    features: np.ndarray
    target: np.ndarray
    rows: Mapping[str, np.ndarray]
    seed: int

    def train(
        self,
        sides: tuple[str, ...],
        *,
        settings: TrainingSettings = PAPER,
        seed: int | None = None,
        dropout_seed: int | None = None,
        target: np.ndarray | None = None,
    ) -> TabularMLP:
        """A model trained on some sides; ``dropout_seed`` changes the stream after the initial weights are drawn."""
        rows = np.concatenate([self.rows[side] for side in sides])
        labels = self.target if target is None else target

        def build() -> TabularMLP:
            model = TabularMLP(self.features.shape[1])
            if dropout_seed is not None:
                torch.manual_seed(dropout_seed)
            return model

        data = (self.features[rows], labels[rows])
        return train_classifier(build, data, seed=self.seed if seed is None else seed, settings=settings)

    def embed(self, model: TabularMLP) -> tuple[np.ndarray, ...]:
        """(forget, retain, held_out) in this model."""
        with torch.no_grad():
            return tuple(
                model.penultimate(torch.from_numpy(self.features[self.rows[side]])).numpy()
                for side in ("forget", "retain", "held_out")
            )


def draw_table(key: str, seed: int) -> Draw:
    """Forget and held-out records drawn together from the whole table."""
    data = load_tabular(key)
    shuffled = np.random.default_rng(seed).permutation(len(data))[:_MOST_ROWS]
    forget, held_out, retain = np.split(shuffled, [SIZES[key], 3 * SIZES[key]])
    centre, spread = data.features[retain].mean(axis=0), data.features[retain].std(axis=0)
    features = ((data.features - centre) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    return Draw(features, data.target, {"forget": forget, "retain": np.sort(retain), "held_out": held_out}, seed)


def perfect(key: str, seed: int) -> dict[str, Any]:
    """Unlearned perfectly: retrained on the retain records from the oracle's start, with another dropout stream."""
    draw = draw_table(key, seed)
    oracle = draw.embed(draw.train(("retain",)))
    unlearned = draw.embed(draw.train(("retain",), dropout_seed=seed + 10_000))
    return {"unlearned": unlearned, "oracle": oracle}


def perfect_unpaired(key: str, seed: int) -> dict[str, Any]:
    """The same with other initial weights: nothing remembered, but axes that differ from the oracle's."""
    draw = draw_table(key, seed)
    oracle = draw.embed(draw.train(("retain",)))
    return {"unlearned": draw.embed(draw.train(("retain",), seed=seed + 10_000)), "oracle": oracle}


def memorised(key: str, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Forget labels flipped and learned until they fit; then untouched, unlearned by each method, or retrained."""
    draw = draw_table(key, seed)
    flipped = draw.target.copy()
    flipped[draw.rows["forget"]] = 1 - flipped[draw.rows["forget"]]
    original, settings = _train_until_fitted(draw, flipped)
    oracle = draw.embed(draw.train(("retain",), settings=settings))
    known = {"oracle": oracle, "original": draw.embed(original)}
    yield "untouched original", {"unlearned": known["original"], **known}
    for method in METHODS:
        pairs = {side: (draw.features[rows], flipped[rows]) for side, rows in draw.rows.items()}
        after = unlearn(method, original, forget=pairs["forget"], retain=pairs["retain"])
        yield method, {"unlearned": draw.embed(after.eval()), **known}
    again = draw.train(("retain",), settings=settings, dropout_seed=seed + 10_000)
    yield "retrained", {"unlearned": draw.embed(again), **known}


def _train_until_fitted(draw: Draw, target: np.ndarray) -> tuple[TabularMLP, TrainingSettings]:
    rows = draw.rows["forget"]
    for epochs in (100, 200, 400):
        settings = TrainingSettings(epochs=epochs, learning_rate=5e-3)
        model = draw.train(("forget", "retain"), settings=settings, target=target)
        with torch.no_grad():
            guess = model(torch.from_numpy(draw.features[rows])).argmax(dim=1).numpy()
        if (guess == target[rows]).mean() >= _FITTED:
            break
    return model, settings


def gaussian(seed: int) -> dict[str, Any]:
    """Independent normal rows, seen through two maps that differ by noise."""
    rng = np.random.default_rng(seed)
    return _through_two_maps(rng.normal(size=(660, 8)), (60, 480), rng)


def duplicated(seed: int) -> dict[str, Any]:
    """Discrete rows, most of them several times: exact ties everywhere."""
    rng = np.random.default_rng(seed)
    return _through_two_maps(rng.integers(0, 3, size=(660, 5)) + 0.5, (60, 480), rng)


def grouped(seed: int) -> dict[str, Any]:
    """Groups of five records around a centre each; whole groups are forgotten or held out, all of them named."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.normal(size=(240, 8)), 5, axis=0) + 0.3 * rng.normal(size=(1200, 8))
    names = np.repeat(np.arange(240), 5)
    parts = dict(zip(("forget", "retain", "held_out"), np.split(names, [150, 900]), strict=True))
    return {**_through_two_maps(rows, (150, 900), rng), "groups": parts}


def grouped_forget_only(seed: int) -> dict[str, Any]:
    """Groups of five among the forget records; held-out records one a group, as when only requests are named."""
    rng = np.random.default_rng(seed)
    forget = np.repeat(rng.normal(size=(30, 8)), 5, axis=0) + 0.3 * rng.normal(size=(150, 8))
    others = rng.normal(size=(1000, 8)) + 0.3 * rng.normal(size=(1000, 8))
    found = _through_two_maps(np.concatenate([forget, others]), (150, 850), rng)
    return {**found, "groups": np.repeat(np.arange(30), 5)}


SYNTHETIC: dict[str, Callable[[int], dict[str, Any]]] = {
    "Gaussian": gaussian,
    "duplicated discrete": duplicated,
    "grouped, groups named": grouped,
    "grouped, forget groups named only": grouped_forget_only,
}


def _through_two_maps(rows: np.ndarray, cuts: tuple[int, int], rng: np.random.Generator) -> dict[str, Any]:
    """Two nonlinear models of the same rows that differ by a little noise in their weights."""
    weights = rng.normal(size=(rows.shape[1], 32)) / np.sqrt(rows.shape[1])
    maps = (weights, weights + 0.05 * rng.normal(size=weights.shape))
    unlearned, oracle = (tuple(np.split(np.maximum(rows @ one, 0.0), cuts)) for one in maps)
    return {"unlearned": unlearned, "oracle": oracle}


FAST = AuditSettings(n_permutations=499, n_bootstrap=99)
FASTER = replace(FAST, n_permutations=199)
