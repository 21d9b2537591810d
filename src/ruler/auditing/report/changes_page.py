"""Reports side by side as one page, under the same content policy as report.html."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.auditing.findings import MetricFinding, Report
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.report import display, wording
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Tick, fit_around_half
from ruler.auditing.report.page import describe_sizes, identify, render_template
from ruler.auditing.report.tables import PageTable, show_table
from ruler.auditing.verdict import count_flagged

if TYPE_CHECKING:
    pass

_STEP = 44.0  # between the reports of one contrast
_GROUP = 78.0  # above each contrast
_MOST_LETTERS = 24  # of a report's name in a drawing


@dataclass(frozen=True)
class Effect:
    """One contrast in one report."""

    name: str
    metric: MetricFinding
    y: float


@dataclass(frozen=True)
class EffectsFigure:
    """AUC of every deciding contrast in every report; ``margin`` is None where reports differ in it."""

    groups: tuple[tuple[str, float, tuple[Effect, ...]], ...]
    axis: Axis
    ticks: tuple[Tick, ...]
    height: float
    margin: float | None


def render_changes(reports: Mapping[str, Report], changes: Sequence[str]) -> str:
    """The text of the page.

    Args:
        reports: By name, in the order of time.
        changes: Sentences of `compare_reports`.
    """
    verdicts = list(dict.fromkeys(report.verdict for report in reports.values()))
    headline = f"The verdict is {verdicts[0]} in {'both' if len(reports) == 2 else 'all'} reports."
    if len(verdicts) > 1:
        told = [report.verdict for report in reports.values()]
        headline = f"The verdict changed from {told[0]} to {told[-1]}."
        if len(reports) > 2:
            headline = f"The verdicts are {wording.join_names(told)}, in this order."
    return render_template(
        "changes.html.j2",
        reports=reports,
        last=list(reports.values())[-1],
        headline=headline,
        changes=changes,
        conditions=_compare_rows([_list_conditions(report) for report in reports.values()]),
        results=_compare_rows([_list_results(report) for report in reports.values()]),
        effects=draw_effects(reports),
        records=_list_records(reports),
    )


def draw_effects(reports: Mapping[str, Report]) -> EffectsFigure | None:
    """The deciding contrasts of all reports on one scale; None where no AUC is known."""
    found: dict[str, list[tuple[str, MetricFinding]]] = {}
    for name, report in reports.items():
        for metric in wording.list_metrics(report, is_deciding=True):
            if math.isfinite(metric.effect):
                found.setdefault(metric.name, []).append((name, metric))
    if not found:
        return None
    groups, y = [], 0.0
    for contrast, rows in found.items():
        y += _GROUP
        places = enumerate(rows)
        effects = tuple(Effect(_shorten(name), metric, y + _STEP * place) for place, (name, metric) in places)
        groups.append((wording.title_contrast(contrast), y - 36.0, effects))
        y += _STEP * (len(rows) - 1)
    metrics = [metric for rows in found.values() for _, metric in rows]
    margins = {report.settings.margin for report in reports.values()}
    ends = [end for metric in metrics for end in (metric.effect, *metric.effect_interval)]
    axis = fit_around_half(ends, max(margins), start=EDGE, stop=WIDTH - EDGE)
    margin = margins.pop() if len(margins) == 1 else None
    return EffectsFigure(tuple(groups), axis, axis.find_ticks(6), y + 24.0, margin)


def _shorten(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}\u2026"


def _list_conditions(report: Report) -> dict[str, str]:
    """What the numbers of a report rest on."""
    settings, n_oracles = report.settings, report.provenance.get("n_oracles", 1)
    return {
        **dict(identify(report)),
        **{f"{side.capitalize().replace('_', '-')} records": n for side, n in describe_sizes(report).items()},
        "Oracles": str(n_oracles) if report.pairing is not None else "not given",
        "Original model": "given" if wording.has_original(report) else "not given",
        "Margin": f"{settings.margin:g}",
        "Error rate": f"{settings.alpha:g}",
        "Limit of the share left": f"{settings.share_limit:.0%}",
    }


def _list_results(report: Report) -> dict[str, str]:
    """What was found, contrast by contrast and beside them."""
    rows = {
        wording.title_contrast(metric.name): f"{display.format_estimate(metric.effect, metric.effect_interval)}, "
        f"{wording.name_verdict(metric)}"
        for metric in wording.list_metrics(report, is_deciding=True)
    }
    rows["Records that stand out"] = f"{count_flagged(report):,} of {len(report.records):,}"
    if report.damage is not None:
        rows["Linear CKA to the oracle"] = display.format_number(report.damage.similarity, 2)
        rows["Skill"] = display.format_number(report.damage.skill, 2)
    if report.privacy is not None:
        rows["Epsilon is at least"] = display.format_number(report.privacy.epsilon, 2)
    rows["Guards"] = ", ".join(guard.name.replace("_", " ") for guard in wording.sort_guards(report.guards)) or "none"
    return rows


def _compare_rows(columns: Sequence[Mapping[str, str]]) -> list[tuple[str, list[str], bool]]:
    """Per row its name, what each report says, and whether they differ."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, [column.get(name, display.DASH) for column in columns]) for name in names]
    return [(name, cells, len(set(cells)) > 1) for name, cells in rows]


def _list_records(reports: Mapping[str, Report]) -> PageTable | None:
    """Records that are judged otherwise in one report than in another: their finding in each; None without any."""
    import pandas as pd

    found: dict[str, pd.Series[str]] = {}
    for number, (name, report) in enumerate(reports.items(), 1):
        own = report.records.drop_duplicates("id").set_index("id")["finding"]
        found[name if name != "id" else f"report {number}"] = own.fillna(NOT_JUDGED)
    table = pd.DataFrame(found).fillna("not in this report")
    is_flagged = ~table.isin([ALIKE, NOT_JUDGED, "not in this report"])
    moved = table[is_flagged.nunique(axis=1) > 1]
    return show_table(moved.rename_axis("id").reset_index(), "record")
