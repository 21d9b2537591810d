"""Tables 7 and 8: M2 and M4 at three rates, ff = 5%, ten seeds, on the five small datasets.

What the paper leaves open shows in three places:

- M2's baseline is a draw of 500 retain rows that nobody could identify. Over random draws a cell moves by up to
  0.005 (Phoneme, Gradient Ascent, 5e-4: -0.0037 to +0.0013), and every published value lies inside that range.
  The baseline of all retain rows, the middle of it, is what is tested; the draw of ``RandomState(42)`` is
  printed beside it and misses four cells of 60 (German Credit and Wine Quality, Gradient Ascent, 1e-3; Phoneme,
  Gradient Ascent and NegGrad+, 5e-4).
- Wine Quality has twins: 13 of 63 forget rows equal a retain row, and 287 retain rows equal another. Counted
  exactly, ties with ``<=`` give M4 0.526 and with ``<`` 0.477; the published 0.50 to 0.51 lies between, where
  rounding noise in single-precision products breaks the ties by chance (0.504, or 0.509 when clipped to 1).
- SCRUB on Breast Cancer at 1e-3 depends on the dropout stream: unlearning seeds 100 to 111 give -0.0058 to
  -0.0130, with mean -0.0088, which is the published value; seed 100 alone gives -0.0122.
"""

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("RULER_DATA" not in os.environ, reason="RULER_DATA names no folder with the tables"),
]

# dataset -> method -> three M2 values, three M4 values, at rates 1e-4, 5e-4, 1e-3
PUBLISHED: dict[str, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "breast_cancer": {
        "gradient_ascent": ((-0.0004, -0.0016, -0.0484), (0.610, 0.602, 0.559)),
        "neggrad_plus": ((-0.0004, -0.0036, -0.0522), (0.610, 0.600, 0.597)),
        "fine_tuning": ((-0.0005, -0.0005, -0.0009), (0.611, 0.610, 0.602)),
        "scrub": ((-0.0005, -0.0007, -0.0088), (0.611, 0.609, 0.609)),
    },
    "heart_disease": {
        "gradient_ascent": ((-0.0023, 0.0012, -0.0226), (0.553, 0.542, 0.531)),
        "neggrad_plus": ((-0.0019, 0.0000, -0.0851), (0.552, 0.540, 0.593)),
        "fine_tuning": ((-0.0028, -0.0021, 0.0011), (0.555, 0.559, 0.568)),
        "scrub": ((-0.0026, -0.0018, -0.0065), (0.554, 0.554, 0.562)),
    },
    "german_credit": {
        "gradient_ascent": ((-0.0005, 0.0019, -0.0159), (0.547, 0.537, 0.490)),
        "neggrad_plus": ((-0.0003, 0.0020, -0.0560), (0.547, 0.531, 0.540)),
        "fine_tuning": ((-0.0007, 0.0011, 0.0045), (0.548, 0.543, 0.540)),
        "scrub": ((-0.0008, 0.0009, 0.0038), (0.548, 0.544, 0.550)),
    },
    "wine_quality": {
        "gradient_ascent": ((-0.0025, -0.0024, -0.0123), (0.506, 0.504, 0.504)),
        "neggrad_plus": ((-0.0024, -0.0042, -0.0252), (0.505, 0.499, 0.501)),
        "fine_tuning": ((-0.0025, -0.0025, -0.0034), (0.507, 0.508, 0.507)),
        "scrub": ((-0.0026, -0.0025, -0.0033), (0.505, 0.504, 0.507)),
    },
    "phoneme": {
        "gradient_ascent": ((-0.0003, -0.0020, -0.0618), (0.496, 0.497, 0.498)),
        "neggrad_plus": ((-0.0003, -0.0074, -0.0216), (0.496, 0.497, 0.498)),
        "fine_tuning": ((-0.0003, -0.0013, -0.0068), (0.496, 0.497, 0.498)),
        "scrub": ((-0.0003, -0.0011, -0.0062), (0.496, 0.496, 0.498)),
    },
}
RATES = (1e-4, 5e-4, 1e-3)
N_SEEDS = 10
NOISY = {("breast_cancer", "scrub", 1e-3): 0.0042}  # twice the deviation over unlearning seeds


@dataclass(frozen=True)
class Cell:
    """Means over the training seeds; ``rank_below`` counts ties as not below."""

    gap: float
    gap_of_draw: float
    rank: float
    rank_below: float


