"""How the percentile ranks of M4 spread."""

import math
from dataclasses import dataclass

import numpy as np

from ruler.auditing.findings import Distributions
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Bar, Tick, draw_bars, keep_finite
from ruler.core.types import FloatArray


@dataclass(frozen=True)
class RankFigure:
    """Percentile ranks: bars for forget records, an outline for held-out ones, a line where all ranks are alike."""

    title: str
    sentence: str
    bars: tuple[Bar, ...]
    outline: str
    uniform_y: float
    base_y: float
    ticks: tuple[Tick, ...]
    has_held_out: bool


def draw_ranks(distributions: Distributions) -> RankFigure | None:
    """How the percentile ranks spread over 0 to 1; None where there are none."""
    counts = {side: keep_finite(values) for side, values in distributions.rank_counts.items()}
    forget = counts.get("forget", np.zeros(0))
    if not forget.sum():
        return None
    base, height, axis = 180.0, 140.0, Axis(0.0, 1.0)
    shares = {side: values / values.sum() for side, values in counts.items() if len(values) and values.sum()}
    top = max(float(values.max()) for values in shares.values())
    held_out = shares.get("held_out")
    return RankFigure(
        title="Percentile ranks among the retain records",
        sentence=_describe_ranks(forget),
        bars=draw_bars(shares["forget"] / top, base, height),
        outline="" if held_out is None else _outline(held_out / top, base, height),
        uniform_y=round(base - height / (len(forget) * top), 2),
        base_y=base,
        ticks=axis.find_ticks(5),
        has_held_out=held_out is not None,
    )


def _describe_ranks(counts: FloatArray) -> str:
    n_bins = len(counts)
    upper = float(counts[math.ceil(n_bins / 2) :].sum() + (counts[n_bins // 2] / 2 if n_bins % 2 else 0))
    return (
        f"{round(100 * upper / float(counts.sum()))}% of the forget records lie closer to a retain record than the "
        "middle retain record does to another."
    )


def _outline(shares: FloatArray, base: float, height: float) -> str:
    width = (WIDTH - 2 * EDGE) / len(shares)
    steps = [f"M{EDGE:g} {base:g}"]
    for i, share in enumerate(shares.tolist()):
        steps.append(f"V{base - share * height:.2f}H{EDGE + (i + 1) * width:.2f}")
    return "".join([*steps, f"V{base:g}"])
