"""Runs of `ruler compare` -> a CSV file per comparison, and from these the tables and the figure of docs/methods.md."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.meta_tables import put_between
from ruler.core.files import write_atomically, writing_atomically
from ruler.core.text import markdown_table
from ruler.metrics.peers import PEERS
from ruler.paper.compare.table import FAILED, OWN

TITLES = {"breast_cancer": "breast cancer", "heart_disease": "heart disease", "cifar10": "CIFAR-10", "lfw": "LFW"}
TABLES = {"tables": ("heart_disease", "breast_cancer"), "images": ("cifar10", "lfw")}
"""Mark on the page -> the comparisons of its table, of which the first decides the order of the rows."""
FIGURE = "compared.svg"
_NOTHING = "Not measured yet."
_HEAD = ("method", "title", "settings", "seed", "draw", "model", "device", "n_forget", "verdict", "seen")
_AMOUNTS = ("remaining", "left")
"""First number of recorded runs: "left" is the largest distance of an AUC from 0.5, in those from before the scale."""
_NUMBERS = {"held_out_accuracy": "held-out accuracy", "cost": "cost"}


def keep_runs(runs: pd.DataFrame, path: Path) -> None:
    """Write one row per run, four digits each, with the error of those that failed."""
    errors = [json.loads(one).get("verdict", "") if verdict == FAILED else "" for one, verdict in _reasons(runs)]
    known = [name for name in (*OWN, *PEERS) if name in runs]
    table = runs[[*_HEAD, *known]].assign(error=errors)
    write_atomically(path, table.to_csv(index=False, float_format="%.4g"))


def _reasons(runs: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(runs["reasons"], runs["verdict"], strict=True))


def read_runs(bench: Path) -> dict[str, pd.DataFrame]:
    """The comparisons that have been measured, by name."""
    paths = {name: bench / f"compare_{name}.csv" for name in TITLES}
    return {name: pd.read_csv(path, keep_default_na=True) for name, path in paths.items() if path.is_file()}


def write_page(bench: Path, page: Path) -> None:
    """Put figure and tables into a page, between their marks, and draw the figure beside it."""
    known = read_runs(bench)
    for mark, lines in show_measured(known).items():
        put_between(page, f"compare {mark}", lines)
    if known:
        draw_costs(known, page.with_name(FIGURE))


def show_measured(known: Mapping[str, pd.DataFrame]) -> dict[str, list[str]]:
    """Mark on the page -> the lines behind it."""
    figure = [f"![Cost against what remains]({FIGURE})"] if known else [_NOTHING]
    tables = {mark: describe({name: known[name] for name in names if name in known}) for mark, names in TABLES.items()}
    return {"figure": figure, **tables}


def describe(known: Mapping[str, pd.DataFrame]) -> list[str]:
    """What was run, and one line per method: what remains, accuracy, cost and verdicts in each comparison."""
    if not known:
        return [_NOTHING]
    found = {name: summarize(table) for name, table in known.items()}
    said = [_tell_runs(name, table) for name, table in known.items()]
    columns = [f"{TITLES[name]}: {what}" for name, table in found.items() for what in _head(table)]
    order = list(dict.fromkeys(title for table in found.values() for title in table.index))
    lines = [[title, *(cell for table in found.values() for cell in _show(table, title))] for title in order]
    marks = ["---", *(["--:"] * (1 + len(_NUMBERS)) + ["---"]) * len(found)]
    return [*said, "", *markdown_table(["method", *columns], lines, marks=marks)]


def _head(summary: pd.DataFrame) -> list[str]:
    return [summary.columns[0], *_NUMBERS.values(), "verdicts"]


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """One row per title: means over runs, verdicts counted, and the method; least remaining first."""
    amount = next(name for name in _AMOUNTS if name in table)
    rows = {}
    for title, part in table.groupby("title", sort=False):
        counts = part["verdict"].value_counts()
        words = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items(), key=lambda one: (-one[1], one[0])))
        rows[title] = {
            **{name: part[name].mean() for name in (amount, *_NUMBERS)},
            "verdicts": words,
            "method": part["method"].iloc[0],
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_values(amount, kind="stable")


def _tell_runs(name: str, table: pd.DataFrame) -> str:
    n_methods, n_seeds = table["title"].nunique() - 1, table["seed"].nunique()
    one = table.iloc[0]
    parts = [f"- {TITLES[name]}: `{one['model']}` on {one['device']}, {n_methods} methods, {n_seeds} seeds"]
    parts += [f"{len(table)} audits, {table['n_forget'].max():.0f} records forgotten."]
    if (n_failed := int((table["verdict"] == FAILED).sum())) > 0:
        parts[-1] = parts[-1].removesuffix(".") + f", {n_failed} runs failed."
    return ", ".join(parts)


def _show(table: pd.DataFrame, title: str) -> list[str]:
    if title not in table.index:
        return ["not run", *[""] * (1 + len(_NUMBERS))]
    row: dict[Any, Any] = table.loc[title].to_dict()
    cells = ["" if math.isnan(row[name]) else f"{row[name]:.3f}" for name in (table.columns[0], *_NUMBERS)]
    cells[-1] = "" if row["method"] == "original" or math.isnan(row["cost"]) else f"{row['cost']:.2f}"
    return [*cells, str(row["verdicts"])]


def draw_costs(known: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Cost against what remains in each comparison, with lines at the oracle's cost and at what retraining leaves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": "compared", "font.size": 8}):
        n_rows = max(1, math.ceil(len(known) / 2))
        figure, axes = plt.subplots(n_rows, 2, figsize=(10, 3.9 * n_rows), constrained_layout=True, squeeze=False)
        for axis in axes.flat[len(known) :]:
            axis.set_axis_off()
        for axis, (name, table) in zip(axes.flat, known.items(), strict=False):
            found = summarize(table)
            amount = found.columns[0]
            drawn = found[(found["method"] != "original") & np.isfinite(found[amount])]
            is_exact = drawn["method"] == "retrain"
            axis.axvline(1, color="#999999", linewidth=0.6)
            axis.axhline(drawn.loc[is_exact, amount].mean(), color="#999999", linewidth=0.6, linestyle="--")
            axis.scatter(drawn["cost"], drawn[amount], c=np.where(is_exact, "#D55E00", "#0072B2"), s=14)
            for title, x, y in zip(drawn.index, drawn["cost"], drawn[amount], strict=True):
                axis.annotate(title, (x, y), fontsize=6, xytext=(2, 2), textcoords="offset points")
            axis.set(xscale="log", xlabel="cost, training the oracle = 1", ylabel=amount, title=TITLES[name])
        with writing_atomically(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
