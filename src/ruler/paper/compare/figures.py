"""Tables of a comparison -> places on paper: what remains against what is kept and costs, layers, ranks."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ruler.auditing.report.display import count_records, format_number, format_p
from ruler.auditing.report.figures.axes import Axis, Tick
from ruler.stats.ranks import LEVEL, rank_within_blocks

if TYPE_CHECKING:
    import pandas as pd

LEFT, RIGHT, TOP, LOW = 52.0, 790.0, 30.0, 400.0  # of the drawing of points
_CHARACTER, _LINE = 6.7, 15.0  # of a label at 13 pixels
_RINGS = (11.0, 20.0, 32.0, 46.0, 62.0, 80.0, 100.0, 124.0)  # distances at which a label is tried
_ANGLES = (0, 180, 35, -35, 145, -145, 70, -70, 110, -110, 90, -90)
VERDICTS = ("erased", "inconclusive", "displaced", "residual", "damaged", "invalid", "failed")
_SMALL = {"left": 30.0, "right": 214.0, "top": 8.0, "low": 92.0}  # one of many drawings of layers
_AXIS = (230.0, 570.0)  # of ranks, between two columns of labels
REFERENCES = ("original", "retrain")


class Drawing(SimpleNamespace):
    """What a template reads, under the names that it spells."""


def find_tones(runs: "pd.DataFrame") -> dict[str, str]:
    """The most frequent verdict of each method, of equal ones the worse, by which figures are coloured."""
    found = {}
    for title, part in runs.groupby("title", sort=False):
        counts = part["verdict"].value_counts()
        found[str(title)] = max(counts.index, key=lambda verdict: (counts[verdict], VERDICTS.index(verdict)))
    return found


def draw_kept(table: "pd.DataFrame", tones: Mapping[str, str], kept: str) -> Drawing | None:
    """What remains against the accuracy that is kept: best is below and to the right."""
    rows = table.dropna(subset=["remaining", kept])
    if rows.empty:
        return None
    values = rows[kept].tolist()
    spread = max(0.04, 3 * (max(values) - float(np.median(values))))  # broken models would squeeze all others
    low = max(0.0, min(values) - 0.01, max(values) - spread)
    n_beyond = sum(one < low for one in values)
    note = f"{count_records(n_beyond, 'model')} below {low:.2f} at the left edge." if n_beyond else ""
    axis = Axis(low, min(1.0, max(values) + 0.01), LEFT, RIGHT)
    words = [f"accuracy {value:.3f}" for value in values]
    points = _draw_points(rows, tones, [axis.place(value) for value in values], words, best_x=1)
    return Drawing(**points, x_ticks=axis.find_ticks(), note=note, one=None)


def draw_cost(table: "pd.DataFrame", tones: Mapping[str, str]) -> Drawing | None:
    """What remains against cost, on a logarithmic scale with retraining, at ``one``: best is below and to the left."""
    rows = table[(table["cost"] > 0) & table["remaining"].notna()]
    if rows.empty:
        return None
    logs = list(map(math.log10, rows["cost"].tolist()))
    low, high = min(-1.0, math.floor(2 * min(logs)) / 2), max(0.3, max(logs) + 0.1)
    axis = Axis(low, high, LEFT, RIGHT)
    values = [factor * 10.0**power for power in range(math.floor(low), math.ceil(high)) for factor in (1, 2, 5)]
    known = [value for value in values if low <= math.log10(value) <= high]
    known = [value for value in known if high - low < 2 or f"{value:e}".startswith("1")]
    ticks = tuple(Tick(axis.place(math.log10(value)), f"{value:g}", "middle") for value in known)
    words = [f"cost {cost:.2g}" for cost in rows["cost"]]
    points = _draw_points(rows, tones, [axis.place(one) for one in logs], words, best_x=-1)
    return Drawing(**points, x_ticks=ticks, note="", one=axis.place(0.0))


def _draw_points(
    rows: "pd.DataFrame", tones: Mapping[str, str], places: Sequence[float], words: Sequence[str], *, best_x: int
) -> dict[str, Any]:
    """Methods as points, and the line through those that no other beats in both."""
    found = rows["remaining"].tolist()
    up = Axis(0.0, max(0.1, 1.1 * max(found)), LOW, TOP)
    dots = list(zip(places, map(up.place, found), strict=True))
    labels = place_labels(dots, rows["title"].tolist())
    marks = [
        Drawing(
            title=row["title"],
            tone=tones[row["title"]],
            is_reference=row["method"] in REFERENCES,
            x=x,
            y=y,
            label=label,
            words=f"{row['title']}: {row['remaining']:.3f} remains, {text}",
        )
        for row, (x, y), label, text in zip(rows.to_dict("records"), dots, labels, words, strict=True)
    ]
    best, frontier = -math.inf, []
    for x, y in sorted(dots, key=lambda dot: (-best_x * dot[0], -dot[1])):
        if y > best:  # lower on the page
            best = y
            frontier.append(f"{x} {y}")
    return {"marks": marks, "frontier": "M" + " L".join(frontier), "y_ticks": up.find_ticks()}


class Label(NamedTuple):
    """Where a label stands, and the line to it if it stands apart."""

    x: float
    y: float
    anchor: str
    leader: str


def place_labels(dots: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[Label]:
    """Where each label stands so that none covers another or a dot, as far as there is room.

    Example:
        >>> place_labels([(100.0, 100.0), (100.0, 100.0)], ["a", "b"])
        [Label(x=111.0, y=104.0, anchor='start', leader=''), Label(x=89.0, y=104.0, anchor='end', leader='')]
    """
    taken = [(x - 7, y - 7, x + 7, y + 7) for x, y in dots]
    found = []
    for (x, y), text in zip(dots, texts, strict=True):
        wide = _CHARACTER * len(text)
        tries: list[tuple[int, int, tuple[float, float, float, float], float, float, str]] = []
        for ring, angle in product(_RINGS, _ANGLES):
            dx, dy = ring * math.cos(math.radians(angle)), ring * math.sin(math.radians(angle))
            anchor = "middle" if abs(angle) == 90 else "start" if dx > 0 else "end"
            left = x + dx - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
            box = (left, y + dy - _LINE / 2, left + wide, y + dy + _LINE / 2)
            is_inside = box[0] > LEFT and box[2] < RIGHT + 10 and box[1] > TOP - 8 and box[3] < LOW - 2
            n_covered = sum(
                box[0] < right and start < box[2] and box[1] < low and top < box[3] for start, top, right, low in taken
            )
            tries.append((n_covered + 3 * (not is_inside), len(tries), box, dx, dy, anchor))
        _, _, box, dx, dy, anchor = min(tries)
        taken.append(box)
        leader = f"M{x} {y}L{x + 0.85 * dx:.1f} {y + 0.85 * dy:.1f}" if math.hypot(dx, dy) > _RINGS[1] else ""
        found.append(Label(round(x + dx, 1), round(y + dy + 4, 1), anchor, leader))
    return found


def draw_layers(runs: "pd.DataFrame", tones: Mapping[str, str]) -> Drawing | None:
    """M2's effect by layer and method on one scale: each run, their mean, and the original's mean."""
    read = runs[runs["layers"] != ""].to_dict("records")
    known = [(str(run["title"]), run["method"], json.loads(run["layers"])) for run in read]
    layers = tuple(known[0][2]) if known else ()
    known = [one for one in known if tuple(one[2]) == layers]
    if len(layers) < 2:
        return None
    values = {title: np.array([[*one.values()] for name, _, one in known if name == title]) for title, _, _ in known}
    reach = min(0.5, max(0.1, 1.05 * max(float(np.abs(table - 0.5).max()) for table in values.values())))
    up = Axis(0.5 - reach, 0.5 + reach, _SMALL["low"], _SMALL["top"])
    across = Axis(0.0, len(layers) - 1.0, _SMALL["left"], _SMALL["right"])

    def trace(row: Sequence[float]) -> str:
        return "M" + " L".join(f"{across.place(depth)} {up.place(value)}" for depth, value in enumerate(row))

    first = next((title for title, method, _ in known if method == "original"), None)
    before = trace(values[first].mean(axis=0)) if first is not None else ""
    profiles = [
        Drawing(
            title=title,
            tone=tones[title],
            runs=list(map(trace, table)),
            mean=trace(table.mean(axis=0)),
            original="" if title == first else before,
            words=", ".join(f"{name} {value:.2f}" for name, value in zip(layers, table.mean(axis=0), strict=True)),
        )
        for title, table in values.items()
    ]
    ticks = tuple(Tick(up.place(at), f"{at:.2f}".rstrip("0"), "end") for at in (0.5 - reach, 0.5, 0.5 + reach))
    return Drawing(profiles=profiles, layers=layers, ticks=ticks, middle=up.place(0.5))


def draw_ranks(
    values: "pd.DataFrame", tones: Mapping[str, str], heading: str, blocks: str, *, is_less_better: bool = True
) -> Drawing | None:
    """A critical-difference diagram: methods at their mean ranks, bars over those that do not differ.

    Args:
        values: One row per block, one column per method by its title; methods that lack a block are left out.
        tones: By title.
        heading: What is ranked.
        blocks: What a block is, in the plural.
        is_less_better: Whether rank 1 is the smallest value.

    Returns:
        Among others ``margin``, what the longest label needs beyond the drawing, on either side.
    """
    table = values.dropna(axis="columns")
    if table.shape[1] < 2 or not len(table):
        return None
    found = rank_within_blocks(table.to_numpy() if is_less_better else -table.to_numpy())
    titles = [str(title) for title in table.columns]
    axis, groups = Axis(1.0, float(len(titles)), *_AXIS), found.list_groups()
    base = 58.0 + 7 * len(groups)
    order = np.argsort(found.ranks, kind="stable").tolist()
    half = (len(order) + 1) // 2
    entries = []
    for place, one in enumerate(order):
        title, rank, is_left = titles[one], f"{found.ranks[one]:.1f}", place < half
        y = base + 12 + 18.0 * (place if is_left else len(order) - 1 - place)
        text = f"{title} {rank}" if is_left else f"{rank} {title}"
        x, tone = axis.place(found.ranks[one]), tones.get(title, "")
        entries.append(Drawing(title=title, tone=tone, x=x, y=y, is_left=is_left, text=text))
    bars = tuple(
        (axis.place(found.ranks[group[0]]) - 3, axis.place(found.ranks[group[-1]]) + 3, 50.0 + 7 * line)
        for line, group in enumerate(groups)
    )
    step = max(1, math.ceil(len(titles) / 10))
    ticks = tuple(Tick(axis.place(rank), str(rank), "middle") for rank in range(1, len(titles) + 1, step))
    has_test = not math.isnan(found.critical_difference)
    width = (_AXIS[1] - _AXIS[0]) / (len(titles) - 1) * found.critical_difference if has_test else None
    absent = ", ".join(str(title) for title in values.columns if title not in table.columns)
    left_out = f" Not ranked, since a number is missing: {absent}." if absent else ""
    return Drawing(
        heading=heading,
        entries=entries,
        bars=bars,
        ticks=ticks,
        difference=width,
        base=base,
        height=base + 12 + 18.0 * half,
        margin=max(0.0, _CHARACTER * max(len(one.text) for one in entries) - (_AXIS[0] - 24)),
        p_value=found.p_value,
        sentence=_say_ranks(found.p_value, found.critical_difference, found.n_blocks, blocks) + left_out,
    )


def _say_ranks(p_value: float, difference: float, n_blocks: int, blocks: str) -> str:
    if math.isnan(p_value):
        return f"Ranks of {n_blocks} {blocks}: a test needs at least two, and three methods."
    verb = "differ" if p_value <= LEVEL else "cannot be told apart"
    return (
        f"Over {n_blocks} {blocks} the methods {verb} (Friedman p {format_p(p_value)}). Two of them differ if their "
        f"mean ranks are more than {format_number(difference, 1)} apart (Nemenyi, 5% for all pairs together); bars "
        "join those that do not."
    )
