"""A comparison as one page to look at: verdicts, what is left against what is kept, cost, and every number."""

import base64
import hashlib
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ruler.auditing.report.display import choose_digits, count_records, format_estimate, format_number
from ruler.auditing.report.figures.axes import Axis, Tick
from ruler.auditing.report.tables import Column, PageTable
from ruler.core import __version__
from ruler.core.terminal import show_text
from ruler.experiment.compare.settings import CompareSettings
from ruler.paper.compare.table import OWN, describe
from ruler.paper.results import title_of
from ruler.unlearning import METHODS

if TYPE_CHECKING:
    import pandas as pd

_PLOT = {"left": 52.0, "right": 560.0, "top": 16.0, "low": 330.0, "labels": 600.0}
_LINE = 17.0  # of a label beside the plot
_COST_LINE = 24.0
_WIDEST = 0.25  # range of accuracies in the plot: one broken model would squeeze all others into a corner


@dataclass(frozen=True)
class Point:
    """A method in the plot; its label stands in a column beside it."""

    title: str
    colour: str
    x: float
    y: float
    label_y: float
    words: str


@dataclass(frozen=True)
class Plot:
    """What is left against what is kept."""

    points: tuple[Point, ...]
    frontier: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    height: float
    note: str


@dataclass(frozen=True)
class Bar:
    """A method's cost."""

    title: str
    colour: str
    y: float
    width: float
    text: str


