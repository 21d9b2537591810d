"""Perfectly unlearned models: whatever the audit raises here is a false alarm.

Part A: forget sets drawn at random. Part B: forget sets that are no random draw, with held-out records from the general
population.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from calibration.perceptrons import Draw, Source, load_source
from calibration.world import World

N_FORGET, N_HELD_OUT, N_ORACLES = 80, 160, 2
RETAIN = {
    "adult": 1500,
    "bank_marketing": 1500,
    "electricity": 1500,
    "magic": 1500,
    "german_credit": 520,
    "digits": 837,
}
AUDITS_PER_PAIR = {"adult": 20, "bank_marketing": 20, "electricity": 20, "magic": 20, "german_credit": 2, "digits": 4}
N_AUDITS = 600

POPULATION = {"adult": 1300, "bank_marketing": 1300, "electricity": 1300, "magic": 1300, "german_credit": 620}
POPULATION |= {"digits": 1200}
"""Rows that the models could have been trained on, forget rows included; the others are held out."""

KINDS = (
    "one class",
    "a band of one column",
    "a rare category, wholly",
    "outliers",
    "hard records",
    "a group of neighbours",
)
N_ALIKE = 200
RETAIN_ALIKE = {
    "adult": 600,
    "bank_marketing": 600,
    "electricity": 600,
    "magic": 600,
    "german_credit": 300,
    "digits": 600,
}

LACKING = {"a rare category, wholly": ("magic", "digits")}
"""Sets without a column of categories."""

RECENT = ("electricity", "bank_marketing")
"""Sets whose rows stand in the order of time."""


VARIANTS = ("full", "two oracles")

TILTS = {"a direction": (0.2, 0.4, 0.8), "hard rows": (0.3, 0.6), "outliers": (0.3, 0.6), "one class": (0.3, 0.6)}
"""What forget rows are drawn towards, and how strongly; 0 is a random draw."""


def count_pairs(name: str) -> int:
    """Model pairs of a set; each serves as many audits as its pool of rows that were never trained on allows."""
    return N_AUDITS // AUDITS_PER_PAIR[name]


def make_random(name: str, seed: int) -> Iterator[World]:
    """Disjoint draws of forget and held-out rows, for one pair of models trained on the same retain rows."""
    source, rng = load_source(name), np.random.default_rng([1, seed])
    order = rng.permutation(len(source.target))
    retain, pool = np.split(order, [RETAIN[name]])
    width = N_FORGET + N_HELD_OUT
    draw = Draw.of(source, forget=pool[:N_FORGET], retain=retain, held_out=pool[N_FORGET:width])
    shares_start = seed % 2 == 0
    oracle = draw.train(draw.rows["retain"], start=seed, dropout_seed=2 * seed)
    unlearned = draw.train(
        draw.rows["retain"], start=seed if shares_start else seed + 500_000, dropout_seed=2 * seed + 1
    )
    for place in range(AUDITS_PER_PAIR[name]):
        some = pool[place * width : (place + 1) * width]
        now = draw.choose(forget=some[:N_FORGET], held_out=some[N_FORGET:])
        facts = {"shares_start": shares_start, "pair": seed}
        number = seed * AUDITS_PER_PAIR[name] + place
        yield World(name, "random", number, now.embed(unlearned), [now.embed(oracle)], facts=facts)


def list_kinds(name: str) -> list[str]:
    """Kinds of forget sets that a set allows; every kind is audited equally often."""
    kinds = [kind for kind in KINDS if name not in LACKING.get(kind, ())]
    return kinds + ["the most recent rows"] * (name in RECENT) + ["a whole class"] * (name == "digits")


def make_chosen(name: str, kind: str, seed: int) -> Iterator[World]:
    """One forget set of this kind; a model that never saw it, and two oracles."""
    source, rng = load_source(name), np.random.default_rng([2, seed])
    n = len(source.target)
    gone = _find_whole(source, kind, rng)
    others = rng.permutation(np.setdiff1d(np.arange(n), gone))
    population, outside = np.split(others, [min(POPULATION[name], len(others) - N_HELD_OUT)])
    whole = rng.permutation(gone)[:N_FORGET]
    forget = whole if len(whole) else _choose_forget(source, kind, population, outside, rng)
    held_out = outside[:N_HELD_OUT]
    if kind == "a whole class, same held out":
        held_out = np.setdiff1d(gone, forget)
    draw = Draw.of(source, forget=forget, retain=np.setdiff1d(population, forget), held_out=held_out)
    yield audit_retrained(draw, name, kind, seed)


def choose_alike(source: Source, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows to forget, to retain, held out at large, and held out by the rule that chose the forget rows.

    The rule picks a set of rows of the whole table; a random part of it is forgotten, the rest was never trained on.
    """
    n = len(source.target)
    rng = np.random.default_rng([12, seed, *map(ord, kind[:8])])
    width = min(3 * N_ALIKE, n // 4)
    if kind in ("a whole class", "the most recent rows", "a rare category, wholly"):
        chosen = _find_whole(source, kind, rng)
    else:
        chosen = _choose_forget(source, kind, np.arange(n), rng.permutation(n), rng, n_chosen=width)
    chosen = rng.permutation(chosen)[:width]
    n_forget = min(N_ALIKE, len(chosen) // 3)
    forget, alike = chosen[:n_forget], chosen[n_forget:]
    others = rng.permutation(np.setdiff1d(np.arange(n), chosen))
    general, retain, _ = np.split(others, np.cumsum([2 * N_ALIKE, RETAIN_ALIKE[source.name]]))
    return forget, retain, general, alike


def make_tilted(name: str, kind: str, tilt: float, seed: int) -> Iterator[World]:
    """Forget rows that lie a little to one side: their chances grow as exp(tilt z), z of variance 1."""
    source = load_source(name)
    rng = np.random.default_rng([5, seed, round(10 * tilt), *[list(TILTS).index(kind)] * (kind != "a direction")])
    population, outside, rest = np.split(
        rng.permutation(len(source.target)), [POPULATION[name], POPULATION[name] + N_HELD_OUT]
    )
    place = _place_rows(source, kind, population, rest, rng)
    place = np.clip((place - place.mean()) / place.std(), -3, 3)
    chances = np.exp(tilt * place)
    forget = rng.choice(population, N_FORGET, replace=False, p=chances / chances.sum())
    draw = Draw.of(source, forget=forget, retain=np.setdiff1d(population, forget), held_out=outside)
    world = audit_retrained(draw, name, f"towards {kind}, {tilt:g}", seed)
    yield replace(world, variants=(*VARIANTS, "no losses", "no oracle"))


def _place_rows(
    source: Source, kind: str, population: np.ndarray, rest: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Where the rows of the population lie: along a random direction of the features, or by rank of what is asked."""
    features = source.features[population]
    spread = features.std(axis=0)
    if kind == "a direction":
        place: np.ndarray = (features / np.where(spread > 0, spread, np.inf)) @ rng.normal(size=features.shape[1])
        return place
    if kind == "one class":
        return (source.target[population] == source.target[population[0]]).astype(np.float64)
    if kind == "hard rows":
        return np.argsort(np.argsort(_lose_rows(source, population, rest[:1500], rng))).astype(np.float64)
    assert kind == "outliers", kind
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.argsort(np.argsort(np.linalg.norm(scaled, axis=1))).astype(np.float64)


def audit_retrained(draw: Draw, name: str, kind: str, seed: int) -> World:
    """The world of one retrained model and two oracles; the first shares its start if the seed is even."""
    shares_start = seed % 2 == 0
    starts = [seed if shares_start else seed + 500_000, *(seed + 100_000 * k for k in range(1, N_ORACLES))]
    unlearned = draw.train(draw.rows["retain"], start=seed, dropout_seed=10 * seed)
    oracles = [
        draw.embed(draw.train(draw.rows["retain"], start=start, dropout_seed=10 * seed + 1 + k))
        for k, start in enumerate(starts)
    ]
    facts = {"shares_start": shares_start}
    return World(name, kind, seed, draw.embed(unlearned), oracles, facts=facts, variants=VARIANTS)


def _find_whole(source: Source, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Rows that are left out of training altogether, the forget rows among them; none for most kinds."""
    n = len(source.target)
    if kind.startswith("a whole class"):
        return np.flatnonzero(source.target == rng.integers(source.n_classes))
    if kind == "the most recent rows":
        return np.arange(n - n // 100, n)
    if kind == "a rare category, wholly":
        return _choose_category(source, rng)
    return np.zeros(0, dtype=np.int64)


def _choose_category(source: Source, rng: np.random.Generator) -> np.ndarray:
    """All rows of one category that at least 80 rows have, and at most a twentieth of the table or 160 rows."""
    n, found = len(source.target), []
    for column in source.features.T:
        values, counts = np.unique(column, return_counts=True)
        if len(values) <= 50:
            is_rare = (counts >= N_FORGET) & (counts <= max(n // 20, 2 * N_FORGET))
            found += [np.flatnonzero(column == value) for value in values[is_rare]]
    return found[rng.integers(len(found))]


def _choose_forget(
    source: Source,
    kind: str,
    population: np.ndarray,
    outside: np.ndarray,
    rng: np.random.Generator,
    n_chosen: int = N_FORGET,
) -> np.ndarray:
    """So many rows of the population, by a rule and not by chance."""
    features, target = source.features, source.target
    spread = features[population].std(axis=0)
    scaled = (features - features[population].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if kind == "one class":
        classes, counts = np.unique(target[population], return_counts=True)
        chosen = population[target[population] == rng.choice(classes[counts >= min(n_chosen, counts.max())])]
        return rng.permutation(chosen)[:n_chosen]
    if kind == "a band of one column":
        column = features[population, _choose_column(source)]
        ordered = population[np.lexsort([rng.random(len(population)), column])]
        start = rng.integers(len(population) - 2 * n_chosen)
        return rng.permutation(ordered[start : start + 2 * n_chosen])[:n_chosen]
    if kind == "outliers":
        return population[np.argsort(-np.linalg.norm(scaled[population], axis=1))[:n_chosen]]
    if kind == "a group of neighbours":
        anchor = scaled[rng.choice(population)]
        return population[np.argsort(np.linalg.norm(scaled[population] - anchor, axis=1))[:n_chosen]]
    assert kind == "hard records", kind
    return population[np.argsort(-_lose_rows(source, population, outside[:1500], rng))[:n_chosen]]


def _lose_rows(source: Source, rows: np.ndarray, teachers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Losses of a model that was trained on other rows."""
    draw = Draw.of(source, forget=rows, retain=teachers, held_out=teachers[:1])
    judge = draw.train(teachers, start=int(rng.integers(2**31)), dropout_seed=0)
    with torch.no_grad():
        logits = judge(torch.from_numpy(draw.features[rows]))
        losses = functional.cross_entropy(logits, torch.from_numpy(source.target[rows]), reduction="none")
    return np.asarray(losses)


def _choose_column(source: Source) -> int:
    """The age where there is one, else the first column with more than ten values."""
    if "age" in source.column_names:
        return source.column_names.index("age")
    return next(i for i, column in enumerate(source.features.T) if len(np.unique(column)) > 10)
