"""Parts F, G and H: worlds whose scores are known, without a model: groups, intervals, and one answer per evidence."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from calibration.world import SIDES, Model, Row, World, describe
from ruler.core.types import Embeddings
from ruler.stats.scale import relabel, share_of_original

GROUP_SIZES, HELD_OUT_GROUPS, ICC = (200, 5, 5), (10,) * 30, 0.3
COVERAGE_SHAPES, COVERAGE_DRAWS = ("normal", "t with 3 degrees", "skewed", "capped", "tied"), 300
COVERAGE_SIZES, COVERAGE_CONTROLS, COVERAGE_SHARES = (1, 2, 3, 5, 10, 20, 50, 200), (20, 40, 100, 400), (0.0, 0.3, 1.0)
N_EVIDENCES, N_ORDERS, N_SEEDS = 10, 60, 20
_WIDTH = 6  # of each of the three subspaces that rows are built in


def make_grouped(seed: int) -> Iterator[World]:
    """Nothing remembered: groups of very unequal size, whose members are alike in every score."""
    rng = np.random.default_rng([7, seed])
    groups = {"forget": np.repeat(["f0", "f1", "f2"], GROUP_SIZES)}
    groups["held_out"] = np.repeat([f"h{i}" for i in range(len(HELD_OUT_GROUPS))], HELD_OUT_GROUPS)
    groups["retain"] = np.repeat([f"r{i}" for i in range(60)], 10)
    oracle, unlearned = build_rows({side: draw_scores(rng, names) for side, names in groups.items()}, rng)
    unlearned, oracle = (_name_groups(model, groups) for model in (unlearned, oracle))
    yield World("scores", "200, 5, 5 against 30 x 10", seed, unlearned, [oracle], variants=("full", "no groups"))


def draw_scores(rng: np.random.Generator, groups: np.ndarray) -> dict[str, np.ndarray]:
    """Standard normal scores with the intra-class correlation ICC, one set for every contrast."""
    codes = np.unique(groups, return_inverse=True)[1]
    return {
        name: np.sqrt(ICC) * rng.normal(size=codes.max() + 1)[codes] + np.sqrt(1 - ICC) * rng.normal(size=len(codes))
        for name in ("m2", "m4", "norm", "loss")
    }


def build_rows(scores: dict[str, dict[str, np.ndarray]], rng: np.random.Generator) -> tuple[Model, Model]:
    """Rows of an oracle and of a model whose scores are increasing functions of those given, by side and contrast.

    With a retain direction a, a direction b outside the retain records' space and a direction c outside both, a record
    is u = s a + sqrt(1 - s^2) b in the model and q u + sqrt(1 - q^2) c, of length 1, in the oracle. Then s is its
    similarity to the nearest retain record and q its similarity to the oracle; its length and losses are free.
    """

    def draw_directions(n: int, place: int) -> np.ndarray:
        rows = np.zeros((n, 3 * _WIDTH))
        rows[:, place * _WIDTH : (place + 1) * _WIDTH] = rng.normal(size=(n, _WIDTH))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    gallery = draw_directions(len(scores["retain"]["m2"]), 0)
    models: dict[str, dict[str, Embeddings]] = {"oracle": {}, "unlearned": {}}
    for side in SIDES:
        own = scores[side]
        n = len(own["m2"])
        nearest = (0.75 + 0.15 * np.tanh(own["m4"] / 2))[:, None]
        similarity = (0.95 + 0.03 * np.tanh(own["m2"] / 2))[:, None]
        at = gallery if side == "retain" else gallery[rng.integers(len(gallery), size=n)]
        rows = at if side == "retain" else nearest * at + np.sqrt(1 - nearest**2) * draw_directions(n, 1)
        in_oracle = similarity * rows + np.sqrt(1 - similarity**2) * draw_directions(n, 2)
        base_loss = rng.exponential(size=n)
        ids = np.array([f"{side}-{i}" for i in range(n)])
        models["oracle"][side] = Embeddings(in_oracle, ids, losses=base_loss)
        lengths = np.exp(0.1 * own["norm"])[:, None]
        models["unlearned"][side] = Embeddings(
            lengths * rows, ids, losses=base_loss + 0.1 + 0.03 * np.tanh(own["loss"] / 2)
        )
    oracle, unlearned = (tuple(models[name][side] for side in SIDES) for name in ("oracle", "unlearned"))
    return oracle, unlearned


def _name_groups(model: Model, groups: dict[str, np.ndarray]) -> Model:
    forget, retain, held_out = model
    return (
        replace(forget, groups=groups["forget"]),
        replace(retain, groups=groups["retain"]),
        replace(held_out, groups=groups["held_out"]),
    )


def measure_coverage(shape: str, n: int, m: int, seed: int, n_draws: int) -> list[Row]:
    """How often the intervals of what remains hold the truth: n forget and m held-out records, noise of this shape.

    Held-out records score noise in both models, correlated by a half; forget records score the trace, of 8 standard
    errors or at least 4 standard deviations, besides: all of it before, a share of it now.
    """
    rng = np.random.default_rng([8, COVERAGE_SHAPES.index(shape), n, m, seed])
    trace = max(4.0, 8 * np.sqrt(1 / n + 1 / m))
    rows = []
    for share in COVERAGE_SHARES:
        held, under, over, width = 0, 0, 0, 0.0
        for draw in range(n_draws):
            now, before = draw_noise(shape, n + m, rng)
            before[:n] += trace
            now[:n] += share * trace
            found = relabel(np.array([now, before]), n, seed=draw)
            one = share_of_original(now, before, n, alpha=0.05, found=found)
            held += one.low <= share <= one.high
            under, over = under + (share < one.at_least), over + (share > one.at_most)
            width += (one.high - one.low) / n_draws
        rows.append(
            {"shape": shape, "n": n, "m": m, "share": share, "draws": n_draws, "width": width}
            | {"held": int(held), "under": int(under), "over": int(over)}
        )
    return rows


def draw_noise(shape: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """(2, n) noise of two models, correlated by a half, of mean 0 and about variance 1."""
    common, own = rng.normal(size=n), rng.normal(size=(2, n))
    noise = np.sqrt(0.5) * (common + own)
    if shape == "t with 3 degrees":
        noise /= np.sqrt(rng.chisquare(3, size=n) / 3)
    elif shape == "skewed":
        noise = np.exp(0.7 * noise) - np.exp(0.245)
    elif shape == "capped":
        noise = np.clip(noise, -1.0, 1.0)
    elif shape == "tied":
        noise = np.round(noise)
    return noise


def measure_answers(evidence: int, seed: int, n_orders: int, n_seeds: int) -> list[Row]:
    """Does one piece of evidence, on the border of significance, give one answer whatever the row order and seed?"""
    import ruler
    from ruler.auditing import AuditSettings

    contrast = ("m2", "m4", "norm", "loss")[evidence % 4]

    def build(shift: float) -> dict[str, Any]:
        rng = np.random.default_rng([9, seed, evidence])
        sizes = {"forget": 30, "retain": 100, "held_out": 60}
        scores = {
            side: {name: rng.normal(size=n) for name in ("m2", "m4", "norm", "loss")} for side, n in sizes.items()
        }
        scores["forget"][contrast] += shift
        oracle, unlearned = build_rows(scores, rng)
        return {"unlearned": unlearned, "oracle": oracle}

    def read(given: dict[str, Any], settings: AuditSettings) -> Row:
        return describe(ruler.audit(**given, settings=settings))

    low, high, alpha = -2.0, 0.0, 0.05
    for _ in range(7):  # the shift at which the adjusted p-value crosses alpha
        middle = (low + high) / 2
        found = read_p(read(build(middle), AuditSettings()), contrast)
        low, high = (middle, high) if found <= alpha else (low, middle)
    given = build(low)
    first = read(given, AuditSettings())
    rng = np.random.default_rng([10, seed, evidence])
    orders = [read(_reorder(given, rng), AuditSettings()) for _ in range(n_orders)]
    seeds = [read(given, AuditSettings(seed=1 + k)) for k in range(n_seeds)]
    p_values = [read_p(row, contrast) for row in seeds]
    return [
        {
            "contrast": contrast,
            "adjusted_p": read_p(first, contrast),
            "verdict": first["verdict"],
            "order_verdicts": sorted({row["verdict"] for row in orders}),
            "orders_alike": sum(row == first for row in orders),
            "orders": n_orders,
            "seed_verdicts": sorted({row["verdict"] for row in [first, *seeds]}),
            "seed_p_range": [min(p_values), max(p_values)],
            "seeds": n_seeds,
        }
    ]


def read_p(row: Row, contrast: str) -> float:
    """The least corrected p-value of a contrast's parts."""
    return min(p for p in row["contrasts"][contrast]["parts"].values() if p is not None)


def _reorder(given: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The same records in another order, the same for all models, as files written anew would hold them."""
    orders = [rng.permutation(len(side)) for side in given["unlearned"]]
    return {
        name: tuple(
            replace(side, values=side.values[order], ids=side.ids[order], losses=side.losses[order])
            for side, order in zip(model, orders, strict=True)
        )
        for name, model in given.items()
    }
