"""What forgetting costs and leaves: rows of `benchmarks.frontier` -> a table and a figure."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from benchmarks.measure import read_rows
from benchmarks.meta_tables import put_between
from ruler.core.files import write_atomically, writing_atomically
from ruler.core.text import markdown_table

_RUN = ["data", "memory", "draw"]
_KEPT = ("cost", "verdict", "is_clear", "m2_auc", "m4_auc", "norm_auc", "loss_auc", "test_accuracy", "retain_accuracy")
_DAMAGE = ("damage_skill", "damage_similarity")
_SUMMED = ["model", "n", "cost", "n_asked", "n_erased", "n_clear", "n_alarms", "n_damaged"]
_SUMMED += ["loss", "loss_reach", "lost", "lost_reach"]
_GOAL = 0.8
"""Share of the runs in which retraining is erased that a model is to be erased in."""
COLUMNS = ["model", "cost", "erased, true labels", "erased, planted labels", "no contrast", "residual or displaced"]
COLUMNS += ["damaged", "loss contrast, true labels", "loss contrast, planted labels", "accuracy lost"]


def keep_rows(folder: Path, path: Path) -> None:
    """Gather all rows of a run in one CSV file, four digits each."""
    rows = [row for one in sorted(folder.glob("*.jsonl")) for row in read_rows(one)]
    table = pd.DataFrame(rows)[[*_RUN, "model", *_KEPT, *_DAMAGE]]
    write_atomically(path, table.to_csv(index=False, float_format="%.4g"))


def write_page(source: Path, page: Path) -> None:
    """Put figure and table into a page, between the marks with the file's name, and draw the figure beside the page."""
    put_between(page, source.stem.replace("_", " "), show_measured(source))
    draw_frontier(pd.read_csv(source), page.with_name(f"{source.stem}.svg"))


def show_measured(source: Path) -> list[str]:
    """The lines of a page that stand for a CSV file, which may not be there yet."""
    if not source.is_file():
        return ["Not measured yet."]
    return [f"![Cost against what is left]({source.stem}.svg)", "", *tabulate(pd.read_csv(source))]


def tabulate(table: pd.DataFrame) -> list[str]:
    """One line per model, over all runs; how many are erased for each kind of labels."""
    models = summarize(table)
    parts = [
        summarize(table[table["memory"] == memory]).set_index("model").reindex(models["model"])
        for memory in ("true", "planted")
    ]  # one draw has the same records with opposite labels, so a mean over both would hide a contrast
    lines = []
    for one in models.to_dict("records"):
        own = [part.loc[one["model"]].fillna({"n_erased": 0, "n_asked": 0}) for part in parts]
        erased = [f"{part['n_erased']:.0f} of {part['n_asked']:.0f}" for part in own]
        counts = [f"{one[name]} of {one['n']}" for name in ("n_clear", "n_alarms", "n_damaged")]
        losses = [_show(part["loss"], part["loss_reach"], 3) for part in own]
        lost = _show(100 * one["lost"], 100 * one["lost_reach"], 1)
        lines.append([f"`{one['model']}`", f"{one['cost']:.2f}", *erased, *counts, *losses, lost])
    return markdown_table(COLUMNS, lines, marks=["---", *["--:"] * (len(COLUMNS) - 1)])


def _show(mean: float, reach: float, n_digits: int) -> str:
    """A mean with its interval, which a single run does not have; empty if there is none."""
    if math.isnan(mean):
        return ""
    return f"{mean:.{n_digits}f}" + ("" if math.isnan(reach) else f" ± {reach:.{n_digits}f}")


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """One row per model: medians, shares and means over runs, the cheapest first.

    Args:
        table: Rows of models, of runs that have ``retrain`` among them.

    Returns:
        ``model``, ``n`` runs, ``cost`` (median), ``n_asked`` runs in which retraining is erased, ``n_erased`` of them;
        ``n_clear``, of all runs those whose contrasts are all cleared; ``n_alarms``, ``n_damaged``; mean and half
        width of the 95% interval of the loss contrast (``loss``, ``loss_reach``) and of the accuracy lost (``lost``,
        ``lost_reach``).
    """
    retrained = table[table["model"] == "retrain"].set_index(_RUN)
    found: list[dict[str, Any]] = []
    for name, part in table.groupby("model", sort=False):
        known = part.set_index(_RUN)
        beside = retrained.reindex(known.index)
        is_asked = beside["verdict"] == "erased"
        shared = ["data", "draw"]  # runs with true and with planted labels share retain records, so they count once
        loss, loss_reach = average(known["loss_auc"].groupby(level=shared).mean())
        lost, lost_reach = average((beside["test_accuracy"] - known["test_accuracy"]).groupby(level=shared).mean())
        found.append(
            {
                "model": name,
                "n": len(known),
                "cost": float(known["cost"].median()),
                "n_asked": int(is_asked.sum()),
                "n_erased": int((is_asked & (known["verdict"] == "erased")).sum()),
                "n_clear": int(known["is_clear"].astype(bool).sum()),
                "n_alarms": int(known["verdict"].isin(["residual", "displaced"]).sum()),
                "n_damaged": int((known["verdict"] == "damaged").sum()),
                **{"loss": loss, "loss_reach": loss_reach, "lost": lost, "lost_reach": lost_reach},
            }
        )
    return pd.DataFrame(found, columns=_SUMMED).sort_values("cost", kind="stable", ignore_index=True)


def average(values: "pd.Series[float]") -> tuple[float, float]:
    """Mean, and half the width of Student's 95% interval; NaN for a single value.

    Example:
        >>> mean, reach = average(pd.Series([0.0, 2.0]))
        >>> mean, round(reach, 1)
        (1.0, 12.7)
    """
    known = values.dropna()
    reach = math.nan
    if len(known) > 1:
        reach = float(student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)))
    return float(known.mean()), reach


def draw_frontier(table: pd.DataFrame, path: Path) -> None:
    """Cost against the loss contrast that is left and the accuracy lost; filled where often enough erased."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": "frontier", "font.size": 8}):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
        for memory, colour in (("true", "#0072B2"), ("planted", "#D55E00")):
            found = summarize(table[table["memory"] == memory])
            found = found[found["model"] != "original"]
            is_erased = found["n_erased"] >= _GOAL * found["n_asked"].replace(0, np.nan)
            colours = np.where(is_erased, colour, "none")
            for axis, heights in zip(axes, ((found["loss"] - 0.5).abs(), 100 * found["lost"]), strict=True):
                axis.scatter(found["cost"], heights, c=colours, edgecolors=colour, s=14)
                for name, x, y in zip(found["model"], found["cost"], heights, strict=True):
                    axis.annotate(name, (x, y), fontsize=6, xytext=(2, 2), textcoords="offset points")
            axes[0].scatter([], [], color=colour, s=14, label=f"{memory} labels")
        for axis, title in zip(axes, ("loss contrast left, distance from 0.5", "points of accuracy lost"), strict=True):
            axis.axvline(1, color="#999999", linewidth=0.6)
            axis.set(xscale="log", xlabel="cost, retraining = 1", ylabel=title)
        axes[0].legend()
        with writing_atomically(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
