"""Part A: forget sets drawn at random, perfectly unlearned. Whatever the audit raises here is a false alarm."""

from collections.abc import Iterator

import numpy as np

from calibration.perceptrons import Draw, load_source
from calibration.world import World

N_FORGET, N_HELD_OUT = 80, 160
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
