"""A comparison as one page to look at: verdicts, what remains against what is kept, cost, and every number."""

import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ruler.auditing.report.display import count_records, format_estimate, format_number
from ruler.auditing.report.page import render_template
from ruler.auditing.report.tables import PageTable, show_table
from ruler.experiment.compare.settings import CompareSettings
from ruler.paper.compare.figures import REFERENCES, Drawing, draw_cost, draw_kept, draw_layers, draw_ranks, find_tones
from ruler.paper.compare.table import OWN, Measure, describe
from ruler.paper.results import title_of
from ruler.unlearning import METHODS

if TYPE_CHECKING:
    import pandas as pd

METHOD = Measure("Method", "The method and its settings.")
_TEXTS = {"title": METHOD, "verdicts": Measure("Verdicts", "How often the audit gave which verdict.")}


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
    short = ("outputs_remaining", "layers_remaining", kept, "cost")
    return render(
        "compare.html.j2",
        settings=settings,
        dataset=title_of(settings.dataset) if settings.path is None else settings.path.name,
        n_forget=", ".join(sorted({f"{n:,.0f}" for n in runs["n_forget"].dropna()})),
        places=places,
        headline=_say_headline(runs),
        verdicts=list(_list_verdicts(runs, table, places, short)),
        short=[describe(name).title for name in short],
        is_reported=bool((runs["report"] != "").any()),
        kept=draw_kept(table, tones, kept),
        kept_title=describe(kept).title,
        cost=draw_cost(table, tones),
        layers=draw_layers(runs, tones),
        ranks=[diagram for diagram in _rank(runs, tones, kept) if diagram is not None],
        tones=list(dict.fromkeys(tones.values())),
        numbers=show_numbers(table, _TEXTS, {name: describe(name) for name in (*OWN, *metrics)}),
        estimates=list(_list_estimates(table, metrics)),
        missing=list(_list_missing(missing, runs["title"].nunique())),
        choices=list(_list_choices(choices)),
        n_seen=int((runs.loc[runs["method"] == "original", "seen"] != "").sum()),
        methods=[(title_of(name), METHODS[name]) for name in dict.fromkeys(runs["method"]) if name in METHODS],
    )


def render(template: str, **values: Any) -> str:
    """The text of a page that is one file, as reports are."""
    own = "ruler.paper.compare"
    style = files(own).joinpath("templates", "compare.css").read_text(encoding="utf-8")
    return render_template(template, package=own, more_style=style, **values)


def _list_missing(missing: "pd.DataFrame", n_models: int) -> Iterator[tuple[str, str, str]]:
    """Numbers without a value: of which models, and why."""
    for (metric, reason), part in missing.groupby(["metric", "reason"], sort=False):
        titles = "all models" if len(part) == n_models else ", ".join(part["title"])
        name = str(metric)
        name = name.capitalize() if name in ("verdict", "intervals", "layers") else describe(name).title
        yield name, f"{titles} ({count_records(int(part['runs'].sum()), 'run')})", str(reason)


def _list_choices(choices: "pd.DataFrame") -> Iterator[tuple[str, list[tuple[str, str, int]]]]:
    """Per method: every candidate with its mean score in the rehearsals, or why it has none, and how often it won."""
    for title, part in choices.groupby("title", sort=False):
        rows = []
        for settings, runs in part.groupby("settings", sort=False):
            score = runs["score"].mean()
            text = str(runs["reason"].iloc[0]) if math.isnan(score) else format_number(score, 4)
            rows.append((str(settings), text, int(runs["is_chosen"].sum())))
        yield str(title), rows


def _list_verdicts(
    runs: "pd.DataFrame", table: "pd.DataFrame", places: list[dict[Any, Any]], short: tuple[str, ...]
) -> Iterator[tuple[str, list[tuple[str, str]], list[str]]]:
    """Per method: the verdict of every seed and draw with the place of its report, and means of a few numbers."""
    means = {row["title"]: row for row in table.to_dict("records")}
    for title, part in runs.groupby("title", sort=False):
        of_place = {(run["seed"], run["draw"]): (run["verdict"], run["report"]) for run in part.to_dict("records")}
        numbers = [format_number(means[title][name], 3) for name in short]
        yield str(title), [of_place[place["seed"], place["draw"]] for place in places], numbers


def _say_headline(runs: "pd.DataFrame") -> tuple[str, str]:
    """What the comparison found, in one line, and how far the evidence goes."""
    is_erased = runs["verdict"].eq("erased")
    always = is_erased[~runs["method"].isin(REFERENCES)].groupby(runs["title"], sort=False).all()
    passed, methods = always.index[always], count_records(len(always), "method")
    who = " and ".join(passed) if len(passed) <= 3 else f"{len(passed)} of {methods}"
    verb = "is" if len(passed) < 2 else "are"
    line = f"{who or f'none of {methods}'} {verb} erased in every run"
    retrained = is_erased[runs["method"] == "retrain"]
    if retrained.empty:
        return line, "Retraining is not among the methods, so nothing shows what the best method could get."
    reach = f"Retraining itself is erased in {retrained.sum()} of {count_records(len(retrained), 'run')}"
    return line, f"{reach}: no method can be expected to do better on these records."


def _rank(runs: "pd.DataFrame", tones: Mapping[str, str], kept: str) -> Iterator[Drawing | None]:
    """Methods ranked in every run, by what remains and by what is kept."""
    for name, is_less_better in (("remaining", True), (kept, False)):
        values = runs.pivot(index=["seed", "draw"], columns="title", values=name)[runs["title"].unique()]
        yield draw_ranks(values, tones, describe(name).title, "runs", is_less_better=is_less_better)


def show_numbers(
    table: "pd.DataFrame", texts: Mapping[str, Measure], numbers: Mapping[str, Measure]
) -> PageTable | None:
    """A table of methods that can be sorted: columns of texts, then of numbers; those without a number are left out."""
    kinds = ((texts, "text"), (numbers, "number"))
    columns = {name: (one.title, kind, one.meaning) for part, kind in kinds for name, one in part.items()}
    return show_table(table[list(columns)], "method", columns=columns, n_first=len(table))


def _list_estimates(
    table: "pd.DataFrame", metrics: tuple[str, ...]
) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Per number: its title, its meaning, and every method's mean with its interval."""
    for name in (*OWN, *metrics):
        parts = table[["title", name, f"{name}_low", f"{name}_high"]].itertuples(index=False, name=None)
        yield *describe(name), [(title, format_estimate(value, (low, high), 3)) for title, value, low, high in parts]
