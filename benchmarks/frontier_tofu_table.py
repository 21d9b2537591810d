"""Rows of `benchmarks.frontier_tofu` -> docs/bench/frontier_tofu.csv, its table in docs/frontier.md and its figure.

`python -m benchmarks frontier_tofu_table docs/bench/frontier_tofu.csv docs/frontier.md [ROWS.jsonl]` keeps the rows,
where given, and writes the page anew between its marks.
"""

import argparse
from pathlib import Path

import pandas as pd

from benchmarks.measure import read_rows
from benchmarks.meta_tables import put_between
from ruler.core.files import write_atomically, writing_atomically
from ruler.core.text import markdown_table

_CONTRASTS = ("loss", "m2", "m4", "norm")
_LOSSES = ("retain_loss", "forget_loss", "held_out_loss")
_KEPT = ("model", "cost", "verdict", "retain_accuracy", "forget_accuracy", "held_out_accuracy", *_LOSSES)
COLUMNS = ["model", "cost", "verdict", "retain accuracy", "retain loss", "forget loss", "held-out loss"]
COLUMNS += ["loss contrast", "M2's", "M4's", "norm's"]


def keep_rows(source: Path, path: Path) -> None:
    """Keep the numbers of all models in a CSV file, four digits each."""
    found = [f"{name}_{kind}" for name in _CONTRASTS for kind in ("auc", "p")]
    table = pd.DataFrame(read_rows(source))[[*_KEPT, *found]]
    write_atomically(path, table.to_csv(index=False, float_format="%.4g"))


def write_page(source: Path, page: Path) -> None:
    """Put figure and table into a page, between the marks with the file's name, and draw the figure beside the page."""
    put_between(page, source.stem.replace("_", " "), show_measured(source))
    draw_costs(pd.read_csv(source), page.with_name(f"{source.stem}.svg"))


def show_measured(source: Path) -> list[str]:
    """The lines of a page that stand for a CSV file, which may not be there yet."""
    if not source.is_file():
        return ["Not measured yet."]
    figure = f"![Cost against the loss contrast and against what is kept]({source.stem}.svg)"
    return [figure, "", *tabulate(pd.read_csv(source))]


def tabulate(table: pd.DataFrame) -> list[str]:
    """One line per model, the cheapest first."""
    lines = []
    for one in table.sort_values("cost", kind="stable").to_dict("records"):
        numbers = [f"{one[name]:.2f}" for name in ("retain_accuracy", *_LOSSES)]
        contrasts = [f"{one[f'{name}_auc']:.3f}" for name in _CONTRASTS]
        lines.append([f"`{one['model']}`", f"{one['cost']:.2f}", one["verdict"], *numbers, *contrasts])
    return markdown_table(COLUMNS, lines, marks=["---", "--:", "---", *["--:"] * (len(COLUMNS) - 3)])


def draw_costs(table: pd.DataFrame, path: Path) -> None:
    """Cost against the loss contrast that is left, and against the accuracy on retain records."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn = table[table["model"] != "original"]
    sides = {
        "loss contrast left, distance from 0.5": (drawn["loss_auc"] - 0.5).abs(),
        "accuracy on retain records": drawn["retain_accuracy"],
    }
    with matplotlib.rc_context({"svg.hashsalt": "frontier_tofu", "font.size": 8}):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
        for axis, (title, heights) in zip(axes, sides.items(), strict=True):
            axis.scatter(drawn["cost"], heights, color="#0072B2", s=14)
            for name, x, y in zip(drawn["model"], drawn["cost"], heights, strict=True):
                axis.annotate(name, (x, y), fontsize=6, xytext=(2, 2), textcoords="offset points")
            axis.axvline(1, color="#999999", linewidth=0.6)
            axis.set(xscale="log", xlabel="cost, retraining = 1", ylabel=title)
        with writing_atomically(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    """Keep rows, if some are given, and write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks frontier_tofu_table")
    parser.add_argument("csv", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("rows", type=Path, nargs="?", help="rows.jsonl of frontier_tofu")
    options = parser.parse_args()
    if options.rows is not None:
        keep_rows(options.rows, options.csv)
    write_page(options.csv, options.page)


if __name__ == "__main__":
    main()
