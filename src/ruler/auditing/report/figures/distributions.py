"""Where the values of forget, held-out and retain records lie."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ruler.auditing.report.display import choose_digits, count_records, format_number
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Bar, Tick, draw_bars, keep_finite
from ruler.core.types import FloatArray

# what the per-record score of a contrast is, where its title names the aggregate
SCORES = {
    "m1": "Similarity to the oracle (M1)",
    "m2": "Similarity to the oracle (M2)",
    "m3": "Shift towards the oracle (M3)",
    "m4": "Similarity to the nearest retain record (M4)",
    "norm": "Norm relative to the oracle, as a logarithm",
    "loss": "Place of the loss among all, less that in the oracle where there is one",
}
SIDES = {"forget": "Forget", "held_out": "Held-out", "retain": "Retain"}
_N_BINS = 40
_FEW = 40
_ROW_HEIGHT = 44.0
_ROW_STEP = 78.0
_TOP = 24.0


@dataclass(frozen=True)
class Row:
    """The values of one side: bars, or dots where there are few."""

    side: str
    label: str
    median: str
    median_x: float
    base_y: float
    bars: tuple[Bar, ...]
    dots: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DistributionFigure:
    """Sides above one another on one scale.

    Args:
        name: For the ids of the page's elements.
        title: What is shown.
        sentence: What the figure says.
        height: Of the drawing.
        rows: One per side.
        ticks: Of the shared axis.
        note: What the drawing leaves out; empty if nothing.
    """

    name: str
    title: str
    sentence: str
    height: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    note: str


def draw_distributions(name: str, title: str, values: Mapping[str, FloatArray]) -> DistributionFigure | None:
    """Where the values of each side lie; None where there are none."""
    sides = {side: keep_finite(values[side]) for side in SIDES if side in values}
    sides = {side: numbers for side, numbers in sides.items() if len(numbers)}
    if "forget" not in sides:
        return None
    axis = _fit_axis(sides)
    digits = choose_digits(np.concatenate(list(sides.values())))
    rows = tuple(_draw_row(side, numbers, axis, number, digits) for number, (side, numbers) in enumerate(sides.items()))
    n_below = int(sum((numbers < axis.low).sum() for numbers in sides.values()))
    n_above = int(sum((numbers > axis.high).sum() for numbers in sides.values()))
    outside = ((n_below, "below", "left"), (n_above, "above", "right"))
    note = " ".join(
        f"{count_records(n)} {where} the axis {'stands' if n == 1 else 'stand'} at its {edge} edge."
        for n, where, edge in outside
        if n
    )
    return DistributionFigure(
        name=name,
        title=title,
        sentence=_compare_medians(sides, digits),
        height=rows[-1].base_y + 24,
        rows=rows,
        ticks=axis.find_ticks(4 if digits < 6 else 3),
        note=note,
    )


def _fit_axis(sides: Mapping[str, FloatArray]) -> Axis:
    """From near the bottom to the top, or near it where it is far off: a few strays must not squeeze the rest."""
    tails = {side: 0.05 if len(numbers) < 100 else 0.01 for side, numbers in sides.items()}
    low = min(float(np.quantile(numbers, tails[side])) for side, numbers in sides.items())
    near_top = max(float(np.quantile(numbers, 1 - tails[side])) for side, numbers in sides.items())
    top = max(float(numbers.max()) for numbers in sides.values())
    high = near_top if top - near_top > 0.5 * (near_top - low) > 0 else top
    pad = max(0.02 * (high - low), 1e-6 * max(abs(high), 1e-3))
    return Axis(low - pad, high + pad)


def _draw_row(side: str, numbers: FloatArray, axis: Axis, place: int, digits: int) -> Row:
    base = _TOP + _ROW_STEP * place + _ROW_HEIGHT
    median = float(np.median(numbers))
    counts, _ = np.histogram(np.clip(numbers, axis.low, axis.high), bins=_N_BINS, range=(axis.low, axis.high))
    is_few = len(numbers) <= _FEW
    return Row(
        side=side,
        label=f"{SIDES[side]}, {count_records(len(numbers))}",
        median=f"median {format_number(median, digits)}",
        median_x=axis.place(median),
        base_y=base,
        bars=() if is_few else draw_bars(counts / counts.max(), base, _ROW_HEIGHT - 12),
        dots=_stack_dots(counts, base) if is_few else (),
    )


def _stack_dots(counts: FloatArray, base: float) -> tuple[tuple[float, float], ...]:
    width = (WIDTH - 2 * EDGE) / len(counts)
    rise = min(7.0, (_ROW_HEIGHT - 14) / max(1, int(counts.max()) - 1)) if counts.max() > 1 else 0.0
    return tuple(
        (round(EDGE + (i + 0.5) * width, 2), round(base - 5 - level * rise, 2))
        for i, count in enumerate(counts.tolist())
        for level in range(int(count))
    )


def _compare_medians(sides: Mapping[str, FloatArray], digits: int) -> str:
    forget = float(np.median(sides["forget"]))
    other = "held_out" if "held_out" in sides else "retain"
    if other not in sides:
        return f"Half of the forget records lie above {format_number(forget, digits)}."
    control = float(np.median(sides[other]))
    side = "above" if forget > control else "below" if forget < control else "at"
    return (
        f"The middle forget record ({format_number(forget, digits)}) lies {side} the middle "
        f"{SIDES[other].lower()} record ({format_number(control, digits)})."
    )
