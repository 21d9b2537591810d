"""Ink: the figures of clinical text and faces."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.core.optional import load_optional
from ruler.paper.figures.style import colour_of, draw_null, name_ticks, new_figure
from ruler.paper.names import name_draw, rank_of, title_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANELS = {"a": ("signed calibration gap $M_2$", 0.0), "b": ("percentile rank $M_4$", 0.5)}
_INK, _BAND = "#111111", "#BBBBBB"
_PUBLISHED: dict[str, Any] = {"marker": "_", "color": _INK, "linewidths": 1.4, "s": 70, "zorder": 4}
_HELD_OUT = "#009E73"


def draw_by_fraction(points: "pd.DataFrame") -> "Figure":
    """M2 and M4 by forget fraction and method: a dot a seed, a bar their mean, a diamond before unlearning."""
    figure = new_figure(6.8, 3.1)
    methods = _order(points, "method")
    for axes, (panel, (label, null)) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        part = points[points["panel"] == panel]
        draw_null(axes, null)
        for place, fraction in enumerate(_order(points, "forget_fraction")):
            _draw_methods(axes, part[part["forget_fraction"] == fraction], methods, place)
        names = [f"{100 * fraction:g}%" for fraction in _order(points, "forget_fraction")]
        name_ticks(axes, range(len(names)), names)
        axes.set_xlabel("forget fraction")
        axes.set_ylabel(label)
        axes.set_title(f"({panel})")
    _add_legend(figure, methods, has_published=bool(points["paper"].notna().any()))
    return figure


def draw_face_controls(points: "pd.DataFrame") -> "Figure":
    """M4 of forgotten identities in original and oracle beside held-out identities and placebo sets."""
    places = sorted(
        set(zip(points["forget_choice"], points["forget_fraction"], strict=True)),
        key=lambda place: (rank_of("forget_choice", place[0]), place[1]),
    )
    figure = new_figure(max(1.1 * len(places) + 1.6, 5.2), 3.3)
    axes = figure.subplots()
    axes.use_sticky_edges = False  # bands end inside the axes
    draw_null(axes, 0.5)
    names = []
    for x, (choice, fraction) in enumerate(places):
        part = points[(points["forget_choice"] == choice) & (points["forget_fraction"] == fraction)]
        _draw_controls(axes, part, x)
        name = name_draw(choice, fraction)
        lines = [f"random, {name}" if choice == "random" else name, *part["identities"].iloc[0].split(", ")]
        names.append("\n".join(lines))
    name_ticks(axes, range(len(places)), names)
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.set_xlabel("identities forgotten")
    axes.set_ylabel(_PANELS["b"][0])
    handles = [
        _handle("original", colour_of("original"), "D"),
        _handle("oracle: never trained on them", colour_of("oracle"), "o"),
        _handle("held-out identities", _HELD_OUT, "^"),
        _handle("95% of placebo sets", _BAND, "s"),
        _handle("paper, original", _INK, "_"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _order(points: "pd.DataFrame", key: str) -> list[Any]:
    return sorted(points[key].unique().tolist(), key=lambda value: (value != "original", rank_of(key, value)))


def _draw_methods(axes: "Axes", points: "pd.DataFrame", methods: list[Any], place: int) -> None:
    step = 0.8 / max(len(methods), 1)
    for index, method in enumerate(methods):
        x = place + (index - (len(methods) - 1) / 2) * step
        part = points[points["method"] == method]
        _draw_seeds(axes, part["value"], x, colour_of(method), _mark_of(method), 0.3 * step)
        _draw_published(axes, part, x)


def _draw_seeds(axes: "Axes", values: "pd.Series[float]", x: float, colour: str, marker: str, jitter: float) -> None:
    """Single seeds, faint, and their mean."""
    if values.empty:
        return
    spread = np.linspace(-jitter, jitter, len(values)) if len(values) > 1 else np.zeros(1)
    axes.scatter(x + spread, values, s=6, color=colour, alpha=0.5, linewidths=0, zorder=2)
    axes.scatter([x], [values.mean()], s=26, marker=marker, color=colour, edgecolors=_INK, linewidths=0.5, zorder=3)


def _draw_published(axes: "Axes", points: "pd.DataFrame", x: float) -> None:
    means = points["paper"].dropna().unique()
    if len(means):
        axes.scatter([x] * len(means), means, **_PUBLISHED)


def _draw_controls(axes: "Axes", points: "pd.DataFrame", x: int) -> None:
    means = points.groupby("metric")["value"].mean()
    if {"m4_placebo_low", "m4_placebo_high"} <= set(means.index):
        low, high = means["m4_placebo_low"], means["m4_placebo_high"]
        axes.bar(x, high - low, bottom=low, width=0.8, color=_BAND, alpha=0.45, linewidth=0, zorder=0)
    if "m4_placebo" in means.index:
        axes.hlines(means["m4_placebo"], x - 0.4, x + 0.4, color="#777777", linewidth=1.0, zorder=1)
    ranks = points[points["metric"] == "m4"]
    for offset, method, marker in ((-0.24, "original", "D"), (0.0, "oracle", "o")):
        part = ranks[ranks["method"] == method]
        _draw_seeds(axes, part["value"], x + offset, colour_of(method), marker, 0.05)
        _draw_published(axes, part, x + offset)
    held_out = points.loc[points["metric"] == "m4_held_out", "value"]
    _draw_seeds(axes, held_out, x + 0.24, _HELD_OUT, "^", 0.05)


def _handle(label: str, colour: str, marker: str) -> Any:
    lines = load_optional("matplotlib.lines", "drawing figures")
    edge = {"markeredgecolor": _INK, "markeredgewidth": 0.5} if marker != "_" else {"markeredgewidth": 1.4}
    return lines.Line2D([], [], color=colour, marker=marker, markersize=5, linestyle="", label=label, **edge)


def _add_legend(figure: "Figure", methods: list[Any], *, has_published: bool) -> None:
    handles = [
        _handle("before unlearning" if name == "original" else title_of(name), colour_of(name), _mark_of(name))
        for name in methods
    ]
    handles += [_handle("paper", _INK, "_")] if has_published else []
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


def _mark_of(method: str) -> str:
    return "D" if method == "original" else "o"
