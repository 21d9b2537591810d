"""Ink: a figure's numbers as a matplotlib figure."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.optional import load_optional
from ruler.paper.results import rank_condition, split_by, title_of
from ruler.unlearning import METHODS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REFERENCES = {"oracle": "#999999", "original": "#CC79A7"}  # Okabe and Ito's palette, as the methods
_OTHER, _HELD_OUT, _INK, _BAND = "#444444", "#009E73", "#111111", "#BBBBBB"
_NULL_LINE: dict[str, Any] = {"color": "#222222", "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 1}
_PASS_WINDOW = 0.05
_ENOUGH_FOR_A_BOX = 5  # quartiles of fewer values are the values themselves
_LEGEND_WIDTH = 5.2
_M2_LABEL, _M3_LABEL = "signed calibration gap $M_2$", "representation shift $M_3$"
_M4_LABEL, _MIA_LABEL = "percentile rank $M_4$", "MIA accuracy"
_MARKS = {"original": "D"}  # of all others "o"
Samples = dict[str, npt.NDArray[Any]]


def draw_figure_1(points: "pd.DataFrame") -> "Figure":
    """Outputs pass, representations do not: MIA beside M2."""
    figure = _new_figure(6.8, 2.7)
    panels = _make_panels(figure, points, "panel", {"a": 5, "b": 4})
    if "a" in panels:
        axes, shown = panels["a"]
        axes.axhspan(0.5 - _PASS_WINDOW, 0.5 + _PASS_WINDOW, color="#000000", alpha=0.07, linewidth=0, zorder=0)
        _draw_panel(axes, shown, 0.5, "(a) output level (grey: pass window)", _MIA_LABEL)
    if "b" in panels:
        _draw_panel(*panels["b"], 0.0, "(b) representation level", _M2_LABEL)
    return figure


def draw_figure_3(points: "pd.DataFrame") -> "Figure":
    """M4 of five methods at each forget fraction, marked by their tests against Bad Teacher."""
    figure = _new_figure(6.8, 2.9)
    widths = dict.fromkeys(_order(points, "forget_fraction"), 1)
    for fraction, (axes, part) in _make_panels(figure, points, "forget_fraction", widths, is_shared=True).items():
        _draw_panel(axes, part, 0.5, f"forget fraction {100 * fraction:g}%", "")
        for place, method in enumerate(_order(part, "method")):  # at the top edge, which is lifted above the data
            p_value = float(part.loc[part["method"] == method, "p_against_bad_teacher"].iloc[0])
            if not np.isnan(p_value):
                # The paper prints p = 0.010, an exact test's 0.0098, as two stars.
                mark = "**" if p_value <= 0.01 else "*" if p_value < 0.05 else "ns"
                axes.text(place, 0.985, mark, transform=axes.get_xaxis_transform(), ha="center", va="top")
    first = figure.axes[0]
    low, high = first.get_ylim()
    first.set_ylim(low, high + 0.1 * (high - low))
    first.set_ylabel(_M4_LABEL)
    return figure


def draw_figure_5(points: "pd.DataFrame") -> "Figure":
    """M2 between independent oracles beside M2 of the methods, each on its own scale."""
    figure = _new_figure(6.8, 2.8)
    panels = _make_panels(figure, points, "panel", {"a": 2, "b": 5})
    if "a" in panels:
        _draw_panel(*panels["a"], 0.0, "pairs of independent oracles", _M2_LABEL)
        panels["a"][0].set(xlim=(-0.7, 0.7), xticks=[])
    if "b" in panels:
        axes, methods = panels["b"]
        end, label = (", on a finer scale", "") if "a" in panels else ("", _M2_LABEL)
        _draw_panel(axes, methods, 0.0, f"unlearning methods{end}", label)
        _zoom_to_whiskers(axes, _split(methods))
    return figure


def draw_figure_6(points: "pd.DataFrame") -> "Figure":
    """M3 by dataset (columns) and forget fraction (rows)."""
    fractions, datasets = _order(points, "forget_fraction"), _order(points, "dataset")
    figure = _new_figure(max(1.15 * len(datasets), _LEGEND_WIDTH), 1.55 * len(fractions) + 0.5)
    grid = figure.subplots(len(fractions), len(datasets), squeeze=False)
    for row, fraction in zip(grid, fractions, strict=True):
        for axes, dataset in zip(row, datasets, strict=True):
            _draw_small(axes, points[(points["forget_fraction"] == fraction) & (points["dataset"] == dataset)], 0.0)
        row[0].set_ylabel(f"forget fraction {100 * fraction:g}%")
    for axes, dataset in zip(grid[0], datasets, strict=True):
        axes.set_title(title_of(dataset))
    figure.align_ylabels(grid[:, 0])
    _label_grid(figure, points, _M3_LABEL)
    return figure


def draw_figure_7(points: "pd.DataFrame") -> "Figure":
    """M4 by dataset, the oracle beside the methods."""
    datasets = _order(points, "dataset")
    n_columns = min(5, len(datasets))
    n_rows = -(-len(datasets) // n_columns)
    figure = _new_figure(max(1.5 * n_columns, _LEGEND_WIDTH), 1.55 * n_rows + 0.4)
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, dataset in zip_longest(grid, datasets):
        _draw_small(axes, points[points["dataset"] == dataset], 0.5)
        axes.set_title(title_of(dataset) if dataset else "")
    _label_grid(figure, points, _M4_LABEL)
    return figure


def draw_by_fraction(points: "pd.DataFrame") -> "Figure":
    """M2 and M4 by forget fraction and method: small dots are seeds, large ones their mean, a diamond the original."""
    figure = _new_figure(6.8, 3.1)
    methods, fractions = _order(points, "method"), _order(points, "forget_fraction")
    step = 0.8 / max(len(methods), 1)
    titles = {"a": (_M2_LABEL, 0.0), "b": (_M4_LABEL, 0.5)}
    for panel, (axes, shown) in _make_panels(figure, points, "panel", {"a": 1, "b": 1}).items():
        label, null = titles[panel]
        axes.axhline(null, **_NULL_LINE)
        for place, fraction in enumerate(fractions):
            for index, method in enumerate(methods):
                x = place + (index - (len(methods) - 1) / 2) * step
                part = shown[(shown["forget_fraction"] == fraction) & (shown["method"] == method)]
                _draw_seeds(axes, part, x, colour_of(method), _MARKS.get(method, "o"), 0.3 * step)
        _name_ticks(axes, [f"{100 * fraction:g}%" for fraction in fractions])
        axes.set(xlabel="forget fraction", ylabel=label, title=f"({panel})")
    paper = [_handle("paper", _INK, "_")] if points["paper"].notna().any() else []
    _add_legend(figure, [_handle_of(name, _MARKS.get(name, "o")) for name in methods] + paper, 4)
    return figure


def draw_language_layers(points: "pd.DataFrame") -> "Figure":
    """M2's effect in every layer by method, one panel per forget fraction: a line is the mean over seeds."""
    widths, methods = dict.fromkeys(_order(points, "forget_fraction")[::-1], 1), _order(points, "method")
    figure = _new_figure(2.4 * len(widths) + 1.2, 3.1)
    for fraction, (axes, shown) in _make_panels(figure, points, "forget_fraction", widths, is_shared=True).items():
        axes.axhline(0.5, **_NULL_LINE)
        for method in methods:
            means = shown[shown["method"] == method].groupby("layer")["value"].mean()
            axes.plot(means.index + 1, means, color=colour_of(method), linewidth=1.1)
        axes.set(title=f"forget {100 * fraction:g}%", xlabel="layer")
    figure.axes[0].set_ylabel("M2: AUC of forget against held-out")
    _add_legend(figure, [_handle_of(name, "_") for name in methods], 4)
    return figure


