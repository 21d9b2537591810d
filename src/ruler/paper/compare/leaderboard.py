"""Several comparisons -> one page: which methods are best on all of them?"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ruler.auditing.report.display import count_records, format_number
from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.core.readers.tables import read_table
from ruler.paper.compare.figures import REFERENCES, VERDICTS, draw_cost, draw_ranks, find_tones
from ruler.paper.compare.page import METHOD, render, show_numbers
from ruler.paper.compare.table import Measure
from ruler.paper.results import title_of
from ruler.stats.ranks import LEVEL

if TYPE_CHECKING:
    import pandas as pd

PAGE, NUMBERS = "leaderboard.html", "leaderboard.csv"
_MEANS = ("remaining", "held_out_accuracy", "retain_accuracy", "forget_accuracy", "cost")
_TEXTS = ("method", "title", "dataset", "model", "forget", "verdict")
_COLUMNS = {
    "rank": Measure("Mean rank", "By what remains, among the methods that are in all comparisons; 1 is best."),
    "erased": Measure("Erased", "Share of runs with the verdict erased."),
    "remaining": Measure(
        "Remaining", "How far what the model says or what its layers hold is from 0, never trained on; 1 is trained on."
    ),
    "remaining_gap": Measure("Remaining beyond retraining", "What remains, less that of retraining on the same data."),
    "accuracy_gap": Measure("Accuracy beside retraining", "Held-out accuracy, less that of retraining."),
    "cost": Measure("Cost", "Time that the method takes, as a multiple of retraining's."),
}


def make_leaderboard(folders: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Which methods are best on several datasets and models?

    Args:
        folders: What `ruler.compare` left, at least two; their ``compare.parquet`` is read.
        out: Folder for ``leaderboard.html`` and ``leaderboard.csv``, which has one row per method and comparison.

    Returns:
        Path of the page.

    Raises:
        InputError: Fewer than two folders, or the same one twice.
        FileFormatError: A folder without a comparison, or with one of an earlier version.
        WriteError: The folder cannot be written.
    """
    places = [Path(folder) for folder in folders]
    if len(places) < 2 or len({place.resolve() for place in places}) < len(places):
        raise InputError(f"folders must be at least two different ones; got {', '.join(map(str, places)) or 'none'}.")
    runs = [_read_runs(place) for place in places]
    compared = [_describe(one, place, Path(out)) for one, place in zip(runs, places, strict=True)]
    numbers = _gather(runs, [one["name"] for one in compared])
    write_atomically(Path(out) / NUMBERS, numbers.to_csv(index=False))
    write_atomically(Path(out) / PAGE, _render(runs, compared, numbers, _summarise(numbers, len(compared))))
    return Path(out) / PAGE


def _read_runs(folder: Path) -> "pd.DataFrame":
    """The runs of a comparison, checked: such a folder may come from somebody else."""
    path = folder / "compare.parquet"
    if not path.is_file():
        raise FileFormatError(f"{folder} must hold compare.parquet; got none. Name a folder of `ruler compare`.")
    runs: pd.DataFrame = read_table(path)
    absent = [name for name in (*_TEXTS, *_MEANS) if name not in runs.columns]
    if absent:
        raise FileFormatError(f"{path} must have the columns {', '.join(absent)}; got none. Compare again.")
    is_sound = all(runs[name].dtype.kind in "fiu" for name in _MEANS) and runs["verdict"].isin(VERDICTS).all()
    if not is_sound:
        raise FileFormatError(f"{path} must hold numbers and verdicts of audits; got something else. Compare again.")
    for name in _TEXTS:
        runs[name] = runs[name].astype(str)
    return runs


def _describe(runs: "pd.DataFrame", place: Path, out: Path) -> dict[str, Any]:
    """One comparison, for the page."""
    first, retrained = runs.iloc[0], runs.loc[runs["method"] == "retrain", "verdict"]
    data, model = title_of(first["dataset"]), title_of(first["model"])
    return {
        "name": f"{data}, {model}, {first['forget']}",
        "link": quote(Path(os.path.relpath(place / "compare.html", out)).as_posix()),
        "dataset": data,
        "model": model,
        "forget": first["forget"],
        "n_runs": int((runs["title"] == first["title"]).sum()),
        "retrained": f"{(retrained == 'erased').sum()} of {len(retrained)}" if len(retrained) else "not tried",
    }


