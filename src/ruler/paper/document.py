"""The page that says what was measured, how long it took, and where and why it differs from the paper."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically
from ruler.paper.explanations import explain
from ruler.paper.names import rank_of, title_of
from ruler.paper.results import split_by
from ruler.paper.tables import TABLES
from ruler.paper.tolerances import find_tolerance
from ruler.paper.typeset import escape_markdown

if TYPE_CHECKING:
    import pandas as pd

_NOT_RECORDED = "not recorded"


def write_document(results: "pd.DataFrame", comparison: "pd.DataFrame", path: Path) -> None:
    """Write the reproduction page as Markdown; the same results always give the same page.

    Args:
        results: Results, one row a finished cell.
        comparison: Ours beside the published numbers, from ``compare_numbers``.
        path: The file.
    """
    sections = [_introduce(comparison), _describe_runs(results), _count_agreement(comparison)]
    sections += [
        _describe_table(name, comparison[comparison["table"] == name], results)
        for name in dict.fromkeys(comparison["table"])
        if name in TABLES
    ]
    sections.append(_list_unmeasured(comparison))
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


def _describe_runs(results: "pd.DataFrame") -> list[str]:
    lines = ["## Runs", ""]
    if results.empty:
        return [*lines, "No cell is finished.", ""]
    header = (
        "Study",
        "Cells",
        "Datasets",
        "Methods",
        "Forget fractions",
        "Seeds",
        "Settings",
        "Engine",
        "Machine",
        "Work",
        "Wall",
    )
    rows = [_describe_study(keys["study"], runs) for keys, runs in split_by(results, "study")]
    lines += _table(header, rows)
    lines += [
        "",
        "Work: seconds summed over cells. Wall: seconds from the first cell's start to the last one's end.",
        "",
    ]
    for column, label in (
        ("device", "Device"),
        ("ruler_version", "RULER"),
        ("torch_version", "PyTorch"),
        ("commit", "Commit"),
        ("models", "Models"),
    ):
        lines.append(f"- {label}: {_list_values(results, column)}")
    return [*lines, ""]


def _describe_study(study: str, runs: "pd.DataFrame") -> list[str]:
    methods = sorted(runs["method"].unique(), key=lambda name: rank_of("method", name))
    fractions = sorted(runs["forget_fraction"].unique())
    return [
        study,
        str(len(runs)),
        str(runs["dataset"].nunique()),
        ", ".join(title_of(name) for name in methods),
        ", ".join(f"{100 * fraction:g}%" for fraction in fractions),
        str(len({*runs["seed"].dropna(), *runs["other_seed"].dropna()})),
        _state_settings(runs),
        _list_values(runs, "engine"),
        _list_values(runs, "machine"),
        *_state_seconds(runs),
    ]


def _state_seconds(runs: "pd.DataFrame") -> tuple[str, str]:
    """Seconds of work, and from start to end; a run that was resumed counts its pause."""
    if "elapsed_s" not in runs:
        return _NOT_RECORDED, _NOT_RECORDED
    import pandas as pd

    work = f"{runs['elapsed_s'].sum():.0f}"
    if "finished_at" not in runs:
        return work, _NOT_RECORDED
    ends = pd.to_datetime(runs["finished_at"], utc=True, format="ISO8601")
    starts = ends - pd.to_timedelta(runs["elapsed_s"], unit="s")
    return work, f"{(ends.max() - starts.min()).total_seconds():.0f}"


def _state_settings(runs: "pd.DataFrame") -> str:
    parts = []
    for column, label in (
        ("learning_rate", "learning rate"),
        ("batch_size", "batch size"),
        ("forget_seed", "forget-set seed"),
        ("teacher_seed", "teacher seed"),
    ):
        values = sorted(runs[column].dropna().unique())
        parts += [f"{label} {', '.join(f'{value:g}' for value in values)}"] if len(values) else []
    return "; ".join(parts)


def _list_values(runs: "pd.DataFrame", column: str) -> str:
    values = sorted(set(runs[column].dropna().astype(str))) if column in runs else []
    return ", ".join(values) or _NOT_RECORDED


def _count_agreement(comparison: "pd.DataFrame") -> list[str]:
    rows = []
    for name, part in comparison.groupby("table", sort=False):
        judged = part["agrees"].dropna()
        counts = (len(part), int(part["ours"].notna().sum()), len(judged), int(judged.sum()))
        rows.append([_name(str(name)), *map(str, counts), str(len(judged) - int(judged.sum()))])
    header = ("Table", "Numbers", "Measured", "Judged", "Agree", "Differ")
    return ["## Agreement", "", *_table(header, rows), ""]


def _describe_table(name: str, part: "pd.DataFrame", results: "pd.DataFrame") -> list[str]:
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
    return lines + (_list_differences(differing, results) if len(differing) else [])


def _state_tolerances(judged: "pd.DataFrame") -> list[str]:
    found: dict[tuple[str, str], set[str]] = {}
    for row in _records(judged):
        tolerance = find_tolerance(row)
        if tolerance is not None:
            found.setdefault((str(tolerance), tolerance.reason), set()).add(row["column"])
    rows = [[", ".join(f"`{name}`" for name in sorted(names)), *key] for key, names in found.items()]
    return _table(("Numbers", "Tolerance", "Why"), rows, escaped=(1, 2))


def _list_differences(differing: "pd.DataFrame", results: "pd.DataFrame") -> list[str]:
    engines = {keys["study"]: frozenset(runs["engine"].astype(str)) for keys, runs in split_by(results, "study")}
    reasons: dict[str, int] = {}
    rows = []
    for row in _records(differing):
        marks = sorted(reasons.setdefault(text, len(reasons) + 1) for text in explain(row, _engines_of(row, engines)))
        cells = [row["row"], f"`{row['column']}`", _print_paper(row), _print(row["ours"]), _print(row["difference"])]
        rows.append([*cells, ", ".join(map(str, marks)) or "not known", row["note"]])
    header = ("Row", "Number", "Paper", "Ours", "Difference", "Reason", "Note")
    listed = [f"{mark}. {escape_markdown(text)}" for text, mark in reasons.items()]
    lines = ["Where ours differs:", "", *_table(header, rows, escaped=(0, 2, 6)), ""]
    return [*lines, "Possible reasons:", "", *listed, ""] if listed else lines


def _engines_of(row: dict[str, Any], engines: dict[str, frozenset[str]]) -> frozenset[str]:
    studies = {row["study"], *(TABLES[row["table"]].studies if row["table"] != "text" else ())}
    return frozenset(engine for study in studies for engine in engines.get(study, ()))


def _list_unmeasured(comparison: "pd.DataFrame") -> list[str]:
    missing = comparison[comparison["n"].isna()]
    if missing.empty:
        return []
    header = ("Table", "Study", "Numbers", "Why")
    groups = missing.groupby(["table", "study", "note"], sort=False).size().reset_index(name="n")
    rows = [[_name(group["table"]), group["study"], str(group["n"]), group["note"]] for group in _records(groups)]
    return ["## Not measured", "", *_table(header, rows)]


def _records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    return [{str(key): value for key, value in record.items()} for record in frame.to_dict("records")]


def _name(table: str) -> str:
    return "Text and captions" if table == "text" else f"Table {table}"


def _print(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.4g}"


def _print_paper(row: dict[str, Any]) -> str:
    relation = row["relation"] if row["relation"] != "=" else ""
    return f"{relation}{_print(row['paper'])}"


def _table(header: Iterable[str], rows: Iterable[list[str]], escaped: tuple[int, ...] = ()) -> list[str]:
    names = list(header)
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for row in rows:
        cells = [escape_markdown(cell) if index in escaped else cell for index, cell in enumerate(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
