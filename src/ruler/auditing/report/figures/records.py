"""Where the forget, held-out and retain records lie: per-record scores, ranks of M4, and the layer in a plane."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ruler.auditing.findings import Distributions, Plane
from ruler.auditing.report.display import choose_digits, count_records, format_number
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Tick
from ruler.core.types import FloatArray

SIDES = {"forget": "Forget", "held_out": "Held-out", "retain": "Retain"}
_N_BINS = 40
_FEW = 40
_ROW_HEIGHT = 44.0
_ROW_STEP = 78.0
_TOP = 24.0
_RANK_BASE = 180.0
_RANK_HEIGHT = 140.0
_PLANE_TOP = 34.0
_PLANE_BASE = 314.0
_MARKS = {"retain": "h0", "held_out": "m-3 0h6m-3-3v6", "forget": "h0"}  # dots by round caps, crosses by two lines


Bar = tuple[float, float, float, float]
"""x, y, width and height of a rectangle."""


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
    """One row per side, above one another on one scale; ``note`` says what the drawing leaves out."""

    name: str
    title: str
    sentence: str
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    note: str


@dataclass(frozen=True)
class RankFigure:
    """Percentile ranks: bars for forget records, an outline for held-out ones, a line where all ranks are alike."""

    sentence: str
    bars: tuple[Bar, ...]
    outline: str
    uniform_y: float
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Marks:
    """The records of one side in a plane, as one path."""

    side: str
    label: str
    glyph: str
    path: str


@dataclass(frozen=True)
class PlaneFigure:
    """Records in two dimensions, the side that the audit is about on top."""

    title: str
    sentence: str
    note: str
    marks: tuple[Marks, ...]


def draw_distributions(name: str, title: str, values: Mapping[str, FloatArray]) -> DistributionFigure | None:
    """Where the values of each side lie; None where there are none. ``name`` is for the ids of the page's elements."""
    sides = {side: _keep_finite(values[side]) for side in SIDES if side in values}
    sides = {side: numbers for side, numbers in sides.items() if len(numbers)}
    if "forget" not in sides:
        return None
    axis = _fit_axis(sides)
    pooled = np.concatenate(list(sides.values()))
    digits = choose_digits(pooled)
    rows = tuple(_draw_row(side, numbers, axis, place, digits) for place, (side, numbers) in enumerate(sides.items()))
    outside = (
        (int((pooled < axis.low).sum()), "below", "left"),
        (int((pooled > axis.high).sum()), "above", "right"),
    )
    return DistributionFigure(
        name=name,
        title=title,
        sentence=_compare_medians(sides, digits),
        rows=rows,
        ticks=axis.find_ticks(4 if digits < 6 else 3),
        note=" ".join(
            f"{count_records(n)} {where} the axis {'is' if n == 1 else 'are'} drawn at its {edge} edge."
            for n, where, edge in outside
            if n
        ),
    )


