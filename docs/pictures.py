"""Draw the pictures of docs/understanding.md, each for a light and a dark page: ``python docs/pictures.py``.

Distributions of the four verdicts are those of ``small_world.py`` in docs/verdicts.md, as are the verdicts.
"""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.stats import gaussian_kde, norm

import ruler

DOCS = Path(__file__).parent
COLOURS = {
    "light": {
        "ink": "#1b1d21", "soft": "#565b64", "line": "#d9dbdf", "forget": "#c2410c", "held_out": "#3d5291",
        "retain": "#a7acb5", "erased": "#0a6b4f", "residual": "#a8201a", "displaced": "#8f4300",
        "inconclusive": "#3d5291",
    },
    "dark": {
        "ink": "#e9eaec", "soft": "#a9afb9", "line": "#363a41", "forget": "#fb923c", "held_out": "#a3b6f5",
        "retain": "#6d7480", "erased": "#62cfa6", "residual": "#ff8f85", "displaced": "#f5aa60",
        "inconclusive": "#a3b6f5",
    },
}  # fmt: skip
Colours = dict[str, str]


def make_world() -> Any:
    """``make_models`` of the page on verdicts."""
    text = (DOCS / "verdicts.md").read_text(encoding="utf-8")
    found = re.search(r"^```python file=small_world.py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(found[1] if found else "", names)
    return names["make_models"]


def draw_compared(colours: Colours) -> Figure:
    """Which model was trained on which records."""
    figure = Figure(figsize=(7.6, 2.75))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 7.6), ylim=(0, 2.75))
    axes.axis("off")
    sides = {"forget": "forget", "retain": "retain", "held-out": "held_out"}
    rows = {
        "original": ("trained on", "trained on", "never seen"),
        "unlearned": ("forgotten?", "trained on", "never seen"),
        "oracle": ("never seen", "trained on", "never seen"),
    }
    for column, (side, colour) in enumerate(sides.items()):
        x = 1.75 + 1.95 * column
        axes.text(x + 0.9, 2.5, f"{side} records", ha="center", va="center", color=colours[colour], weight="bold")
        for row, (model, cells) in enumerate(rows.items()):
            y, word = 1.62 - 0.74 * row, cells[column]
            tone = {"trained on": 0.28, "never seen": 0.0, "forgotten?": 0.12}[word]
            is_asked = word == "forgotten?"
            edge = colours[colour] if is_asked else colours["line"]
            axes.add_patch(Rectangle((x, y), 1.8, 0.62, facecolor=(*mpl.colors.to_rgb(colours[colour]), tone), lw=0))
            axes.add_patch(Rectangle((x, y), 1.8, 0.62, fill=False, edgecolor=edge, lw=2 if is_asked else 1))
            axes.text(x + 0.9, y + 0.31, word, ha="center", va="center", weight="bold" if is_asked else "normal")
            if column == 0:
                axes.text(1.6, y + 0.31, model, ha="right", va="center", weight="bold")
    return figure


def _draw_pair(axes: Axes, colours: Colours, grid: Any, held_out: Any, forget: Any) -> None:
    for side, density in (("held_out", held_out), ("forget", forget)):
        axes.fill_between(grid, density, color=colours[side], alpha=0.25, lw=0)
        axes.plot(grid, density, color=colours[side], lw=1.6)
    axes.set(yticks=[], xticks=[], ylim=(0, None))
    axes.spines[["left", "top", "right"]].set_visible(False)


def draw_verdicts(colours: Colours) -> Figure:
    """What four verdicts look like: how well each record is answered, before unlearning and after."""
    worlds: dict[str, dict[str, Any]] = {
        "nothing remains": {},
        "40% remains": {"says": 0.4, "left": 0.4},
        "pushed beyond": {"says": -0.5, "left": 0},
        "3 records": {"sizes": (3, 400, 600)},
    }
    figure = Figure(figsize=(7.6, 3.5), layout="constrained")
    grid = np.linspace(-2.2, 3.6, 90)
    panels = figure.subplots(2, 4, sharex=True)
    for column, (truth, options) in enumerate(worlds.items()):
        unlearned, oracle, original = make_world()(**{"says": 0, **options})
        verdict = ruler.audit(unlearned, oracle=oracle, original=original).verdict
        panels[0, column].set_title(f"{verdict}\n", color=colours[verdict], weight="bold", fontsize=12)
        panels[0, column].text(0.5, 1.02, truth, transform=panels[0, column].transAxes, ha="center", va="bottom")
        for row, model in enumerate((original, unlearned)):
            scores = [np.log(oracle[side].losses / model[side].losses) for side in (2, 0)]
            held_out, forget = (gaussian_kde(one, 0.4)(grid) for one in scores)
            _draw_pair(panels[row, column], colours, grid, held_out / held_out.max(), forget / forget.max())
    panels[0, 0].set_ylabel("original")
    panels[1, 0].set_ylabel("unlearned")
    panels[0, 0].text(2.0, 1.06, "forget", color=colours["forget"], ha="center")
    panels[0, 0].text(-0.1, 1.06, "held-out", color=colours["held_out"], ha="center")
    for axes in panels.flat:
        axes.set_ylim(0, 1.25)
    words = "answered like the oracle  \N{LEFTWARDS ARROW}  each record  \N{RIGHTWARDS ARROW}  answered better"
    figure.supxlabel(words, fontsize=10, color=colours["soft"])
    return figure