@cache
def measure(key: str) -> dict[tuple[str, float], Cell]:
    from ruler.data import load_tabular, partition_rows, split
    from ruler.training.classifier import train_tabular
    from ruler.unlearning import METHODS, unlearn

    parts = split(load_tabular(key))
    features, target = parts.train_features, parts.train_target
    partition = partition_rows(len(target), 0.05)
    forget, retain = ((features[rows], target[rows]) for rows in (partition.forget, partition.retain))
    scores: dict[tuple[str, float], list[tuple[float, ...]]] = {}
    for seed in range(N_SEEDS):
        original = train_tabular(features, target, seed=seed)
        oracle = train_tabular(features, target, partition, seed=seed)
        for method in PUBLISHED[key]:
            for rate in RATES:
                # epochs scale with the rate, as the paper ran it
                epochs = round(METHODS[method].settings().epochs * rate / 5e-4)
                settings = METHODS[method].settings(epochs=epochs, learning_rate=rate)
                model = unlearn(method, original, forget=forget, retain=retain, settings=settings)
                scores.setdefault((method, rate), []).append(score(model, oracle, forget[0], retain[0]))
    return {cell: Cell(*np.mean(values, axis=0)) for cell, values in scores.items()}


def score(model: Any, oracle: Any, forget: Any, retain: Any) -> tuple[float, ...]:
    from ruler.metrics import m2, m4

    moved, kept, moved_oracle, kept_oracle = (
        embed(network, rows) for network in (model, oracle) for rows in (forget, retain)
    )
    draw = np.random.RandomState(42).choice(len(kept), min(500, len(kept)), replace=False)
    gallery = kept[:2000]
    return (
        m2(moved, moved_oracle, kept, kept_oracle),
        m2(moved, moved_oracle, kept[draw], kept_oracle[draw]),
        m4(moved, gallery),
        rank_strictly(moved, gallery),
    )


def embed(network: Any, rows: Any) -> Any:
    import torch

    with torch.no_grad():
        return network.eval().penultimate(torch.from_numpy(rows)).double().numpy()


def rank_strictly(moved: Any, gallery: Any) -> float:
    """M4 with ``<`` in place of ``<=``."""
    moved, gallery = (
        rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300) for rows in (moved, gallery)
    )
    among = gallery @ gallery.T
    np.fill_diagonal(among, -2)
    nearest = np.sort(among.max(axis=1))
    below = np.searchsorted(nearest, (moved @ gallery.T).max(axis=1) - 1e-12)
    return float((below / len(nearest)).mean())


@pytest.mark.parametrize("key", PUBLISHED)
def test_every_cell_is_near_the_paper(key: str) -> None:
    print(f"\n{key:16s}  rate  M2 paper  all rows      draw   M4 paper      <=       <")
    misses = []
    for (method, rate), cell in measure(key).items():
        gap, rank = (values[RATES.index(rate)] for values in PUBLISHED[key][method])
        allowed = NOISY.get((key, method, rate), max(0.25 * abs(gap), 0.0008))
        is_near = abs(gap - cell.gap) <= allowed and cell.rank_below - 0.01 <= rank <= cell.rank + 0.01
        print(
            f"{method:16s} {rate:5.0e}   {gap:+.4f}  {cell.gap:+.5f}  {cell.gap_of_draw:+.5f}      {rank:.3f}  "
            f"{cell.rank:.4f}  {cell.rank_below:.4f}{'' if is_near else '  <- differs'}"
        )
        if not is_near:
            misses.append((method, rate))
    assert misses == []


@pytest.mark.parametrize("key", [key for key in PUBLISHED if key != "wine_quality"])
def test_without_twins_m4_is_within_a_hundredth(key: str) -> None:
    for (method, rate), cell in measure(key).items():
        assert cell.rank == pytest.approx(PUBLISHED[key][method][1][RATES.index(rate)], abs=0.01), (method, rate)


@pytest.mark.parametrize("key", ["heart_disease", "breast_cancer"])
@pytest.mark.parametrize("rate", RATES)
def test_fine_tuning_is_equal_to_the_printed_decimals(key: str, rate: float) -> None:
    gaps, ranks = PUBLISHED[key]["fine_tuning"]
    cell = measure(key)["fine_tuning", rate]
    assert cell.gap_of_draw == pytest.approx(gaps[RATES.index(rate)], abs=0.5001e-4)
    assert cell.rank == pytest.approx(ranks[RATES.index(rate)], abs=0.5001e-3)