def draw_face_controls(points: "pd.DataFrame") -> "Figure":
    """M4 of forgotten identities in original and oracle beside held-out identities and placebo sets."""
    places = list(split_by(points, "forget_choice", "forget_fraction"))
    figure = _new_figure(max(1.1 * len(places) + 1.6, 5.2), 3.3)
    axes = figure.subplots()
    axes.use_sticky_edges = False  # bands end inside the axes
    axes.axhline(0.5, **_NULL_LINE)
    names = []
    for x, (keys, part) in enumerate(places):
        _draw_controls(axes, part, x)
        is_random = keys["forget_choice"] == "random"
        name = f"random, {100 * keys['forget_fraction']:g}%" if is_random else title_of(keys["forget_choice"])
        names.append("\n".join([name, *part["identities"].iloc[0].split(", ")]))
    _name_ticks(axes, names)
    axes.set(xlim=(-0.6, len(places) - 0.4), xlabel="identities forgotten", ylabel=_M4_LABEL)
    handles = [
        _handle("original", colour_of("original"), "D"),
        _handle("oracle: never trained on them", colour_of("oracle"), "o"),
        _handle("held-out identities", _HELD_OUT, "^"),
        _handle("95% of placebo sets", _BAND, "s"),
        _handle("paper, original", _INK, "_"),
    ]
    _add_legend(figure, handles, 3)
    return figure


