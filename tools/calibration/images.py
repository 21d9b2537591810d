"""CIFAR-10: the worlds of parts A to D with the paper's small convolutional network, in mini batches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from calibration import destroyed, knowing
from calibration.perceptrons import measure_skill
from calibration.world import SIDES, Model, World, measure_attack
from ruler.core.types import Embeddings
from ruler.data import load_images
from ruler.models.small_cnn import SmallCNN
from ruler.training.classifier import train_classifier
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, unlearn

N_FORGET, N_HELD_OUT, N_ORACLES = 80, 160, 2
N_KNOWN, N_NOT_KNOWN = 200, 400  # records of models that remember
RECIPE = TrainingSettings(epochs=20, batch_size=128)
N_PAIRS, AUDITS_PER_PAIR = 4, 28
N_CHOSEN, N_KNOWING, N_DESTROYED = 4, 3, 3
N_CONTROLS = 5
KINDS = ("one class", "outliers", "hard records", "a group of neighbours")


@dataclass(frozen=True)
class Scale:
    """How much of the plan is run; `QUICK` only shows that it runs."""

    n_retain: int = 3000
    recipe: TrainingSettings = RECIPE
    n_pairs: int = N_PAIRS
    audits_per_pair: int = AUDITS_PER_PAIR
    n_chosen: int = N_CHOSEN
    n_knowing: int = N_KNOWING
    n_destroyed: int = N_DESTROYED


FULL = Scale()
QUICK = Scale(300, replace(RECIPE, epochs=2), 1, 2, 1, 1, 1)


@dataclass(frozen=True, eq=False)
class Photos:
    """All images as (n, 3, 32, 32) float32 with mean 0 and spread 1 per colour, and the labels they carry."""

    images: np.ndarray
    labels: np.ndarray
    device: str

    def train(self, rows: np.ndarray, *, start: int, order: int, recipe: TrainingSettings) -> SmallCNN:
        """A network trained on these rows: ``start`` decides its weights, ``order`` the order of its batches."""

        def build() -> SmallCNN:
            torch.manual_seed(start)
            return SmallCNN().to(self.device)

        model = train_classifier(build, self.pair(rows), seed=order, settings=recipe)
        assert isinstance(model, SmallCNN)
        return model

    def pair(self, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels of some rows, on the device."""
        return _to_device(self.images, self.device)[rows], torch.from_numpy(self.labels[rows]).to(self.device)

    @torch.no_grad()
    def run(self, model: SmallCNN, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Representations, losses and guesses."""
        images, labels = self.pair(rows)
        values = torch.cat([model.penultimate(some) for some in images.split(2000)])
        logits = model.head(values).double()
        losses = functional.cross_entropy(logits, labels, reduction="none")
        return values.float().cpu().numpy(), losses.cpu().numpy(), logits.argmax(dim=1).cpu().numpy()

    def embed(self, model: SmallCNN, rows: dict[str, np.ndarray]) -> Model:
        """(forget, retain, held_out) in this model."""
        sides = []
        for side in SIDES:
            values, losses, _ = self.run(model, rows[side])
            sides.append(
                Embeddings(values, rows[side], labels=self.labels[rows[side]], losses=losses, layer="penultimate")
            )
        forget, retain, held_out = sides
        return forget, retain, held_out

    def count_right(self, model: SmallCNN, rows: np.ndarray) -> float:
        """Share of rows whose label the model gives."""
        return float((self.run(model, rows)[2] == self.labels[rows]).mean())

    def flip_labels(self, rows: np.ndarray, rng: np.random.Generator) -> "Photos":
        """Other labels for these rows."""
        labels = self.labels.copy()
        labels[rows] = (labels[rows] + rng.integers(1, 10, size=len(rows))) % 10
        return replace(self, labels=labels)


_ON_DEVICE: dict[tuple[int, str], torch.Tensor] = {}


def _to_device(images: np.ndarray, device: str) -> torch.Tensor:
    """The whole set on the device, sent there once."""
    key = (id(images), device)
    if key not in _ON_DEVICE:
        _ON_DEVICE[key] = torch.from_numpy(images).to(device)
    return _ON_DEVICE[key]


@cache
def load_photos(device: str) -> Photos:
    """Training and test images of CIFAR-10 together: 12,000."""
    split = load_images("cifar10")
    images = np.concatenate([split.train.images, split.test.images]).astype(np.float32) / 255
    labels = np.concatenate([split.train.target, split.test.target]).astype(np.int64)
    images = (images - images.mean(axis=(0, 1, 2))) / images.std(axis=(0, 1, 2))
    return Photos(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels, device)


def make_random(device: str, seed: int, scale: Scale) -> Iterator[World]:
    """Part A."""
    photos, width = load_photos(device), N_FORGET + N_HELD_OUT
    for pair in range(seed, seed + scale.n_pairs):
        rng = np.random.default_rng([21, pair])
        retain, pool = np.split(rng.permutation(len(photos.labels)), [scale.n_retain])
        shares_start = pair % 2 == 0
        oracle = photos.train(retain, start=pair, order=2 * pair, recipe=scale.recipe)
        start = pair if shares_start else pair + 500_000
        unlearned = photos.train(retain, start=start, order=2 * pair + 1, recipe=scale.recipe)
        for place in range(scale.audits_per_pair):
            some = pool[place * width : (place + 1) * width]
            rows = {"forget": some[:N_FORGET], "retain": retain, "held_out": some[N_FORGET:]}
            models = photos.embed(unlearned, rows), [photos.embed(oracle, rows)]
            facts = {"shares_start": shares_start, "pair": pair}
            yield World("cifar10", "random", pair * AUDITS_PER_PAIR + place, *models, facts=facts)


def make_chosen(device: str, seed: int, scale: Scale) -> Iterator[World]:
    """Part B: four kinds share the models of a draw, which never saw any of the four sets; then a whole class."""
    photos = load_photos(device)
    for number in range(seed, seed + scale.n_chosen):
        rng = np.random.default_rng([22, number])
        order = rng.permutation(len(photos.labels))
        population, outside = np.split(order, [scale.n_retain + len(KINDS) * N_FORGET])
        chosen = {kind: _choose_forget(photos, kind, population, outside, rng, scale) for kind in KINDS}
        retain = np.setdiff1d(population, np.concatenate(list(chosen.values())))
        models = _train_clean(photos, retain, number, scale)
        for kind, forget in chosen.items():
            rows = {"forget": forget, "retain": retain, "held_out": outside[:N_HELD_OUT]}
            yield _audit_clean(photos, kind, number, rows, models)
        label = int(rng.integers(10))
        gone = rng.permutation(np.flatnonzero(photos.labels == label))
        order = order[photos.labels[order] != label]
        retain, outside = np.split(order, [scale.n_retain])
        models = _train_clean(photos, retain, number + 50_000, scale)
        rows = {"forget": gone[:N_FORGET], "retain": retain, "held_out": outside[:N_HELD_OUT]}
        yield _audit_clean(photos, "a whole class", number, rows, models)
        for k in range(N_CONTROLS):
            some = gone[k * 240 : (k + 1) * 240]
            rows = {"forget": some[:N_FORGET], "retain": retain, "held_out": some[N_FORGET:]}
            yield _audit_clean(photos, "a whole class, same held out", number * N_CONTROLS + k, rows, models)


def _train_clean(photos: Photos, retain: np.ndarray, number: int, scale: Scale) -> list[SmallCNN]:
    """The audited model and two oracles; the first oracle shares the model's start if the number is even."""
    starts = [number, number if number % 2 == 0 else number + 500_000]
    starts += [number + 100_000 * k for k in range(1, N_ORACLES)]
    return [
        photos.train(retain, start=start, order=10 * number + k, recipe=scale.recipe) for k, start in enumerate(starts)
    ]


def _audit_clean(photos: Photos, kind: str, number: int, rows: dict[str, np.ndarray], models: list[SmallCNN]) -> World:
    unlearned, *oracles = (photos.embed(model, rows) for model in models)
    facts = {"shares_start": number % 2 == 0}
    return World("cifar10", kind, number, unlearned, oracles, facts=facts, variants=("full", "two oracles"))


def _choose_forget(
    photos: Photos, kind: str, population: np.ndarray, outside: np.ndarray, rng: np.random.Generator, scale: Scale
) -> np.ndarray:
    flat = photos.images[population].reshape(len(population), -1)
    if kind == "one class":
        own = population[photos.labels[population] == rng.integers(10)]
        return rng.permutation(own)[:N_FORGET]
    if kind == "outliers":
        return population[np.argsort(-np.linalg.norm(flat - flat.mean(axis=0), axis=1))[:N_FORGET]]
    if kind == "a group of neighbours":
        anchor = flat[rng.integers(len(population))]
        return population[np.argsort(np.linalg.norm(flat - anchor, axis=1))[:N_FORGET]]
    judge = photos.train(outside[: scale.n_retain], start=int(rng.integers(2**31)), order=0, recipe=scale.recipe)
    return population[np.argsort(-photos.run(judge, population)[1])[:N_FORGET]]


def make_knowing(device: str, seed: int, scale: Scale) -> Iterator[World]:
    """Part C: true and flipped labels, untouched and after each method, and records trained ten times."""
    true = load_photos(device)
    for number in range(seed, seed + scale.n_knowing):
        rng = np.random.default_rng([23, number])
        sizes = np.cumsum([N_KNOWN, N_NOT_KNOWN, scale.n_retain])
        forget, held_out, retain, _ = np.split(rng.permutation(len(true.labels)), sizes)
        rows = {"forget": forget, "retain": retain, "held_out": held_out}
        start = number if number % 2 == 0 else number + 500_000
        oracle = true.train(retain, start=start, order=10 * number, recipe=scale.recipe)
        wrong = true.flip_labels(np.concatenate([forget, held_out]), rng)
        for k, (name, photos) in enumerate((("overfit", true), ("flipped", wrong))):
            both = np.concatenate([retain, forget])
            original = photos.train(both, start=number, order=10 * number + 1 + k, recipe=scale.recipe)
            untouched = {"overfit": "overfit on true labels", "flipped": "flipped labels"}[name]
            models: dict[str, nn.Module] = {untouched: original}
            for method in knowing.METHODS_TRIED:
                settings = METHODS[method].settings(batch_size=128, loss_bound=1e9)
                pairs = {"forget": photos.pair(forget), "retain": photos.pair(retain)}
                models[f"{name}, then {method}"] = unlearn(method, original, settings=settings, **pairs).eval()
            if name == "overfit":
                often = np.concatenate([retain, np.tile(forget, knowing.N_REPEATS)])
                models["each forget record trained 10 times"] = photos.train(
                    often, start=number, order=10 * number + 3, recipe=scale.recipe
                )
            known = {"oracles": [photos.embed(oracle, rows)], "original": photos.embed(original, rows)}
            for kind, model in models.items():
                unlearned = photos.embed(model, rows)
                facts = {f"accuracy_{side}": photos.count_right(model, rows[side]) for side in ("forget", "held_out")}
                facts |= {"attack": measure_attack(unlearned), "shares_start": number % 2 == 0}
                yield World("cifar10", kind, number, unlearned, facts=facts, variants=knowing.VARIANTS, **known)


def make_destroyed(device: str, seed: int, scale: Scale) -> Iterator[World]:
    """Part D."""
    photos = load_photos(device)
    for number in range(seed, seed + scale.n_destroyed):
        rng = np.random.default_rng([24, number])
        sizes = np.cumsum([N_FORGET, N_HELD_OUT, scale.n_retain])
        forget, held_out, retain, _ = np.split(rng.permutation(len(photos.labels)), sizes)
        rows, both = {"forget": forget, "retain": retain, "held_out": held_out}, np.concatenate([retain, forget])
        original = photos.train(both, start=number, order=10 * number, recipe=scale.recipe)
        start = number if number % 2 == 0 else number + 500_000
        oracle = photos.train(retain, start=start, order=10 * number + 1, recipe=scale.recipe)
        known = {"oracles": [photos.embed(oracle, rows)], "original": photos.embed(original, rows)}

        def measure(model: nn.Module, retain: np.ndarray = retain) -> float:
            return measure_skill(lambda some: photos.run(model, some)[2], photos.labels, retain)

        for kind in destroyed.KINDS:
            if kind == "trained on shuffled labels":
                labels = photos.labels.copy()
                labels[both] = rng.permutation(labels[both])
                shuffled = replace(photos, labels=labels)
                model = shuffled.train(both, start=number, order=10 * number + 2, recipe=scale.recipe)
            else:
                model = destroyed.destroy(
                    kind, original, photos.pair(both), measure, number, first="features.0", last="fc2"
                )
            facts = {"true_skill": measure(model), "original_skill": measure(original)}
            yield World("cifar10", kind, number, photos.embed(model, rows), facts=facts, **known)


PARTS = {"random": make_random, "chosen": make_chosen, "knowing": make_knowing, "destroyed": make_destroyed}