def draw_scale(colours: Colours) -> Figure:
    """Intervals of what remains beside the limit, and what each allows to say."""
    rows = [
        (0.02, 0.07, "erased", "shown to lie within the limit"),
        (0.10, 0.06, "erased", "a little remains, shown to lie within the limit"),
        (0.98, 0.05, "residual", "like records that were trained on"),
        (0.40, 0.12, "residual", "at least 28% remains"),
        (-0.50, 0.15, "displaced", "pushed beyond records that were never seen"),
        (0.11, 0.24, "inconclusive", "perhaps nothing, perhaps a third"),
    ]
    figure = Figure(figsize=(7.6, 3.1))
    axes = figure.add_axes((0.02, 0.17, 0.96, 0.81), xlim=(-0.8, 2.55), ylim=(-0.6, 5.6))
    axes.axvspan(-0.2, 0.2, color=colours["erased"], alpha=0.14, lw=0)
    for place in (0, 1):
        axes.axvline(place, color=colours["soft"], lw=1, ls=(0, (3, 3)))
    for row, (value, reach, verdict, note) in enumerate(rows):
        y = 5 - row
        axes.plot([value - reach, value + reach], [y, y], color=colours[verdict], lw=2.4, solid_capstyle="butt")
        axes.plot(value, y, "o", color=colours[verdict], ms=7)
        axes.text(1.3, y + 0.2, verdict, color=colours[verdict], weight="bold", va="center")
        axes.text(1.3, y - 0.27, note, color=colours["soft"], va="center", fontsize=8.5)
    labels = ["-0.5", "-0.2", "0\nnever seen", "0.2", "0.5", "1\ntrained on"]
    axes.set(yticks=[], xticks=[-0.5, -0.2, 0, 0.2, 0.5, 1])
    axes.set_xticklabels(labels)
    axes.spines[["left", "top", "right"]].set_visible(False)
    return figure


def draw_parts(colours: Colours) -> Figure:
    """How the number is made: the distance in the audited model over the distance that training makes."""
    figure = Figure(figsize=(7.6, 2.5), layout="constrained")
    grid = np.linspace(-3.5, 8.5, 120)
    panels = figure.subplots(2, 1, sharex=True)
    for axes, shift, model in zip(panels, (5.0, 1.5), ("original", "unlearned"), strict=True):
        _draw_pair(axes, colours, grid, norm.pdf(grid), norm.pdf(grid, shift))
        axes.set_ylabel(model)
        axes.set_ylim(0, 0.62)
        axes.annotate("", (shift, 0.47), (0, 0.47), arrowprops={"arrowstyle": "<->", "color": colours["ink"]})
    panels[0].text(2.5, 0.5, "what training adds: D", ha="center")
    panels[1].text(1.7, 0.5, "what is there now: 0.3 D, so 0.3 remains", ha="left")
    panels[0].text(-1.3, 0.3, "held-out", color=colours["held_out"], ha="right")
    panels[0].text(6.3, 0.3, "forget", color=colours["forget"], ha="left")
    words = "less memory  \N{LEFTWARDS ARROW}  score of each record  \N{RIGHTWARDS ARROW}  more memory"
    figure.supxlabel(words, fontsize=10, color=colours["soft"])
    return figure


PICTURES = {"compared": draw_compared, "parts": draw_parts, "verdicts": draw_verdicts, "scale": draw_scale}


def draw_all(folder: Path) -> None:
    """Write every picture in both colours."""
    folder.mkdir(parents=True, exist_ok=True)
    for mode, colours in COLOURS.items():
        style = {
            "svg.fonttype": "none", "svg.hashsalt": "ruler", "font.family": "sans-serif", "font.size": 9.5,
            "font.sans-serif": ["DejaVu Sans"], "text.color": colours["ink"], "axes.labelcolor": colours["soft"],
            "xtick.color": colours["soft"], "axes.edgecolor": colours["soft"], "path.simplify": True,
        }  # fmt: skip
        for name, draw in PICTURES.items():
            with mpl.rc_context(style):
                path = folder / f"{name}-{mode}.svg"
                draw(colours).savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
            text = re.sub(r"(\.\d\d)\d+", r"\1", path.read_text(encoding="utf-8"))
            fonts = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans'"
            path.write_text(text.replace("'DejaVu Sans'", fonts), encoding="utf-8")


if __name__ == "__main__":
    draw_all(DOCS / "images")
