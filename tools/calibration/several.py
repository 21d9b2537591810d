"""Part F: is an audit with five oracles at least as good as with one? Clean, short and knowing models."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.knowing import N_FORGET, N_HELD_OUT, RETAIN_TRUE, draw_rows, tell
from calibration.perceptrons import OVERFIT, Draw, load_source
from calibration.world import World
from ruler.models.tabular_mlp import TabularMLP

N_ORACLES = 5
VARIANTS = ("full", "five oracles")
SHORT = replace(OVERFIT, epochs=OVERFIT.epochs // 10)


def make_several(name: str, seed: int) -> Iterator[World]:
    """Models that are clean, clean and short, overfit on the forget records, and overfit on a third of them."""
    draw, _ = draw_rows(name, 50_000 + seed, N_FORGET, N_HELD_OUT, RETAIN_TRUE[name])
    retain, forget = draw.rows["retain"], draw.rows["forget"]
    known = _know(draw, seed)
    original = _train(draw, np.concatenate([retain, forget]), seed, seed, 8)
    third = np.concatenate([retain, forget[: N_FORGET // 3]])
    for kind, model in (
        ("retrained", _train(draw, retain, seed, seed, 6)),
        ("retrained, a tenth as long", draw.train(retain, start=seed, dropout_seed=20 * seed + 7, settings=SHORT)),
        ("overfit", original),
        ("overfit on a third", _train(draw, third, seed, seed, 9)),
    ):
        world = tell(draw, kind, seed, model, known | {"original": draw.embed(original)})
        yield replace(world, variants=VARIANTS)


def make_one_class(name: str, seed: int) -> Iterator[World]:
    """An overfit original whose forget records are of one class; held-out records are from the general population."""
    source, rng = load_source(name), np.random.default_rng([4, seed])
    classes, counts = np.unique(source.target, return_counts=True)
    n_forget = min(N_FORGET, int(counts.max()) // 2)
    own = rng.permutation(np.flatnonzero(source.target == rng.choice(classes[counts >= 2 * n_forget])))
    others = rng.permutation(np.setdiff1d(np.arange(len(source.target)), own[:n_forget]))
    held_out, retain, _ = np.split(others, np.cumsum([N_HELD_OUT, RETAIN_TRUE[name]]))
    draw = Draw.of(source, forget=own[:n_forget], retain=retain, held_out=held_out)
    original = _train(draw, np.concatenate([draw.rows["retain"], draw.rows["forget"]]), seed, seed, 8)
    known = _know(draw, seed) | {"original": draw.embed(original)}
    yield replace(tell(draw, "overfit, one class", seed, original, known), variants=VARIANTS)


def _know(draw: Draw, seed: int) -> dict[str, Any]:
    """Five oracles; the first shares its start with the other models if the seed is even."""
    starts = [seed if seed % 2 == 0 else seed + 500_000, *(seed + 100_000 * k for k in range(1, N_ORACLES))]
    return {"oracles": [draw.embed(_train(draw, draw.rows["retain"], s, seed, k)) for k, s in enumerate(starts)]}


def _train(draw: Draw, rows: np.ndarray, start: int, seed: int, k: int) -> TabularMLP:
    return draw.train(rows, start=start, dropout_seed=20 * seed + k, settings=OVERFIT)
