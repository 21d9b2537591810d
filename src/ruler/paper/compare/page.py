"""A comparison as one page to look at: verdicts, what is left against what is kept, cost, and every number."""

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ruler.auditing.report.display import choose_digits, count_records, format_estimate, format_number
from ruler.auditing.report.tables import Column, PageTable
from ruler.core import __version__
from ruler.core.text import show_text
from ruler.experiment.compare.settings import CompareSettings
from ruler.paper.compare.figures import (
    REFERENCES,
    RankDiagram,
    draw_cost,
    draw_kept,
    draw_layers,
    draw_ranks,
    find_tones,
)
from ruler.paper.compare.table import OWN, Measure, describe
from ruler.paper.results import title_of
from ruler.unlearning import METHODS

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = {
    "title": Measure("Method", "The method and its settings."),
    "verdicts": Measure("Verdicts", "How often the audit gave which verdict."),
}


def render_page(
    runs: "pd.DataFrame",
    table: "pd.DataFrame",
    missing: "pd.DataFrame",
    choices: "pd.DataFrame",
    settings: CompareSettings,
) -> str:
    """The text of compare.html."""
    places = runs[["seed", "draw"]].drop_duplicates().to_dict("records")
    metrics, tones = settings.list_metrics(), find_tones(runs)
    kept = "held_out_accuracy" if settings.family == "classifier" else "retain_accuracy"
    return render(
        "compare.html.j2",
        settings=settings,
        dataset=title_of(settings.dataset) if settings.path is None else settings.path.name,
        n_forget=", ".join(sorted({f"{n:,.0f}" for n in runs["n_forget"].dropna()})),
        places=places,
        headline=_say_headline(runs),
        verdicts=_list_verdicts(runs, table, places, ("left", kept, "cost")),
        short=[describe(name).title for name in ("left", kept, "cost")],
        is_reported=bool((runs["report"] != "").any()),
        kept=draw_kept(table, tones, kept),
        kept_title=describe(kept).title,
        cost=draw_cost(table, tones),
        layers=draw_layers(runs, tones),
        ranks=[diagram for diagram in _rank(runs, tones, kept) if diagram is not None],
        tones=list(dict.fromkeys(tones.values())),
        numbers=show_numbers(table, _TEXTS, {name: describe(name) for name in (*OWN, *metrics)}),
        estimates=_list_estimates(table, metrics),
        missing=_list_missing(missing, runs["title"].nunique()),
        choices=_list_choices(choices),
        n_seen=int((runs.loc[runs["method"] == "original", "seen"] != "").sum()),
        methods=[(title_of(name), METHODS[name]) for name in dict.fromkeys(runs["method"]) if name in METHODS],
    )


def render(template: str, **values: Any) -> str:
    """The text of a page, one file whose content policy lets nothing out and runs only the script it carries."""
    from markupsafe import Markup

    templates = files("ruler.auditing.report").joinpath("templates")
    style = templates.joinpath("style.css").read_text(encoding="utf-8")
    style += files("ruler.paper.compare").joinpath("templates", "compare.css").read_text(encoding="utf-8")
    script = templates.joinpath("tables.js").read_text(encoding="utf-8")
    for name, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        values |= {name: Markup(text), f"{name}_hash": Markup(f"sha256-{digest}")}
    page = _environment().get_template(template).render(**values)
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
    return {"verdict": "Verdict", "intervals": "Intervals", "layers": "Layers"}.get(metric) or describe(metric).title


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


def _list_verdicts(
    runs: "pd.DataFrame", table: "pd.DataFrame", places: list[dict[Any, Any]], short: tuple[str, ...]
) -> list[tuple[str, list[tuple[str, str]], list[str]]]:
    """Per method: the verdict of every seed and draw with the place of its report, and means of a few numbers."""
    found = []
    means = {row["title"]: row for row in table.to_dict("records")}
    for title, part in runs.groupby("title", sort=False):
        of_place = {(run["seed"], run["draw"]): (run["verdict"], run["report"]) for run in part.to_dict("records")}
        numbers = [format_number(means[title][name], 3) for name in short]
        found.append((str(title), [of_place[place["seed"], place["draw"]] for place in places], numbers))
    return found


def _say_headline(runs: "pd.DataFrame") -> tuple[str, str]:
    """What the comparison found, in one line, and how far the evidence goes."""
    of_method = runs[~runs["method"].isin(REFERENCES)].groupby("title", sort=False)["verdict"]
    passed = [str(title) for title, verdicts in of_method if (verdicts == "erased").all()]
    n_methods = len(of_method)
    if not passed:
        line = f"none of {count_records(n_methods, 'method')} is erased in every run"
    elif len(passed) <= 3:
        line = f"{' and '.join(passed)} {'is' if len(passed) == 1 else 'are'} erased in every run"
    else:
        line = f"{len(passed)} of {count_records(n_methods, 'method')} are erased in every run"
    retrained = runs.loc[runs["method"] == "retrain", "verdict"]
    if retrained.empty:
        return line, "Retraining is not among the methods, so nothing shows what the best method could get."
    n_erased = int((retrained == "erased").sum())
    reach = f"Retraining itself is erased in {n_erased} of {count_records(len(retrained), 'run')}"
    return line, f"{reach}: no method can be expected to do better on these records."


def _rank(runs: "pd.DataFrame", tones: Mapping[str, str], kept: str) -> Iterator[RankDiagram | None]:
    """Methods ranked in every run, by what is left and by what is kept."""
    for name, is_less_better in (("left", True), (kept, False)):
        values = runs.pivot(index=["seed", "draw"], columns="title", values=name)[runs["title"].unique()]
        yield draw_ranks(values, tones, describe(name).title, "runs", is_less_better=is_less_better)


def show_numbers(table: "pd.DataFrame", texts: Mapping[str, Measure], numbers: Mapping[str, Measure]) -> PageTable:
    """A table of methods that can be sorted: columns of texts, then of numbers; those without a number are left out."""
    numbers = {name: measure for name, measure in numbers.items() if not table[name].isna().all()}
    columns = (
        *(Column(name, one.title, "text", one.meaning, 0) for name, one in texts.items()),
        *(Column(name, one.title, "number", one.meaning, choose_digits(table[name])) for name, one in numbers.items()),
    )
    values: dict[str, list[Any]] = {name: [*map(show_text, table[name])] for name in texts}
    for name in numbers:
        values[name] = [None if math.isnan(one) else float(f"{one:.9g}") for one in table[name]]
    cells = (
        values[column.key]
        if column.kind == "text"
        else [format_number(one, column.digits) for one in values[column.key]]
        for column in columns
    )
    return PageTable(
        noun="method",
        n_rows=len(table),
        columns=columns,
        first=tuple(zip(*cells, strict=True)),
        data={"noun": "method", "plain": [], "columns": [vars(column) for column in columns], "values": values},
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