def draw_ranks(distributions: Distributions) -> RankFigure | None:
    """How the percentile ranks spread over 0 to 1; None where there are none."""
    counts = {side: _keep_finite(values) for side, values in distributions.rank_counts.items()}
    shares = {side: values / values.sum() for side, values in counts.items() if values.sum()}
    if "forget" not in shares:
        return None
    top = max(float(values.max()) for values in shares.values())
    n_bins = len(counts["forget"])
    middle = counts["forget"][n_bins // 2] / 2 if n_bins % 2 else 0
    n_upper = float(counts["forget"][math.ceil(n_bins / 2) :].sum() + middle)
    closer = round(100 * n_upper / float(counts["forget"].sum()))
    return RankFigure(
        sentence=f"{closer}% of the forget records lie closer to their nearest retain record than the median retain "
        "record does to its own.",
        bars=_draw_bars(shares["forget"] / top, _RANK_BASE, _RANK_HEIGHT),
        outline=_draw_outline(shares["held_out"] / top) if "held_out" in shares else "",
        uniform_y=round(_RANK_BASE - _RANK_HEIGHT / (n_bins * top), 2),
        ticks=Axis(0.0, 1.0).find_ticks(5),
    )


def draw_plane(plane: Plane | None) -> PlaneFigure | None:
    """The records of a layer in two dimensions; None where there are none."""
    sides = {side: plane.points[side] for side in _MARKS if len(plane.points.get(side, ()))} if plane else {}
    if plane is None or "forget" not in sides:
        return None
    pooled = np.concatenate(list(sides.values()))
    across, up = (
        _fit_axis({side: places[:, column] for side, places in sides.items()}, low, high)
        for column, low, high in ((0, EDGE, WIDTH - EDGE), (1, _PLANE_BASE, _PLANE_TOP))
    )
    edges = np.array([[across.low, up.low], [across.high, up.high]])
    n_outside = int(((pooled < edges[0]) | (pooled > edges[1])).any(axis=1).sum())
    where = f"layer {plane.layer}" if plane.layer else "the layer that was read"
    first, second = (f"{100 * share:.1f}%" for share in plane.shares)
    return PlaneFigure(
        title=f"The records at {where}, in two dimensions",
        sentence=f"Each mark is a record, placed to the right and upwards by the two directions in which the records "
        f"drawn here vary most: they hold {first} and {second} of the variance.",
        note=f"{count_records(n_outside)} beyond the frame {'is' if n_outside == 1 else 'are'} drawn at its edge."
        if n_outside
        else "",
        marks=tuple(
            Marks(
                side,
                f"{SIDES[side]}, {len(places):,}",
                _MARKS[side],
                "".join(f"M{across.place(x):g} {up.place(y):g}{_MARKS[side]}" for x, y in places.tolist()),
            )
            for side, places in sides.items()
        ),
    )


def _keep_finite(values: FloatArray) -> FloatArray:
    numbers = np.asarray(values, dtype=np.float64)
    return numbers[np.isfinite(numbers)]


def _fit_axis(sides: Mapping[str, FloatArray], start: float = EDGE, stop: float = WIDTH - EDGE) -> Axis:
    """From near the bottom to the top, or near it where it is far off: a few strays must not squeeze the rest."""
    tails = {side: 0.05 if len(numbers) < 100 else 0.01 for side, numbers in sides.items()}
    low = min(float(np.quantile(numbers, tails[side])) for side, numbers in sides.items())
    near_top = max(float(np.quantile(numbers, 1 - tails[side])) for side, numbers in sides.items())
    top = max(float(numbers.max()) for numbers in sides.values())
    high = near_top if top - near_top > 0.5 * (near_top - low) > 0 else top
    pad = max(0.02 * (high - low), 1e-6 * max(abs(high), 1e-3))
    return Axis(low - pad, high + pad, start, stop)


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
        bars=() if is_few else _draw_bars(counts / counts.max(), base, _ROW_HEIGHT - 12),
        dots=_stack_dots(counts, base) if is_few else (),
    )


def _draw_bars(shares: FloatArray, base: float, height: float) -> tuple[Bar, ...]:
    """Bars side by side across the drawing; a share of 1 is as high as ``height``."""
    width = (WIDTH - 2 * EDGE) / len(shares)
    return tuple(
        (round(EDGE + i * width, 2), round(base - share * height, 2), round(width, 2), round(share * height, 2))
        for i, share in enumerate(shares.tolist())
        if share > 0
    )


def _draw_outline(shares: FloatArray) -> str:
    width = (WIDTH - 2 * EDGE) / len(shares)
    steps = "".join(
        f"V{_RANK_BASE - share * _RANK_HEIGHT:.2f}H{EDGE + (i + 1) * width:.2f}"
        for i, share in enumerate(shares.tolist())
    )
    return f"M{EDGE:g} {_RANK_BASE:g}{steps}V{_RANK_BASE:g}"


def _stack_dots(counts: FloatArray, base: float) -> tuple[tuple[float, float], ...]:
    width = (WIDTH - 2 * EDGE) / len(counts)
    rise = min(7.0, (_ROW_HEIGHT - 14) / max(1, int(counts.max()) - 1))
    return tuple(
        (round(EDGE + (i + 0.5) * width, 2), round(base - 5 - level * rise, 2))
        for i, count in enumerate(counts.tolist())
        for level in range(int(count))
    )


def _compare_medians(sides: Mapping[str, FloatArray], digits: int) -> str:
    forget = float(np.median(sides["forget"]))
    other = next((side for side in ("held_out", "retain") if side in sides), None)
    if other is None:
        return f"Half of the forget records lie above {format_number(forget, digits)}."
    control = float(np.median(sides[other]))
    side = "above" if forget > control else "below" if forget < control else "at"
    return (
        f"The median forget record ({format_number(forget, digits)}) lies {side} the median "
        f"{SIDES[other].lower()} record ({format_number(control, digits)})."
    )
