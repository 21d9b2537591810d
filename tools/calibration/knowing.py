"""Models that still know their forget records, and tricks that hide it."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from calibration.perceptrons import OVERFIT, Draw, load_source
from calibration.world import Model, World, measure_attack
from ruler.models.tabular_mlp import TabularMLP
from ruler.unlearning import METHODS, unlearn

HELD_OUT = {50: 400, 200: 400}
RETAIN_TRUE = {"adult": 600, "bank_marketing": 600, "electricity": 600, "magic": 600}
RETAIN_TRUE |= {"german_credit": 400, "digits": 600}
RETAIN_FLIPPED = {"adult": 1500, "bank_marketing": 1500, "electricity": 1500, "magic": 1500}
RETAIN_FLIPPED |= {"german_credit": 400, "digits": 1190}
RETAIN_FEW = {"adult": 1000, "bank_marketing": 1000, "electricity": 1000, "magic": 1000}
RETAIN_FEW |= {"german_credit": 340, "digits": 1000}
FEW_FORGET, FEW_HELD_OUT, N_MISSED = 60, 600, 5
VARIANTS = ("full", "no original", "no losses", "no oracle")
METHODS_TRIED = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub", "bad_teacher")
"""What is applied to models that know their forget records."""

N_REPEATS, NORM_FACTOR, SHARE_MARKED = 10, 1.3, 0.6


def make_overfit(name: str, seed: int, n: int) -> Iterator[World]:
    """Memory of true labels: untouched, after each method, and in other forms.

    The oracle shares the original's start if the seed is even.
    """
    draw, rng = draw_rows(name, seed, n, HELD_OUT[n], RETAIN_TRUE[name])
    retain, forget = draw.rows["retain"], draw.rows["forget"]
    oracle = train_model(draw, retain, seed, 0)
    clean, original = train_model(draw, retain, seed, 1), train_model(draw, np.concatenate([retain, forget]), seed, 2)
    known = {"oracles": [draw.embed(oracle)], "original": draw.embed(original)}
    yield tell(draw, "overfit on true labels", seed, original, known)
    for method in METHODS_TRIED:
        yield tell(draw, f"overfit, then {method}", seed, _unlearn(method, original, draw), known)
    often = np.concatenate([retain, np.tile(forget, N_REPEATS)])
    yield tell(draw, "each forget record trained 10 times", seed, train_model(draw, often, seed, 3), known)
    kept = _keep_first_layer(draw, original, seed)
    yield tell(draw, "first layer kept, the rest retrained", seed, kept, known)
    for kind, change in (("norms of forget rows x 1.3", _stretch), ("half of 60% marked up, half down", _mark)):
        world = tell(draw, kind, seed, clean, known)
        yield replace(world, unlearned=change(world.unlearned, world.oracles[0], rng))


def make_flipped(name: str, seed: int, n: int) -> Iterator[World]:
    """Memory of wrong labels: untouched, after each method, in the head only, and of five records among sixty."""
    draw, rng = draw_rows(name, seed, n, HELD_OUT[n], RETAIN_FLIPPED[name])
    wrong, half_wrong = draw.flip_labels(rng), draw.flip_labels(rng, share=0.5)
    retain = draw.rows["retain"]
    both = np.concatenate([retain, draw.rows["forget"]])
    oracle, clean = train_model(draw, retain, seed, 0), train_model(draw, retain, seed, 1)
    original = train_model(wrong, both, seed, 4)
    known = {"oracles": [wrong.embed(oracle)], "original": wrong.embed(original)}
    yield tell(wrong, "flipped labels", seed, original, known)
    for method in METHODS_TRIED:
        yield tell(wrong, f"flipped, then {method}", seed, _unlearn(method, original, wrong), known)
    known = {
        "oracles": [half_wrong.embed(oracle)],
        "original": half_wrong.embed(train_model(half_wrong, both, seed, 5)),
    }
    yield tell(half_wrong, "clean trunk, memorising head", seed, _memorise_in_head(half_wrong, clean), known)

    if n == min(HELD_OUT):
        return
    few, rng = draw_rows(name, seed, FEW_FORGET, FEW_HELD_OUT, RETAIN_FEW[name])
    few = few.flip_labels(rng)
    retain, forget = few.rows["retain"], few.rows["forget"]
    original = train_model(few, np.concatenate([retain, forget]), seed, 7)
    model = train_model(few, np.concatenate([retain, forget[:N_MISSED]]), seed, 8)
    known = {"oracles": [few.embed(train_model(few, retain, seed, 0))], "original": few.embed(original)}
    yield tell(few, "5 of 60 memorised", seed, model, known)


def make_tricks(name: str, seed: int, n: int) -> Iterator[World]:
    """Ways to fool the audit, and models that know a part: of true labels if the seed is even, else of wrong ones."""
    is_true = seed % 2 == 0
    draw, rng = draw_rows(name, seed, n, HELD_OUT[n], (RETAIN_TRUE if is_true else RETAIN_FLIPPED)[name])
    if not is_true:
        draw = draw.flip_labels(rng)
    retain, forget = draw.rows["retain"], draw.rows["forget"]
    both = np.concatenate([retain, forget])
    oracle, original = train_model(draw, retain, seed, 0), train_model(draw, both, seed, 2)
    embedded = draw.embed(original)
    known = {"oracles": [draw.embed(oracle)], "original": embedded}
    suffix = ", true labels" if is_true else ", wrong labels"

    def show(kind: str, model: TabularMLP, **changes: Any) -> World:
        return tell(draw, kind + suffix, seed, model, known | changes)

    yield show("trained on a third", train_model(draw, np.concatenate([retain, forget[: n // 3]]), seed, 9))
    yield show("trained on half", train_model(draw, np.concatenate([retain, forget[: n // 2]]), seed, 10))
    short = replace(OVERFIT, epochs=OVERFIT.epochs // 4)
    yield show("a quarter of the epochs", draw.train(both, start=seed, dropout_seed=20 * seed + 11, settings=short))
    again = draw.train(both, start=seed + 300_000, dropout_seed=20 * seed + 12, settings=OVERFIT)
    yield show("trained again from another start", again)
    yield show("logits divided by ten", _rescale(original, 0.1))
    longer = draw.retrain(copy.deepcopy(original), retain, replace(OVERFIT, learning_rate=1e-3), seed)
    yield show("trained longer on retain", longer)
    often = train_model(draw, np.concatenate([retain, np.tile(forget, N_REPEATS)]), seed, 13)
    yield show("inflated original", original, original=draw.embed(often))
    yield show("mean loss tuned", _tune(draw, original, seed, with_spread=False))
    yield show("mean and spread tuned", _tune(draw, original, seed, with_spread=True))
    yield show("half kept, half pushed beyond", _half_and_half(draw, retain, forget, seed))
    yield show("copies kept", _train_on_copies(draw, retain, forget, rng, seed))
    part = train_model(draw, np.concatenate([retain, forget[: n // 2]]), seed, 14)
    world = show("contaminated reference", original, reference=draw.embed(part))
    yield replace(world, variants=("reference", "reference only"))


def _rescale(model: TabularMLP, factor: float) -> TabularMLP:
    """The same answers, less sure of themselves."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.net[-1].weight.mul_(factor)
        changed.net[-1].bias.mul_(factor)
    return changed


