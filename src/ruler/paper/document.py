"""The page that says what was measured, how long it took, and where and why it differs from the paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically
from ruler.paper.diagnostics.sections import describe_diagnostics
from ruler.paper.explanations import explain, find_traits
from ruler.paper.markdown import print_number, table_lines
from ruler.paper.plan import list_missing
from ruler.paper.results import split_by
from ruler.paper.runs import describe_runs
from ruler.paper.tables import TABLES
from ruler.paper.tolerances import find_tolerance
from ruler.paper.typeset import escape_markdown

if TYPE_CHECKING:
    import pandas as pd


Traits = dict[str, frozenset[str]]  # by study


def write_document(results: "pd.DataFrame", comparison: "pd.DataFrame", path: Path) -> None:
    """Write the reproduction page as Markdown; the same results always give the same page.

    Args:
        results: Results, one row a finished cell.
        comparison: Ours beside the published numbers, from ``compare_numbers``.
        path: The file.
    """
    sections = [_introduce(comparison), describe_runs(results), _count_agreement(comparison)]
    traits = {keys["study"]: find_traits(runs) for keys, runs in split_by(results, "study")}
    sections += [
        _describe_table(name, comparison[comparison["table"] == name], traits)
        for name in dict.fromkeys(comparison["table"])
        if name in TABLES
    ]
    sections += [describe_diagnostics(results, comparison), _list_unmeasured(results, comparison)]
    write_atomically(path, "\n".join(line for section in sections for line in section).rstrip() + "\n")


def _introduce(comparison: "pd.DataFrame") -> list[str]:
    judged = comparison["agrees"].dropna()
    return [
        "# Reproduction of the paper",
        "",
        "Written by `ruler reproduce` from its results: run it again rather than edit this page.",
        "",
        f"The paper prints {len(comparison)} numbers. {int(comparison['ours'].notna().sum())} of them were measured "
        f"here, {len(judged)} on as many runs as the paper's and so judged: **{int(judged.sum())} agree, "
        f"{len(judged) - int(judged.sum())} differ**. Each number stands in `comparison.csv`.",
        "",
    ]


def _count_agreement(comparison: "pd.DataFrame") -> list[str]:
    rows = []
    for name, part in comparison.groupby("table", sort=False):
        judged = part["agrees"].dropna()
        counts = (len(part), int(part["ours"].notna().sum()), len(judged), int(judged.sum()))
        rows.append([_name(str(name)), *map(str, counts), str(len(judged) - int(judged.sum()))])
    header = ("Table", "Numbers", "Measured", "Judged", "Agree", "Differ")
    return ["## Agreement", "", *table_lines(header, rows), ""]


def _describe_table(name: str, part: "pd.DataFrame", traits: Traits) -> list[str]:
    lines = [f"## {_name(name)}: {TABLES[name].title}", ""]
    measured = part[part["n"].notna()]
    if measured.empty:
        return [*lines, "Not run.", ""]
    judged = measured[measured["agrees"].notna()]
    if judged.empty:
        return [*lines, "Measured, but not on as many runs as the paper's, and so not judged.", ""]
    lines += [f"{int(judged['agrees'].sum())} of {len(judged)} judged numbers agree.", ""]
    lines += [*_state_tolerances(judged), ""]
    differing = judged[~judged["agrees"].astype(bool)]
    return lines + (_list_differences(differing, traits) if len(differing) else [])


def _state_tolerances(judged: "pd.DataFrame") -> list[str]:
    found: dict[tuple[str, str], set[str]] = {}
    for row in _records(judged):
        tolerance = find_tolerance(row)
        if tolerance is not None:
            found.setdefault((str(tolerance), tolerance.reason), set()).add(row["column"])
    rows = [[", ".join(f"`{name}`" for name in sorted(names)), *key] for key, names in found.items()]
    return table_lines(("Numbers", "Tolerance", "Why"), rows, escaped=(1, 2))


def _list_differences(differing: "pd.DataFrame", traits: Traits) -> list[str]:
    reasons: dict[str, int] = {}
    rows = []
    for row in _records(differing):
        marks = sorted(reasons.setdefault(text, len(reasons) + 1) for text in explain(row, _traits_of(row, traits)))
        cells = [
            row["row"],
            f"`{row['column']}`",
            _print_paper(row),
            print_number(row["ours"]),
            print_number(row["difference"]),
        ]
        rows.append([*cells, ", ".join(map(str, marks)) or "not known", row["note"]])
    header = ("Row", "Number", "Paper", "Ours", "Difference", "Reason", "Note")
    listed = [f"{mark}. {escape_markdown(text)}" for text, mark in reasons.items()]
    lines = ["Where ours differs:", "", *table_lines(header, rows, escaped=(0, 2, 6)), ""]
    return [*lines, "Possible reasons:", "", *listed, ""] if listed else lines


def _traits_of(row: dict[str, Any], traits: Traits) -> frozenset[str]:
    studies = {row["study"], *(TABLES[row["table"]].studies if row["table"] != "text" else ())}
    return frozenset(trait for study in studies for trait in traits.get(study, ()))


def _list_unmeasured(results: "pd.DataFrame", comparison: "pd.DataFrame") -> list[str]:
    missing = comparison[comparison["n"].isna()]
    header = ("Table", "Study", "Numbers", "Why")
    groups = missing.groupby(["table", "study", "note"], sort=False).size().reset_index(name="n")
    rows = [[_name(group["table"]), group["study"], str(group["n"]), group["note"]] for group in _records(groups)]
    numbers = ["Numbers of the paper:", "", *table_lines(header, rows), ""] if rows else []
    cells = list_missing(results)
    return ["## Not measured", "", *cells, *numbers] if cells or numbers else []


def _records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    return [{str(key): value for key, value in record.items()} for record in frame.to_dict("records")]


def _name(table: str) -> str:
    return "Text and captions" if table == "text" else f"Table {table}"


def _print_paper(row: dict[str, Any]) -> str:
    relation = row["relation"] if row["relation"] != "=" else ""
    return f"{relation}{print_number(row['paper'])}"
