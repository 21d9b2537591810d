"""Reports side by side as one page, under the same content policy as report.html."""

from collections.abc import Mapping, Sequence

from ruler.auditing.findings import Report
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.report import display, words
from ruler.auditing.report.figures import draw_across
from ruler.auditing.report.page import describe_sizes, identify, render_template
from ruler.auditing.report.tables import PageTable, show_table
from ruler.auditing.verdict import count_flagged

_MOST_LETTERS = 14  # of a report's name in a drawing


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
            headline = f"The verdicts are {words.join_names(told)}, in this order."
    return render_template(
        "changes.html.j2",
        reports=reports,
        last=list(reports.values())[-1],
        headline=headline,
        changes=changes,
        conditions=_compare_rows([_list_conditions(report) for report in reports.values()]),
        results=_compare_rows([_list_results(report) for report in reports.values()]),
        across=draw_across(_shorten(reports)),
        records=_list_records(reports),
    )


def _shorten(names: Mapping[str, Report]) -> dict[str, Report]:
    """Reports by names that fit a drawing; names that would become the same are numbered."""
    short = {}
    for number, (name, report) in enumerate(names.items(), 1):
        fits = name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}\u2026"
        short[fits if fits not in short else f"report {number}"] = report
    return short


def _list_conditions(report: Report) -> dict[str, str]:
    """What the numbers of a report rest on."""
    settings, given = report.settings, report.given
    return {
        **dict(identify(report)),
        **{f"{side.capitalize().replace('_', '-')} records": n for side, n in describe_sizes(report).items()},
        "Oracles": str(given.oracle) if given.oracle else "not given",
        "References": str(given.reference) if given.reference else "not given",
        "Original": "given" if given.original else "not given",
        "Losses": "given" if given.losses else "not given",
        "Limit": words.format_percent(settings.limit),
        "Confidence": words.format_percent(settings.confidence),
        "Scope": settings.scope,
        "Control": settings.control,
        "Error rate": f"{settings.alpha:g}",
    }


def _list_results(report: Report) -> dict[str, str]:
    """What was found, contrast by contrast and beside them."""
    rows = {
        title: f"{words.format_remaining(one.remaining)}, {one.verdict}"
        for title, one in ((words.FAMILIES["outputs"], report.outputs), (words.FAMILIES["layers"], report.layers))
    }
    for metric in words.list_metrics(report, is_deciding=True):
        title, verdict = words.title_contrast(metric.name), words.name_verdict(metric)
        rows[f"{title}, AUC"] = f"{words.describe_part(metric, 'place')}, {verdict}"
        rows |= {
            f"{title}, {words.SCALES[one.scale]}": f"{words.format_remaining(one)}, {verdict}"
            for one in metric.remaining.values()
        }
    rows["Records that stand out"] = f"{count_flagged(report):,} of {len(report.records):,}"
    if report.damage is not None:
        rows["Linear CKA to the oracle"] = display.format_number(report.damage.similarity, 2)
        rows["Skill"] = display.format_number(report.damage.skill, 2)
    if report.privacy is not None:
        rows["Epsilon is at least"] = display.format_number(report.privacy.epsilon, 2)
    rows["Guards"] = ", ".join(guard.name.replace("_", " ") for guard in words.sort_guards(report.guards)) or "none"
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