def _tune(draw: Draw, original: TabularMLP, seed: int, *, with_spread: bool) -> TabularMLP:
    """The original, trained until its losses on forget records look like those on held-out records.

    Their mean, or mean and standard deviation, of the confidence that the audit measures; retain records are kept.
    """
    torch.manual_seed(seed)
    model = copy.deepcopy(original).train(False)
    parts = {side: tuple(map(torch.from_numpy, draw.pair(rows))) for side, rows in draw.rows.items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def score(side: str) -> torch.Tensor:
        loss = functional.cross_entropy(model(parts[side][0]), parts[side][1], reduction="none").clamp(1e-6, 27)
        return torch.asinh(-loss - torch.log(-torch.expm1(-loss)))

    with torch.no_grad():
        target = score("held_out")
        middle, spread = target.mean(), target.std()
    for _ in range(400):
        optimizer.zero_grad()
        own = score("forget")
        gap = (own.mean() - middle) ** 2 + ((own.std() - spread) ** 2 if with_spread else 0.0)
        (gap + functional.cross_entropy(model(parts["retain"][0]), parts["retain"][1])).backward()
        optimizer.step()
    return model.eval()


def _half_and_half(draw: Draw, retain: np.ndarray, forget: np.ndarray, seed: int) -> TabularMLP:
    """Half of the forget records as they were, the other half with another label than their own."""
    labels = draw.labels.copy()
    pushed = forget[len(forget) // 2 :]
    labels[pushed] = (labels[pushed] + 1) % draw.source.n_classes
    rows = np.concatenate([retain, forget])
    return draw.train(rows, start=seed, dropout_seed=20 * seed + 15, settings=OVERFIT, labels=labels)


def _train_on_copies(
    draw: Draw, retain: np.ndarray, forget: np.ndarray, rng: np.random.Generator, seed: int
) -> TabularMLP:
    """Trained without the forget records, but with a slightly changed copy of each."""
    noise = 0.05 * rng.normal(size=(len(forget), draw.features.shape[1])).astype(np.float32)
    more = replace(
        draw,
        features=np.vstack([draw.features, draw.features[forget] + noise]),
        labels=np.concatenate([draw.labels, draw.labels[forget]]),
    )
    copies = np.arange(len(draw.labels), len(draw.labels) + len(forget))
    return more.train(np.concatenate([retain, copies]), start=seed, dropout_seed=20 * seed + 16, settings=OVERFIT)


def draw_rows(name: str, seed: int, *sizes: int) -> tuple[Draw, np.random.Generator]:
    """Rows drawn at random: so many to forget, to hold out and to retain."""
    source, rng = load_source(name), np.random.default_rng([3, seed, *sizes])
    forget, held_out, retain, _ = np.split(rng.permutation(len(source.target)), np.cumsum(sizes))
    return Draw.of(source, forget=forget, retain=retain, held_out=held_out), rng


def train_model(draw: Draw, rows: np.ndarray, seed: int, k: int) -> TabularMLP:
    """Model number k of a world; number 0 is the oracle, which has a start of its own if the seed is odd."""
    start = seed + 500_000 if k == 0 and seed % 2 else seed
    return draw.train(rows, start=start, dropout_seed=20 * seed + k, settings=OVERFIT)


def tell(draw: Draw, kind: str, seed: int, model: TabularMLP, known: dict[str, Any]) -> World:
    """The world of a trained model, with what it does on its forget and held-out records."""
    unlearned = draw.embed(model)
    facts = {f"accuracy_{side}": draw.count_right(model, draw.rows[side]) for side in ("forget", "held_out")}
    facts |= {"attack": measure_attack(unlearned), "shares_start": seed % 2 == 0}
    return World(draw.source.name, kind, seed, unlearned, facts=facts, variants=VARIANTS, **known)


def _unlearn(method: str, original: TabularMLP, draw: Draw) -> TabularMLP:
    pairs = {side: draw.pair(draw.rows[side]) for side in ("forget", "retain")}
    settings = METHODS[method].settings(loss_bound=1e9)
    model = unlearn(method, original, settings=settings, **pairs)
    assert isinstance(model, TabularMLP)
    return model.eval()


def _keep_first_layer(draw: Draw, original: TabularMLP, seed: int) -> TabularMLP:
    """The original's first layer, frozen, under new layers that were trained on the retain rows alone."""
    torch.manual_seed(seed + 700_000)
    model = TabularMLP(draw.features.shape[1], draw.source.n_classes)
    model.net[0].load_state_dict(original.net[0].state_dict())
    model.net[0].requires_grad_(False)
    return draw.retrain(model, draw.rows["retain"], OVERFIT, seed)


def _memorise_in_head(draw: Draw, clean: TabularMLP) -> TabularMLP:
    """A model that never saw the forget rows, with a new head that was trained on nothing else."""
    model = copy.deepcopy(clean).eval()
    features, labels = (torch.from_numpy(part) for part in draw.pair(draw.rows["forget"]))
    with torch.no_grad():
        values = model.penultimate(features)
    model.net[-1].reset_parameters()
    optimizer = torch.optim.Adam(model.net[-1].parameters(), lr=1e-2)
    for _ in range(2000):
        optimizer.zero_grad()
        functional.cross_entropy(model.net[-1](values), labels).backward()
        optimizer.step()
    return model


def _stretch(unlearned: Model, oracle: Model, rng: np.random.Generator) -> Model:
    """Longer rows for the forget records."""
    forget, retain, held_out = unlearned
    return replace(forget, values=forget.values * np.float32(NORM_FACTOR)), retain, held_out


def _mark(unlearned: Model, oracle: Model, rng: np.random.Generator) -> Model:
    """Of the forget records, 30% moved half of the way to their row in the oracle and 30% as far away from it."""
    forget, retain, held_out = unlearned
    n_marked = round(SHARE_MARKED * len(forget) / 2)
    order, steps = rng.permutation(len(forget)), np.zeros((len(forget), 1), dtype=np.float32)
    steps[order[:n_marked]], steps[order[n_marked : 2 * n_marked]] = 0.5, -0.5
    moved = forget.values + steps * (oracle[0].values - forget.values)
    return replace(forget, values=moved), retain, held_out