def _gather(runs: Sequence["pd.DataFrame"], names: Sequence[str]) -> "pd.DataFrame":
    """One row per comparison and method: means of its runs, beside retraining's."""
    pandas = load_optional("pandas", "a leaderboard")
    rows: list[dict[str, Any]] = []
    for table, name in zip(runs, names, strict=True):
        retrained = table[table["method"] == "retrain"]
        for title, part in table.groupby("title", sort=False):
            means = {key: float(part[key].mean()) for key in _MEANS}
            gaps = (float(means[key] - retrained[key].mean()) for key in ("remaining", "held_out_accuracy"))
            head = {"comparison": name, "method": part["method"].iloc[0], "title": title, "runs": len(part)}
            erased = {"erased": float((part["verdict"] == "erased").mean())}
            rows.append(head | erased | means | dict(zip(("remaining_gap", "accuracy_gap"), gaps, strict=True)))
    numbers: pd.DataFrame = pandas.DataFrame(rows)
    return numbers


def _summarise(numbers: "pd.DataFrame", n_compared: int) -> "pd.DataFrame":
    """One row per method: means over comparisons, the best rank first; methods that were not in all come last."""
    names = ["erased", "remaining", "remaining_gap", "held_out_accuracy", "accuracy_gap", "cost"]
    table: pd.DataFrame = numbers.groupby(["title", "method"], sort=False)[names].mean().reset_index()
    values = numbers.pivot_table(index="comparison", columns="title", values="remaining", sort=False)
    whole = values.dropna(axis="columns")
    ranks = whole.rank(axis="columns").mean()
    table["rank"] = table["title"].map(ranks) if len(whole) == n_compared else math.nan
    return table.sort_values(["rank", "remaining"], kind="stable", ignore_index=True)


def _render(
    runs: Sequence["pd.DataFrame"], compared: Sequence[dict[str, Any]], numbers: "pd.DataFrame", table: "pd.DataFrame"
) -> str:
    pandas = load_optional("pandas", "a leaderboard")
    tones = find_tones(pandas.concat([one[["title", "verdict"]] for one in runs], ignore_index=True))
    diagrams = []
    for name, heading, is_less_better in (
        ("remaining", "Remaining", True),
        ("held_out_accuracy", "Held-out accuracy", False),
    ):
        values = numbers.pivot_table(index="comparison", columns="title", values=name, sort=False, dropna=False)
        ordered = values[[title for title in table["title"] if title in values.columns]]
        diagrams.append(draw_ranks(ordered, tones, heading, "comparisons", is_less_better=is_less_better))
    board = []
    for row in table.to_dict("records"):
        cells = [_show_cell(one[one["title"] == row["title"]]) for one in runs]
        board.append({"rank": format_number(row["rank"], 1), "title": row["title"], "cells": cells})
    ranked = table[table["rank"].notna()]
    methods = ranked[~ranked["method"].isin(REFERENCES)]
    best = f"{methods['title'].iloc[0]} ranks best" if len(methods) else "no method is in all of them"
    if diagrams[0] is not None and len(methods) and not diagrams[0].p_value <= LEVEL:
        best += ", but the methods cannot be told apart"
    return render(
        "leaderboard.html.j2",
        headline=f"{count_records(len(compared), 'comparison')}: {best}",
        comparisons=compared,
        board=board,
        cost=draw_cost(ranked, tones),
        tones=list(dict.fromkeys(tones.values())),
        ranks=[diagram for diagram in diagrams if diagram is not None],
        numbers=show_numbers(table, {"title": METHOD}, _COLUMNS),
    )


def _show_cell(part: "pd.DataFrame") -> dict[str, str]:
    """A method in one comparison, in a few words; nothing where it was not tried."""
    if part.empty:
        return {"tone": "", "verdicts": "", "remaining": "", "cost": ""}
    tone = find_tones(part)[part["title"].iloc[0]]
    count = int((part["verdict"] == tone).sum())
    means = {name: format_number(part[name].mean(), 3) for name in ("remaining", "cost")}
    return {"tone": tone, "verdicts": f"{tone} {count}/{len(part)}", **means}
