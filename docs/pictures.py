"""Draw the pictures of docs/understanding.md, each for a light and a dark page: ``python docs/pictures.py``.

Distributions are those of ``small_world.py`` in docs/verdicts.md; intervals and verdicts are those of its audits.
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


def draw_auc(colours: Colours) -> Figure:
    """Scores whose AUC is 0.5, at the margin, far above and far below."""
    figure = Figure(figsize=(7.6, 2.1), layout="constrained")
    notes = {0.5: "no contrast", 0.6: "the default margin", 0.9: "far above", 0.1: "far below: just as bad"}
    grid = np.linspace(-3.5, 3.5, 80)
    for axes, (auc, note) in zip(figure.subplots(1, 4, sharey=True), notes.items(), strict=True):
        shift = np.sqrt(2) * norm.ppf(auc)
        _draw_pair(axes, colours, grid, norm.pdf(grid, -shift / 2), norm.pdf(grid, shift / 2))
        axes.set_title(f"AUC {auc}", fontsize=11, weight="bold")
        axes.set_xlabel(note)
        if auc == 0.9:
            axes.text(-1.5, 0.03, "held-out", color=colours["held_out"], ha="center")
            axes.text(1.5, 0.03, "forget", color=colours["forget"], ha="center")
    return figure


def _draw_pair(axes: Axes, colours: Colours, grid: Any, held_out: Any, forget: Any) -> None:
    for side, density in (("held_out", held_out), ("forget", forget)):
        axes.fill_between(grid, density, color=colours[side], alpha=0.25, lw=0)
        axes.plot(grid, density, color=colours[side], lw=1.6)
    axes.set(yticks=[], xticks=[], ylim=(0, None))
    axes.spines[["left", "top", "right"]].set_visible(False)


def draw_verdicts(colours: Colours) -> Figure:
    """What four verdicts look like: similarity to the oracle, before unlearning and after."""
    worlds: dict[str, dict[str, Any]] = {
        "nothing is left": {},
        "a tenth is left": {"left": 0.1},
        "pushed away": {"memory": 0, "pushed": 0.3},
        "12 records": {"sizes": (12, 400, 600)},
    }
    figure = Figure(figsize=(7.6, 3.5), layout="constrained")
    grid = np.linspace(0, 3.2, 90)
    panels = figure.subplots(2, 4, sharex=True)
    for column, (truth, options) in enumerate(worlds.items()):
        unlearned, oracle, original = make_world()(**options)
        verdict = ruler.audit(unlearned, oracle=oracle, original=original).verdict
        panels[0, column].set_title(f"{verdict}\n", color=colours[verdict], weight="bold", fontsize=12)
        panels[0, column].text(0.5, 1.02, truth, transform=panels[0, column].transAxes, ha="center", va="bottom")
        for row, model in enumerate((original, unlearned)):
            distances = [1 - ruler.cosine_similarity(model[side], oracle[side]) for side in (2, 0)]
            held_out, forget = (gaussian_kde(-np.log10(one), 0.4)(grid) for one in distances)
            _draw_pair(panels[row, column], colours, grid, held_out / held_out.max(), forget / forget.max())
    panels[0, 0].set_ylabel("original")
    panels[1, 0].set_ylabel("unlearned")
    panels[0, 0].text(0.7, 0.93, "forget", color=colours["forget"], ha="left")
    panels[0, 0].text(2.05, 0.6, "held-out", color=colours["held_out"], ha="left")
    words = "further from the oracle  \N{LEFTWARDS ARROW}  each record  \N{RIGHTWARDS ARROW}  closer to the oracle"
    figure.supxlabel(words, fontsize=10, color=colours["soft"])
    return figure


def draw_margin(colours: Colours) -> Figure:
    """Intervals of an AUC beside the margin, and what each allows to say."""
    rows = [
        (0.49, 0.035, "erased", "inside the margin: shown to be alike"),
        (0.545, 0.03, "erased", "a small difference, shown to lie inside the margin"),
        (0.28, 0.05, "residual", "a difference, and not a small one"),
        (0.55, 0.10, "inconclusive", "perhaps alike, perhaps not: more records would tell"),
        (0.50, 0.30, "inconclusive", "a dozen records: exactly 0.5, and nothing is shown"),
    ]
    figure = Figure(figsize=(7.6, 2.6))
    axes = figure.add_axes((0.02, 0.2, 0.96, 0.78), xlim=(0.1, 1.55), ylim=(-0.6, 4.6))
    axes.axvspan(0.4, 0.6, color=colours["erased"], alpha=0.14, lw=0)
    axes.axvline(0.5, color=colours["soft"], lw=1, ls=(0, (3, 3)))
    for row, (auc, reach, verdict, note) in enumerate(rows):
        y = 4 - row
        axes.plot([auc - reach, auc + reach], [y, y], color=colours[verdict], lw=2.4, solid_capstyle="butt")
        axes.plot(auc, y, "o", color=colours[verdict], ms=7)
        axes.text(0.86, y + 0.18, verdict, color=colours[verdict], weight="bold", va="center")
        axes.text(0.86, y - 0.24, note, color=colours["soft"], va="center", fontsize=8.5)
    axes.set(yticks=[], xticks=[0.2, 0.4, 0.5, 0.6, 0.8])
    axes.set_xlabel("AUC: forget against held-out records", x=0.28)
    axes.spines[["left", "top", "right"]].set_visible(False)
    return figure


PICTURES = {"compared": draw_compared, "auc": draw_auc, "verdicts": draw_verdicts, "margin": draw_margin}


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