def colour_of(method: str) -> str:
    """The colour of a method or of a reference model.

    Example:
        >>> colour_of("scrub"), colour_of("oracle")
        ('#0072B2', '#999999')
    """
    return METHODS[method].colour if method in METHODS else _REFERENCES.get(method, _OTHER)


def _new_figure(width: float, height: float) -> "Figure":
    """An empty figure, sized in inches, without any window or pyplot state."""
    module = load_optional("matplotlib.figure", "drawing figures")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure


def _make_panels(
    figure: "Figure", points: "pd.DataFrame", key: str, widths: Mapping[Any, int], *, is_shared: bool = False
) -> "dict[Any, tuple[Axes, pd.DataFrame]]":
    """Axes side by side, of one scale if asked, for the values of a key that have points, each with its points."""
    parts = {value: points[points[key] == value] for value in widths if (points[key] == value).any()}
    ratios = [widths[value] for value in parts]
    axes = figure.subplots(1, len(parts), squeeze=False, sharey=is_shared, width_ratios=ratios)[0]
    return dict(zip(parts, zip(axes, parts.values(), strict=True), strict=True))


def _order(points: "pd.DataFrame", key: str) -> list[Any]:
    return sorted(points[key].unique().tolist(), key=lambda value: rank_condition({key: value}))


def _split(points: "pd.DataFrame") -> Samples:
    return {name: points.loc[points["method"] == name, "value"].to_numpy() for name in _order(points, "method")}


def _draw_panel(axes: "Axes", points: "pd.DataFrame", null: float, title: str, label: str) -> None:
    samples = _split(points)
    _draw_boxes(axes, samples, null, width=0.62)
    _name_ticks(axes, [title_of(name, is_short=True) for name in samples])
    axes.set(title=title, ylabel=label)


def _draw_small(axes: "Axes", points: "pd.DataFrame", null: float) -> None:
    """Boxes without names on small axes, which are hidden where there is nothing to show."""
    _draw_boxes(axes, _split(points), null, width=0.7)
    axes.set_xticks([])
    axes.locator_params(axis="y", nbins=4)
    axes.ticklabel_format(axis="y", scilimits=(-3, 3), useMathText=True)
    axes.yaxis.get_offset_text().set_fontsize(6.0)
    axes.set_visible(len(points) > 0)


def _draw_boxes(axes: "Axes", samples: Samples, null: float, *, width: float) -> None:
    """A box per method (median, quartiles, whiskers to 1.5 IQR) over its single values, at 0, 1, ..."""
    axes.axhline(null, **_NULL_LINE)
    jitter = np.random.RandomState(0)
    for place, (method, drawn) in enumerate(samples.items()):
        colour, values = colour_of(method), np.asarray(drawn, dtype=np.float64)
        lines = {"color": colour, "linewidth": 0.9}
        offsets = jitter.uniform(-0.38 * width, 0.38 * width, size=len(values))
        if len(values) < _ENOUGH_FOR_A_BOX:
            axes.scatter(np.full(len(values), place), values, s=16, color=colour, zorder=3)
            continue
        axes.scatter(place + offsets, values, s=2.5, color=colour, alpha=0.45, linewidths=0, zorder=2)
        axes.boxplot(
            [values],
            positions=[place],
            widths=width,
            showfliers=False,
            manage_ticks=False,
            patch_artist=True,
            boxprops={"facecolor": colour + "40", "edgecolor": colour, "linewidth": 0.9},
            medianprops={"color": _INK, "linewidth": 1.1},
            whiskerprops=lines,
            capprops=lines,
            zorder=3,
        )
    axes.set_xlim(-0.6, max(len(samples), 1) - 0.4)


