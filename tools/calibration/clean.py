"""Perfectly unlearned models whose original knew the records: how often does the audit say so?"""

from collections.abc import Iterator

import numpy as np

from calibration.knowing import RETAIN_TRUE, draw_rows, train_model
from calibration.perceptrons import OVERFIT, Draw, load_source
from calibration.unlearned import choose_alike
from calibration.world import Model, World, measure_attack

HELD_OUT = {20: 400, 50: 400, 200: 800}
MOST_HELD_OUT = {"german_credit": 400}
VARIANTS = ("full", "two oracles", "no oracle", "no original", "no losses", "reference", "reference only")
RULE_VARIANTS = ("full", "two oracles")


def make_clean(name: str, seed: int, n: int) -> Iterator[World]:
    """The original knew exactly the n records that are audited, with their true labels and with wrong ones.

    The reference is an earlier release: trained from another start on the first half of the retain records.
    """
    m = min(HELD_OUT[n], MOST_HELD_OUT.get(name, HELD_OUT[n]))
    draw, rng = draw_rows(name, 1000 * n + seed, n, m, RETAIN_TRUE[name])
    retain, forget = draw.rows["retain"], draw.rows["forget"]
    oracle, clean = train_model(draw, retain, seed, 0), train_model(draw, retain, seed, 1)
    other = draw.train(retain, start=seed + 900_000, dropout_seed=20 * seed + 9, settings=OVERFIT)
    early = draw.train(retain[: len(retain) // 2], start=seed + 700_000, dropout_seed=20 * seed + 8, settings=OVERFIT)
    for k, (kind, some) in enumerate((("true labels", draw), ("planted labels", draw.flip_labels(rng)))):
        original = some.embed(train_model(some, np.concatenate([retain, forget]), seed, 2 + k))
        facts = {"n": n, "m": m, "shares_start": seed % 2 == 0, "attack_original": measure_attack(original)}
        oracles = [some.embed(oracle), some.embed(other)]
        yield World(
            name, kind, seed, some.embed(clean), oracles, original, some.embed(early), facts=facts, variants=VARIANTS
        )


def make_same_rule(name: str, kind: str, seed: int) -> Iterator[World]:
    """Forget records chosen by a rule; held-out ones from the population at large, and by the same rule."""
    source = load_source(name)
    forget, retain, general, alike = choose_alike(source, kind, seed)
    draw = Draw.of(source, forget=forget, retain=retain, held_out=general)
    oracle, clean = train_model(draw, retain, seed, 0), train_model(draw, retain, seed, 1)
    other = draw.train(retain, start=seed + 900_000, dropout_seed=20 * seed + 9, settings=OVERFIT)
    everyone = draw.choose(forget=forget, held_out=np.concatenate([general, alike]))
    planted = everyone.flip_labels(np.random.default_rng([11, seed]))
    for k, (labels, some) in enumerate((("true labels", everyone), ("planted labels", planted))):
        original = train_model(some, np.concatenate([retain, forget]), seed, 2 + k)
        for control, held_out in (("random", general), ("same-rule", alike)):
            now = some.choose(forget=forget, held_out=held_out)
            models = [now.embed(one) for one in (clean, oracle, other, original)]
            facts = {"control": control, "labels": labels, "attack_original": measure_attack(models[3])}
            yield World(
                name,
                kind,
                seed,
                models[0],
                models[1:3],
                models[3],
                settings={"control": control},
                facts=facts,
                variants=RULE_VARIANTS,
            )


def make_dose(name: str, seed: int) -> Iterator[World]:
    """Models trained on a known part of the forget records, from another start than the original.

    Three kinds of memory: true labels, wrong labels, and true labels seen three times as often.
    """
    n = 200
    m = min(HELD_OUT[n], MOST_HELD_OUT.get(name, HELD_OUT[n]))
    draw, rng = draw_rows(name, 700_000 + seed, n, m, RETAIN_TRUE[name])
    retain, forget = draw.rows["retain"], draw.rows["forget"]
    oracle = train_model(draw, retain, seed, 0)
    planted = draw.flip_labels(rng)
    for k, (kind, some, often) in enumerate(
        (("true labels", draw, 1), ("wrong labels", planted, 1), ("true labels, three times", draw, 3))
    ):

        def train(share: float, start: int, number: int, some: Draw = some, often: int = often) -> Model:
            part = np.tile(forget[: round(share * n)], often)
            rows = np.concatenate([retain, part])
            return some.embed(some.train(rows, start=start, dropout_seed=20 * seed + number, settings=OVERFIT))

        original = train(1.0, seed, 2 + k)
        for place, share in enumerate(DOSES):
            model = train(share, seed + 600_000 + place, 5 + k)
            facts = {"dose": share, "attack": measure_attack(model), "auc_original": measure_attack(original)}
            yield World(name, kind, seed, model, [some.embed(oracle)], original, facts=facts)


DOSES = (0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0)
