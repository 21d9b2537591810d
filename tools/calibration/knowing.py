"""Part C: models that still know their forget records. Part E: perfectly unlearned ones whose original knew them."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from calibration.perceptrons import OVERFIT, Draw, load_source
from calibration.world import SIDES, Model, World, measure_attack
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, unlearn

N_FORGET, N_HELD_OUT = 200, 400
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

CAUTION_SETS = ("adult", "bank_marketing", "electricity", "magic")
CAUTION_RETAIN, CAUTION_SIZES = 1500, (50, 100, 200, 500)
ALONE_RETAIN = 1000


def make_overfit(name: str, seed: int) -> Iterator[World]:
    """Memory of true labels: untouched, after each method, and in other forms.

    The oracle shares the original's start if the seed is even.
    """
    draw, rng = draw_rows(name, seed, N_FORGET, N_HELD_OUT, RETAIN_TRUE[name])
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


def make_flipped(name: str, seed: int) -> Iterator[World]:
    """Memory of wrong labels: untouched, after each method, in the head alone, and of five records among sixty."""
    draw, rng = draw_rows(name, seed, N_FORGET, N_HELD_OUT, RETAIN_FLIPPED[name])
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

    few, rng = draw_rows(name, seed, FEW_FORGET, FEW_HELD_OUT, RETAIN_FEW[name])
    few = few.flip_labels(rng)
    retain, forget = few.rows["retain"], few.rows["forget"]
    original = train_model(few, np.concatenate([retain, forget]), seed, 7)
    model = train_model(few, np.concatenate([retain, forget[:N_MISSED]]), seed, 8)
    known = {"oracles": [few.embed(train_model(few, retain, seed, 0))], "original": few.embed(original)}
    yield tell(few, "5 of 60 memorised", seed, model, known)


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


def make_caution(name: str, seed: int) -> Iterator[World]:
    """Perfectly unlearned models whose original knew 500 records; audited by 50 to 500 of these."""
    draw, rng = draw_rows(name, seed, max(CAUTION_SIZES), 2 * max(CAUTION_SIZES), CAUTION_RETAIN)
    forget, retain, held_out = (draw.rows[side] for side in SIDES)
    oracle, clean = train_model(draw, retain, seed, 0), train_model(draw, retain, seed, 1)
    for k, (kind, some) in enumerate((("true labels", draw), ("flipped labels", draw.flip_labels(rng)))):
        original = train_model(some, np.concatenate([retain, forget]), seed, 2 + k)
        for n in CAUTION_SIZES:
            now = some.choose(forget=rng.permutation(forget)[:n], held_out=rng.permutation(held_out)[: 2 * n])
            facts = {"n": n, "shares_start": seed % 2 == 0, "attack_original": measure_attack(now.embed(original))}
            known = {"oracles": [now.embed(oracle)], "original": now.embed(original)}
            yield World(name, kind, seed, now.embed(clean), facts=facts, **known)


def make_caution_alone(name: str, seed: int, n: int, ratio: int = 2) -> Iterator[World]:
    """The same where the original knew exactly the n records that are audited, beside 1,000 that it keeps."""
    draw, _ = draw_rows(name, 1000 * n + seed, n, ratio * n, ALONE_RETAIN)
    forget, retain, _ = (draw.rows[side] for side in SIDES)
    start = seed if seed % 2 == 0 else seed + 500_000
    settings = TrainingSettings(epochs=400, learning_rate=2e-3)
    oracle = draw.train(retain, start=seed, dropout_seed=3 * seed, settings=settings)
    clean = draw.train(retain, start=start, dropout_seed=3 * seed + 1, settings=settings)
    original = draw.train(np.concatenate([retain, forget]), start=seed, dropout_seed=3 * seed + 2, settings=settings)
    facts = {"n": n, "shares_start": seed % 2 == 0, "attack_original": measure_attack(draw.embed(original))}
    known = {"oracles": [draw.embed(oracle)], "original": draw.embed(original)}
    kind = "true labels, these records alone" + ("" if ratio == 2 else f"; {ratio} n held out")
    yield World(name, kind, seed, draw.embed(clean), facts=facts, **known)