def render_page(
    runs: "pd.DataFrame",
    table: "pd.DataFrame",
    missing: "pd.DataFrame",
    choices: "pd.DataFrame",
    settings: CompareSettings,
) -> str:
    """The text of compare.html, one file whose content policy lets nothing out and runs only the script it carries."""
    from markupsafe import Markup

    templates = files("ruler.auditing.report").joinpath("templates")
    style = templates.joinpath("style.css").read_text(encoding="utf-8")
    style += files("ruler.paper.compare").joinpath("templates", "compare.css").read_text(encoding="utf-8")
    script = templates.joinpath("tables.js").read_text(encoding="utf-8")
    hashes = {
        f"{name}_hash": Markup("sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode())
        for name, text in (("style", style), ("script", script))
    }
    places = runs[["seed", "draw"]].drop_duplicates().to_dict("records")
    metrics = settings.list_metrics()
    page = (
        _environment()
        .get_template("compare.html.j2")
        .render(
            settings=settings,
            dataset=title_of(settings.dataset) if settings.path is None else settings.path.name,
            n_forget=", ".join(sorted({f"{n:,.0f}" for n in runs["n_forget"].dropna()})),
            places=places,
            verdicts=_list_verdicts(runs, places),
            plot=draw_plot(table),
            bars=draw_costs(table),
            numbers=show_numbers(table, metrics),
            estimates=_list_estimates(table, metrics),
            missing=_list_missing(missing, runs["title"].nunique()),
            choices=_list_choices(choices),
            n_seen=int((runs.loc[runs["method"] == "original", "seen"] != "").sum()),
            methods=[(title_of(name), METHODS[name]) for name in dict.fromkeys(runs["method"]) if name in METHODS],
            style=Markup(style),
            script=Markup(script),
            **hashes,
        )
    )
    return str(page).rstrip() + "\n"


@cache
def _environment() -> Any:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=ChoiceLoader([PackageLoader("ruler.paper.compare"), PackageLoader("ruler.auditing.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: show_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(version=__version__, plain=[])
    environment.filters.update(records=count_records)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _name(metric: str) -> str:
    return {"verdict": "Verdict", "intervals": "Intervals"}.get(metric) or describe(metric).title


def _list_missing(missing: "pd.DataFrame", n_models: int) -> list[tuple[str, str, str]]:
    """Numbers without a value: of which models, and why."""
    found = []
    for (metric, reason), part in missing.groupby(["metric", "reason"], sort=False):
        titles = "all models" if len(part) == n_models else ", ".join(part["title"])
        found.append((_name(str(metric)), f"{titles} ({count_records(int(part['runs'].sum()), 'run')})", str(reason)))
    return found


def _list_choices(choices: "pd.DataFrame") -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Per method: every candidate with its mean score in the rehearsals, or why it has none, and how often it won."""
    found = []
    for title, part in choices.groupby("title", sort=False):
        rows = []
        for settings, runs in part.groupby("settings", sort=False):
            score = runs["score"].mean()
            text = str(runs["reason"].iloc[0]) if math.isnan(score) else format_number(score, 4)
            rows.append((str(settings), text, int(runs["is_chosen"].sum())))
        found.append((str(title), rows))
    return found


def _colour(method: str) -> str:
    return METHODS[method].colour if method in METHODS else "#777777"


def _list_verdicts(runs: "pd.DataFrame", places: list[dict[Any, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Per method and settings, the verdict of every seed and draw, and where the audit's report lies."""
    found = []
    for title, part in runs.groupby("title", sort=False):
        of_place = {(run["seed"], run["draw"]): (run["verdict"], run["report"]) for run in part.to_dict("records")}
        found.append((str(title), [of_place[place["seed"], place["draw"]] for place in places]))
    return found


def draw_plot(table: "pd.DataFrame") -> Plot | None:
    """What is left against held-out accuracy, and the frontier of methods that no other one beats in both."""
    known = [row for row in table.to_dict("records") if not math.isnan(row["left"] + row["held_out_accuracy"])]
    if not known:
        return None
    kept = [row["held_out_accuracy"] for row in known]
    pad = max(0.01, 0.05 * min(max(kept) - min(kept), _WIDEST))
    low = max(0.0, min(kept) - pad, max(kept) - _WIDEST)
    x = Axis(low, min(1.0, max(kept) + pad), _PLOT["left"], _PLOT["right"])
    y = Axis(0.0, max(0.1, 1.1 * max(row["left"] for row in known)), _PLOT["low"], _PLOT["top"])
    known.sort(key=lambda row: -row["left"])
    first = max(_PLOT["top"], (_PLOT["top"] + _PLOT["low"] - _LINE * len(known)) / 2) + 4
    points = tuple(
        Point(
            title=row["title"],
            colour=_colour(row["method"]),
            x=x.place(row["held_out_accuracy"]),
            y=y.place(row["left"]),
            label_y=round(first + _LINE * place, 1),
            words=f"{row['title']}: left {row['left']:.3f}, held-out accuracy {row['held_out_accuracy']:.3f}",
        )
        for place, row in enumerate(known)
    )
    best, frontier = math.inf, []
    for row in sorted(known, key=lambda row: (-row["held_out_accuracy"], row["left"])):
        if row["left"] < best:
            best = row["left"]
            frontier.append(f"{x.place(row['held_out_accuracy'])} {y.place(best)}")
    height = max(_PLOT["low"] + 44, first + _LINE * len(known))
    n_beyond = sum(one < low for one in kept)
    note = f"{count_records(n_beyond, 'model')} below {low:.2f} at the left edge." if n_beyond else ""
    return Plot(points, "M" + " L".join(frontier), x.find_ticks(), y.find_ticks(), height, note)


def draw_costs(table: "pd.DataFrame") -> tuple[tuple[Bar, ...], float] | None:
    """Bars of cost, and where retraining's own cost of 1 stands."""
    known = [row for row in table.to_dict("records") if row["method"] != "original" and not math.isnan(row["cost"])]
    if not known:
        return None
    most = max(1.0, *(row["cost"] for row in known))
    bars = [
        Bar(
            title=row["title"],
            colour=_colour(row["method"]),
            y=_COST_LINE * place,
            width=round(320 * row["cost"] / most, 1),
            text=format_estimate(row["cost"], (row["cost_low"], row["cost_high"])),
        )
        for place, row in enumerate(sorted(known, key=lambda row: row["cost"]))
    ]
    return tuple(bars), round(320 / most, 1)


def show_numbers(table: "pd.DataFrame", metrics: tuple[str, ...]) -> PageTable:
    """The means as a table that can be sorted."""
    names = [name for name in (*OWN, *metrics) if not table[name].isna().all()]
    columns = (
        Column("title", "Method", "text", "The method and its settings.", 0),
        Column("verdicts", "Verdicts", "text", "How often the audit gave which verdict.", 0),
        *(
            Column(name, describe(name).title, "number", describe(name).meaning, choose_digits(table[name]))
            for name in names
        ),
    )
    values = {"title": [*map(show_text, table["title"])], "verdicts": [*map(show_text, table["verdicts"])]}
    numbers = {name: [None if math.isnan(one) else float(f"{one:.9g}") for one in table[name]] for name in names}
    digits = {column.key: column.digits for column in columns}
    cells = [
        *values.values(),
        *([format_number(one, digits[name]) for one in numbers[name]] for name in names),
    ]
    return PageTable(
        noun="method",
        n_rows=len(table),
        columns=columns,
        first=tuple(zip(*cells, strict=True)),
        data={
            "noun": "method",
            "plain": [],
            "columns": [vars(column) for column in columns],
            "values": {**values, **numbers},
        },
        findings=(),
        is_clipped=False,
    )


def _list_estimates(table: "pd.DataFrame", metrics: tuple[str, ...]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Per number: its title, its meaning, and every method's mean with its interval."""
    found = []
    for name in (*OWN, *metrics):
        rows = [
            (row["title"], format_estimate(row[name], (row[f"{name}_low"], row[f"{name}_high"]), 3))
            for row in table.to_dict("records")
        ]
        found.append((describe(name).title, describe(name).meaning, rows))
    return found