def _zoom_to_whiskers(axes: "Axes", samples: Samples) -> None:
    boxes = load_optional("matplotlib.cbook", "drawing figures").boxplot_stats(list(samples.values()))
    ends = [float(box[end]) for box in boxes for end in ("whislo", "whishi")]
    margin = 0.12 * (max(ends) - min(ends)) or 1e-6
    low, high = min(*ends, 0.0) - margin, max(*ends, 0.0) + margin
    axes.set_ylim(low, high)
    values = np.concatenate(list(samples.values()))
    n_outside = int(((values < low) | (values > high)).sum())
    if n_outside:
        note = f"{n_outside} of {len(values)} values off scale"
        axes.text(0.99, 0.02, note, transform=axes.transAxes, ha="right", va="bottom", fontsize=6.5)


def _draw_seeds(axes: "Axes", points: "pd.DataFrame", x: float, colour: str, marker: str, jitter: float) -> None:
    """Single seeds, faint, their mean, and the published ones."""
    values, means = points["value"], points["paper"].dropna().unique()
    if len(values):
        spread = np.linspace(-jitter, jitter, len(values)) if len(values) > 1 else np.zeros(1)
        axes.scatter(x + spread, values, s=6, color=colour, alpha=0.5, linewidths=0, zorder=2)
        axes.scatter([x], [values.mean()], s=26, marker=marker, color=colour, edgecolors=_INK, linewidths=0.5, zorder=3)
    if len(means):
        axes.scatter([x] * len(means), means, marker="_", color=_INK, linewidths=1.4, s=70, zorder=4)


def _draw_controls(axes: "Axes", points: "pd.DataFrame", x: int) -> None:
    means = points.groupby("metric")["value"].mean()
    if {"m4_placebo_low", "m4_placebo_high"} <= set(means.index):
        low, high = means["m4_placebo_low"], means["m4_placebo_high"]
        axes.bar(x, high - low, bottom=low, width=0.8, color=_BAND, alpha=0.45, linewidth=0, zorder=0)
    if "m4_placebo" in means.index:
        axes.hlines(means["m4_placebo"], x - 0.4, x + 0.4, color="#777777", linewidth=1.0, zorder=1)
    ranks = points[points["metric"] == "m4"]
    for offset, method, marker in ((-0.24, "original", "D"), (0.0, "oracle", "o")):
        _draw_seeds(axes, ranks[ranks["method"] == method], x + offset, colour_of(method), marker, 0.05)
    _draw_seeds(axes, points[points["metric"] == "m4_held_out"], x + 0.24, _HELD_OUT, "^", 0.05)


def _handle(label: str, colour: str, marker: str) -> Any:
    lines = load_optional("matplotlib.lines", "drawing figures")
    edge = {"markeredgecolor": _INK, "markeredgewidth": 0.5} if marker != "_" else {"markeredgewidth": 1.4}
    return lines.Line2D([], [], color=colour, marker=marker, markersize=5, linestyle="", label=label, **edge)


def _handle_of(method: str, marker: str) -> Any:
    return _handle("before unlearning" if method == "original" else title_of(method), colour_of(method), marker)


def _add_legend(figure: "Figure", handles: Sequence[Any], n_columns: int) -> None:
    figure.legend(handles=handles, loc="outside lower center", ncols=n_columns, frameon=False)


def _label_grid(figure: "Figure", points: "pd.DataFrame", label: str) -> None:
    """One label for all y axes, and the colours of the methods."""
    patch, methods = load_optional("matplotlib.patches", "drawing figures").Patch, _order(points, "method")
    colours = {title_of(name): colour_of(name) for name in methods}
    figure.supylabel(label, fontsize=8.0)
    handles = [patch(facecolor=colour + "40", edgecolor=colour, label=title) for title, colour in colours.items()]
    _add_legend(figure, handles, len(methods))


def _name_ticks(axes: "Axes", names: Sequence[str]) -> None:
    """Names under the x axis at 0, 1, ..., without tick marks."""
    axes.set_xticks(range(len(names)), list(names))
    axes.tick_params(axis="x", length=0)
