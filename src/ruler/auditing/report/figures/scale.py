"""What remains, on the scale from 0 (never seen) to 1 (trained on): rows with intervals, persons or records as dots."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ruler.auditing.findings import Remaining, Report
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.report.display import count_records
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Tick
from ruler.auditing.report.words import (
    FAMILIES,
    SCALES,
    bound_remaining,
    format_percent,
    format_remaining,
    list_metrics,
    name_verdict,
    title_contrast,
)
from ruler.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_FURTHEST = (-1.0, 2.0)  # beyond these, intervals are cut
_LEAST_AXIS = (-0.3, 1.2)
_STEPS = (0.25, 0.5, 1.0)
_MOST_TICKS = 7
_TOP = 52.0
_ROW = 50.0
_MOST_DOTS = 300
_N_BINS = 84
_MOST_RISE = 56.0
_LETTER = 3.1  # half the width of a letter
ORDER = ("residual", "displaced", "inconclusive", "erased")
"""Verdicts of persons and records, the gravest first."""

_RECORD_WORDS = {
    "residual": "stand out",
    "displaced": "stand out below",
    "inconclusive": "not settled one by one",
    "erased": "within the limit",
}


@dataclass(frozen=True)
class ScaleRow:
    """One amount with its interval.

    Args:
        label: What it is about.
        value: Amount and interval in words.
        tone: The verdict that colours it.
        y: Height of its bar.
        x: Where the amount lies; None if it is not known.
        whole: Ends of the two-sided interval.
        inner: Ends of the one-sided limits, which the verdict is read from.
        cut: Whether the interval goes on beyond the left and the right end of the drawing.
        words: The row for readers who cannot see the drawing.
    """

    label: str
    value: str
    tone: str
    y: float
    x: float | None
    whole: tuple[float, float]
    inner: tuple[float, float]
    cut: tuple[bool, bool]
    words: str


@dataclass(frozen=True)
class ScaleFigure:
    """Amounts on one scale.

    Args:
        band: Ends of the limit; None where there is no common one.
        base: Height of the axis.
        marks: What 0 and 1 are, as labels, and where they lie.
        sentence: What the axis says.
    """

    rows: tuple[ScaleRow, ...]
    band: tuple[float, float] | None
    limit: str
    base: float
    ticks: tuple[Tick, ...]
    marks: tuple[tuple[Tick, float], ...]
    sentence: str


@dataclass(frozen=True)
class StripFigure:
    """Persons or records along the scale.

    Args:
        dots: Place, height and verdict of each.
        counts: Each verdict with how many have it.
        note: What the drawing leaves out.
    """

    noun: str
    dots: tuple[tuple[float, float, str], ...]
    counts: tuple[tuple[str, str, float], ...]
    band: tuple[float, float]
    base: float
    ticks: tuple[Tick, ...]
    sentence: str
    note: str


def draw_scale(report: Report) -> ScaleFigure:
    """What the model says and what its layers hold."""
    found = [(FAMILIES["outputs"], report.outputs), (FAMILIES["layers"], report.layers)]
    is_left_out = {FAMILIES["layers"]: report.settings.scope == "outputs"}
    return _draw(
        [
            (label, one.verdict, f"{one.verdict}{', not asked' if is_left_out.get(label) else ''}", one.remaining)
            for label, one in found
        ],
        report.settings.limit,
        report,
        _fit_opening(report),
    )


def _fit_opening(report: Report) -> Axis:
    """One axis for the scale and for the strip below it."""
    table = report.records if report.groups is None else report.groups
    values = table["remaining"].to_numpy(np.float64) if "remaining" in table else np.zeros(0)
    known = [one.remaining for one in (report.outputs, report.layers) if one.remaining is not None]
    ends = [end for one in known for end in (one.low, one.high) if math.isfinite(end)]
    return fit_scale([*ends, *values[np.isfinite(values)].tolist()], report.settings.limit)


def draw_amounts(report: Report) -> ScaleFigure | None:
    """What remains by every deciding contrast on each of its scales; None if there are none."""
    rows = [
        (f"{title_contrast(metric.name)}, {SCALES[one.scale]}", metric.verdict, name_verdict(metric), one)
        for metric in list_metrics(report, is_deciding=True)
        for one in metric.remaining.values()
    ]
    return _draw(rows, report.settings.limit, report) if rows else None


def draw_across(reports: Mapping[str, Report]) -> ScaleFigure | None:
    """What remains in outputs and layers in each of several reports; None if nothing is known in any."""
    rows = [
        (f"{name}: {label.lower()}", one.verdict, one.verdict, one.remaining)
        for name, report in reports.items()
        for label, one in ((FAMILIES["outputs"], report.outputs), (FAMILIES["layers"], report.layers))
    ]
    if all(remaining is None for *_, remaining in rows):
        return None
    limits = {report.settings.limit for report in reports.values()}
    return _draw(rows, limits.pop() if len(limits) == 1 else None, None)


def _draw(
    rows: Sequence[tuple[str, str, str, Remaining | None]],
    limit: float | None,
    report: Report | None,
    axis: Axis | None = None,
) -> ScaleFigure:
    if axis is None:
        axis = fit_scale([end for *_, one in rows if one is not None for end in (one.low, one.high)], limit or 0.0)
    drawn = tuple(
        _draw_row(label, tone, verdict, one, axis, _TOP + _ROW * place)
        for place, (label, tone, verdict, one) in enumerate(rows)
    )
    known = None if report is None else report.given
    sources = {one.scale for *_, one in rows if one is not None}
    named = [
        ("original", known is not None and "original" in sources),
        ("members", known is not None and "members" in sources),
    ]
    seen = " or ".join(name for name, is_there in named if is_there)
    unseen = "never seen: oracle" if known is not None and known.oracle else "never seen"
    return ScaleFigure(
        rows=drawn,
        band=None if limit is None else (axis.place(-limit), axis.place(limit)),
        limit="" if limit is None else f"limit {format_percent(limit)}",
        base=_TOP + _ROW * (len(rows) - 1) + 26.0,
        ticks=_find_percents(axis),
        marks=tuple(
            (_label(axis.place(end), text), axis.place(end))
            for end, text in ((0.0, unseen), (1.0, f"trained on: {seen}" if seen else "trained on"))
        ),
        sentence=" ".join(row.words for row in drawn),
    )


def _draw_row(label: str, tone: str, verdict: str, remaining: Remaining | None, axis: Axis, y: float) -> ScaleRow:
    value = format_remaining(remaining)
    if remaining is None or not math.isfinite(remaining.value) or value == "not known":
        whole, x, cut = (axis.start, axis.stop), None, (False, False)
        inner = whole
    else:
        x = axis.place(remaining.value)
        whole = (axis.place(remaining.low), axis.place(remaining.high))
        inner = (axis.place(remaining.at_least), axis.place(remaining.at_most))
        cut = (remaining.low < axis.low, remaining.high > axis.high)
    words = f"{label}: {value}, {verdict}."
    if x is not None:
        bound = bound_remaining(remaining, "erased" if tone == "erased" else "inconclusive")
        words = f"{label}: {value}, {verdict}. {bound}."
    return ScaleRow(label, f"{value}, {verdict}", tone, y, x, whole, inner, cut, words)


def draw_strip(report: Report) -> StripFigure | None:
    """Persons, or else records, along the scale; None if none of them was measured."""
    table = report.records if report.groups is None else report.groups
    noun = "record" if report.groups is None else "group"
    if "remaining" not in table:
        return None
    verdicts = judge_rows(table, report.settings.limit)
    values = table["remaining"].to_numpy(np.float64)
    is_known = np.isfinite(values)
    if not is_known.any():
        return None
    chosen = _choose(values, verdicts)
    axis = _fit_opening(report)
    dots = _stack(values[chosen], [verdicts[row] for row in chosen], axis)
    counts = {word: sum(verdicts[row] == word for row in np.flatnonzero(is_known)) for word in ORDER}
    n_unknown, n_left = int((~is_known).sum()), int(is_known.sum()) - len(chosen)
    texts = [
        (word, f"{counts[word]:,} {_RECORD_WORDS[word] if noun == 'record' else word}")
        for word in ORDER
        if counts[word]
    ]
    notes = [f"{count_records(n_unknown, noun)} could not be measured." if n_unknown else ""]
    if noun == "record":
        n_above = int((table["low"] > report.settings.limit).sum())
        notes.append(
            f"One by one, {count_records(n_above, noun)} {'lies' if n_above == 1 else 'lie'} above the limit with the "
            "whole interval, not corrected for the number of records."
        )
    if n_left:
        notes.append(
            f"{len(chosen):,} of {count_records(int(is_known.sum()), noun)} are drawn, the gravest among them."
        )
    return StripFigure(
        noun=noun,
        dots=tuple(dots),
        counts=_place_key(texts),
        band=(axis.place(-report.settings.limit), axis.place(report.settings.limit)),
        base=max(y for _, y, _ in dots) + 6.0,
        ticks=_find_percents(axis),
        sentence=f"What remains in each {noun}, on the same scale: {', '.join(text for _, text in texts)}.",
        note=" ".join(filter(None, notes)),
    )


def judge_rows(table: "pd.DataFrame", limit: float) -> list[str]:
    """The verdict of each person, as the report has it; of records, residual or displaced if they stand out.

    A record whose interval lies inside the limit counts as erased, any other as inconclusive.
    """
    if "verdict" in table:
        return [str(verdict) for verdict in table["verdict"]]
    stands_out = ~table["finding"].isin([ALIKE, NOT_JUDGED])
    is_below = table["high"] < 0
    is_within = (table["low"] > -limit) & (table["high"] < limit)
    return [
        ("displaced" if below else "residual") if out else "erased" if within else "inconclusive"
        for out, below, within in zip(stands_out, is_below, is_within, strict=True)
    ]


def fit_scale(ends: Iterable[float], limit: float) -> Axis:
    """An axis that holds 0, 1, the limit and these values, as far as they are not too far off."""
    known = [min(max(end, _FURTHEST[0]), _FURTHEST[1]) for end in ends if math.isfinite(end)]
    low = min([_LEAST_AXIS[0], -limit - 0.1, *(end - 0.05 for end in known)])
    high = max([_LEAST_AXIS[1], *(end + 0.05 for end in known)])
    return Axis(low, high)


def _find_percents(axis: Axis) -> tuple[Tick, ...]:
    step = next((one for one in _STEPS if (axis.high - axis.low) / one <= _MOST_TICKS), _STEPS[-1])
    numbers = range(math.ceil(axis.low / step), math.floor(axis.high / step) + 1)
    return tuple(_label(axis.place(n * step), format_percent(n * step).replace("-", "\u2212")) for n in numbers)


def _label(at: float, text: str) -> Tick:
    half = _LETTER * len(text)
    anchor = "start" if at - half < EDGE else "end" if at + half > WIDTH - EDGE else "middle"
    return Tick({"start": EDGE, "end": WIDTH - EDGE, "middle": at}[anchor] if len(text) > 5 else at, text, anchor)


def _choose(values: FloatArray, verdicts: Sequence[str]) -> list[int]:
    """Rows to draw: the gravest, then others evenly over their values."""
    rows = [row for row, value in enumerate(values.tolist()) if math.isfinite(value)]
    grave = [row for row in rows if verdicts[row] in ORDER[:2]][:_MOST_DOTS]
    rest = sorted(set(rows) - set(grave), key=lambda row: float(values[row]))
    room = _MOST_DOTS - len(grave)
    if len(rest) > room:
        rest = [rest[int(place)] for place in np.linspace(0, len(rest) - 1, room)] if room else []
    return [*grave, *rest]


def _stack(values: FloatArray, verdicts: Sequence[str], axis: Axis) -> list[tuple[float, float, str]]:
    """Dots at their values, upon one another where they are close."""
    width = (axis.stop - axis.start) / _N_BINS
    places = [axis.place(value) for value in values.tolist()]
    bins = [int((x - axis.start) / width) for x in places]
    fullest = max(bins.count(one) for one in set(bins))
    rise = min(8.0, _MOST_RISE / max(1, fullest - 1))
    bottom = 34.0 + rise * (fullest - 1)
    level: dict[int, int] = {}
    dots = []
    for row in sorted(range(len(places)), key=lambda row: (ORDER.index(verdicts[row]), values[row]), reverse=True):
        own = level.get(bins[row], 0)
        level[bins[row]] = own + 1
        dots.append((places[row], round(bottom - rise * own, 2), verdicts[row]))
    return dots


def _place_key(texts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str, float], ...]:
    """Verdict, its text, and its place in the key."""
    found, x = [], EDGE
    for word, text in texts:
        found.append((word, text, round(x, 1)))
        x += 24.0 + 6.8 * len(text)
    return tuple(found)
