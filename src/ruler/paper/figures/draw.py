"""Ink: a figure's numbers as a matplotlib figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.optional import load_optional
from ruler.paper.figures.style import colour_of, draw_boxes, draw_null, name_ticks, new_figure
from ruler.paper.names import rank_of, short_title_of, title_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Samples = dict[str, npt.NDArray[Any]]
_PASS_WINDOW = 0.05
_LEGEND_WIDTH = 5.2
_MIA_LABEL = "MIA accuracy"
_M2_LABEL = "signed calibration gap $M_2$"
_M3_LABEL = "representation shift $M_3$"
_M4_LABEL = "percentile rank $M_4$"


def draw_figure_1(points: "pd.DataFrame") -> "Figure":
    """Outputs pass, representations do not: MIA beside M2."""
    figure = new_figure(6.8, 2.7)
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    left.axhspan(0.5 - _PASS_WINDOW, 0.5 + _PASS_WINDOW, color="#000000", alpha=0.07, linewidth=0, zorder=0)
    _draw_panel(left, points[points["panel"] == "a"], 0.5, "(a) output level (grey: pass window)", _MIA_LABEL)
    _draw_panel(right, points[points["panel"] == "b"], 0.0, "(b) representation level", _M2_LABEL)
    return figure


def draw_figure_3(points: "pd.DataFrame") -> "Figure":
    """M4 of five methods at each forget fraction, marked by their tests against Bad Teacher."""
    fractions = _order(points, "forget_fraction")
    figure = new_figure(6.8, 2.9)
    panels = figure.subplots(1, len(fractions), sharey=True, squeeze=False)[0]
    for axes, fraction in zip(panels, fractions, strict=True):
        part = points[points["forget_fraction"] == fraction]
        _draw_panel(axes, part, 0.5, f"forget fraction {100 * fraction:g}%", "")
        _mark_tests(axes, part)
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(low, high + 0.1 * (high - low))
    panels[0].set_ylabel(_M4_LABEL)
    return figure


def draw_figure_5(points: "pd.DataFrame") -> "Figure":
    """M2 between independent oracles beside M2 of the methods, each on its own scale."""
    figure = new_figure(6.8, 2.8)
    left, right = figure.subplots(1, 2, width_ratios=(2, 5))
    _draw_panel(left, points[points["panel"] == "a"], 0.0, "pairs of independent oracles", _M2_LABEL)
    left.set_xlim(-0.7, 0.7)
    left.set_xticks([])
    methods = points[points["panel"] == "b"]
    _draw_panel(right, methods, 0.0, "unlearning methods, on a finer scale", "")
    _zoom_to_whiskers(right, _split(methods))
    return figure


def draw_figure_6(points: "pd.DataFrame") -> "Figure":
    """M3 by dataset (columns) and forget fraction (rows)."""
    fractions, datasets = _order(points, "forget_fraction"), _order(points, "dataset")
    figure = new_figure(max(1.15 * len(datasets), _LEGEND_WIDTH), 1.55 * len(fractions) + 0.5)
    grid = figure.subplots(len(fractions), len(datasets), squeeze=False)
    for row, fraction in zip(grid, fractions, strict=True):
        for axes, dataset in zip(row, datasets, strict=True):
            part = points[(points["forget_fraction"] == fraction) & (points["dataset"] == dataset)]
            _draw_small(axes, part, 0.0)
        row[0].set_ylabel(f"forget fraction {100 * fraction:g}%")
    for axes, dataset in zip(grid[0], datasets, strict=True):
        axes.set_title(title_of(dataset))
    figure.align_ylabels(grid[:, 0])
    figure.supylabel(_M3_LABEL, fontsize=8.0)
    _add_legend(figure, _order(points, "method"))
    return figure


def draw_figure_7(points: "pd.DataFrame") -> "Figure":
    """M4 by dataset, the oracle beside the methods."""
    datasets = _order(points, "dataset")
    n_columns = min(5, len(datasets))
    n_rows = -(-len(datasets) // n_columns)
    figure = new_figure(max(1.5 * n_columns, _LEGEND_WIDTH), 1.55 * n_rows + 0.4)
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes, dataset in zip(grid, datasets, strict=False):
        _draw_small(axes, points[points["dataset"] == dataset], 0.5)
        axes.set_title(title_of(dataset))
    for axes in grid[len(datasets) :]:
        axes.set_visible(False)
    figure.supylabel(_M4_LABEL, fontsize=8.0)
    _add_legend(figure, _order(points, "method"))
    return figure


def _order(points: "pd.DataFrame", key: str) -> list[Any]:
    return sorted(points[key].unique().tolist(), key=lambda value: rank_of(key, value))


def _split(points: "pd.DataFrame") -> Samples:
    return {name: points.loc[points["method"] == name, "value"].to_numpy() for name in _order(points, "method")}


def _draw_panel(axes: "Axes", points: "pd.DataFrame", null: float, title: str, label: str) -> None:
    samples = _split(points)
    draw_null(axes, null)
    draw_boxes(axes, samples)
    axes.set_xlim(-0.6, max(len(samples), 1) - 0.4)
    name_ticks(axes, range(len(samples)), [short_title_of(name) for name in samples])
    axes.set_title(title)
    axes.set_ylabel(label)
    if not samples:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center")
        axes.set_yticks([])


def _draw_small(axes: "Axes", points: "pd.DataFrame", null: float) -> None:
    samples = _split(points)
    draw_null(axes, null)
    draw_boxes(axes, samples, width=0.7)
    axes.set_xlim(-0.6, max(len(samples), 1) - 0.4)
    axes.set_xticks([])
    axes.locator_params(axis="y", nbins=4)
    axes.ticklabel_format(axis="y", scilimits=(-3, 3), useMathText=True)
    axes.yaxis.get_offset_text().set_fontsize(6.0)


def _mark_tests(axes: "Axes", points: "pd.DataFrame") -> None:
    # At the top edge, which the caller lifts above the data.
    for place, method in enumerate(_order(points, "method")):
        p_value = float(points.loc[points["method"] == method, "p_against_bad_teacher"].iloc[0])
        if not np.isnan(p_value):
            axes.text(place, 0.985, _mark(p_value), transform=axes.get_xaxis_transform(), ha="center", va="top")


def _mark(p_value: float) -> str:
    # The paper prints p = 0.010, an exact test's 0.0098, as two stars.
    return "**" if p_value <= 0.01 else "*" if p_value < 0.05 else "ns"


def _zoom_to_whiskers(axes: "Axes", samples: Samples) -> None:
    ends = [end for values in samples.values() for end in _whiskers(values)]
    if not ends:
        return
    margin = 0.12 * (max(ends) - min(ends)) or 1e-6
    low, high = min(*ends, 0.0) - margin, max(*ends, 0.0) + margin
    axes.set_ylim(low, high)
    values = np.concatenate(list(samples.values()))
    n_outside = int(((values < low) | (values > high)).sum())
    if n_outside:
        note = f"{n_outside} of {len(values)} values off scale"
        axes.text(0.99, 0.02, note, transform=axes.transAxes, ha="right", va="bottom", fontsize=6.5)


def _whiskers(values: npt.NDArray[Any]) -> tuple[float, float]:
    first, third = np.percentile(values, [25, 75])
    reach = 1.5 * (third - first)
    inside = values[(values >= first - reach) & (values <= third + reach)]
    return float(inside.min()), float(inside.max())


def _add_legend(figure: "Figure", methods: Sequence[str]) -> None:
    patches = load_optional("matplotlib.patches", "drawing figures")
    handles = [
        patches.Patch(facecolor=colour_of(name) + "40", edgecolor=colour_of(name), label=title_of(name))
        for name in methods
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(methods), frameon=False)
