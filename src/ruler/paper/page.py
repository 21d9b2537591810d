"""The page of a run: what agrees with the paper, every number that does not, findings, verdicts, and what was run."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically
from ruler.experiment.grid import list_cells
from ruler.experiment.studies import STUDIES
from ruler.paper.comparison import list_tolerances
from ruler.paper.findings import RULE
from ruler.paper.results import (
    CELL,
    DIAGNOSTIC_STUDIES,
    gather_conditions,
    is_of_full_size,
    rank_of,
    split_by,
    title_of,
)
from ruler.paper.tables import TABLES, arrange
from ruler.paper.tables.diagnostics import tell_size
from ruler.paper.tables.numbers import as_frame
from ruler.paper.typeset import escape_markdown, list_rows, print_if_known, to_markdown_rows

if TYPE_CHECKING:
    import pandas as pd

NOT_RECORDED = "not recorded"
_MOST_UNJUDGED = 200
_NUMBER = ("Table", "Row", "Number", "Paper", "Ours")
_PROVENANCE = {
    "device": "Device",
    "precision": "Precision",
    "model": "Pretrained model",
    "models": "Models",
    "ruler_version": "RULER",
    "torch_version": "PyTorch",
    "commit": "Commit",
    "note": "Note",
}
_SETTINGS = {
    "learning_rate": "learning rate",
    "batch_size": "batch size",
    "forget_seed": "forget-set seed",
    "teacher_seed": "teacher seed",
}


def write_page(results: "pd.DataFrame", comparison: "pd.DataFrame", findings: "pd.DataFrame", path: Path) -> None:
    """Write the page of checked results as Markdown; the same results always give the same page."""
    sections = [
        _count_agreement(comparison),
        _list_differences(comparison),
        _list_unjudged(comparison),
        _describe_findings(findings),
        _list_verdicts(results),
        *(_set_table(name, results) for name in ("face_controls", "clinical_leak", "language_models")),
        _describe_runs(results),
        _list_tolerances(),
    ]
    lines = ["# Reproduction of the paper", "", "Written by `ruler reproduce` from its results.", ""]
    lines += [line for section in sections for line in section]
    write_atomically(path, "\n".join(lines).rstrip() + "\n")


def _count_agreement(comparison: "pd.DataFrame") -> list[str]:
    def count(part: "pd.DataFrame") -> list[int]:
        n_judged, n_agreeing = int(part["agrees"].notna().sum()), int(part["agrees"].sum())
        return [len(part), int(part["ours"].notna().sum()), n_judged, n_agreeing, n_judged - n_agreeing]

    n_all, n_measured, n_judged, n_agreeing, n_differing = count(comparison)
    rows = [
        [_name(str(table)), TABLES[str(table)].title if table in TABLES else "Settings", *map(str, count(part))]
        for table, part in comparison.groupby("table", sort=False)
    ]
    judged = f"{n_judged} on as many runs as the paper's, so judged: **{n_agreeing} agree, {n_differing} differ**"
    if n_judged == 0:
        judged = "none on as many runs as the paper's, so none is judged; they are listed beside the paper's below"
    return [
        *("## Agreement", ""),
        f"The paper prints {n_all} numbers. {n_measured or 'None'} of them were measured here"
        f"{f', {judged}' if n_measured else ''}. Each number is in `comparison.csv`.",
        "",
        *list_rows(("Table", "Shows", "Numbers", "Measured", "Judged", "Agree", "Differ"), rows),
        "",
    ]


def _list_differences(comparison: "pd.DataFrame") -> list[str]:
    differing = comparison[comparison["agrees"].eq(False).fillna(False)]
    numbers = differing.to_dict("records")
    rows = [[*_list_number(number), number["tolerance"], number["note"]] for number in numbers]
    return ["## Numbers that differ", "", *list_rows((*_NUMBER, "Tolerance", "Note"), rows), ""] if rows else []


def _list_unjudged(comparison: "pd.DataFrame") -> list[str]:
    """Numbers on fewer runs than the paper's, and of smoke runs: what they are, without a judgement."""
    open_ones = comparison[comparison["agrees"].isna() & comparison["ours"].notna()]
    numbers = open_ones.head(_MOST_UNJUDGED).to_dict("records")
    rows = [[*_list_number(number), f"{number['n']:.0f} of {number['n_paper']:.0f}"] for number in numbers]
    if not rows:
        return []
    rest = len(open_ones) - len(rows)
    lead = "Fewer runs vary more, so a difference from the paper does not mean disagreement here."
    more = [f"{rest:,} more are in `comparison.csv`.", ""] if rest else []
    return ["## Numbers that are not judged", "", lead, "", *list_rows((*_NUMBER, "Runs"), rows), "", *more]


def _list_number(number: Mapping[Any, Any]) -> list[str]:
    """Its place in the paper, the published value and ours."""
    relation = "" if number["relation"] == "=" else number["relation"]
    place = [_name(number["table"]), number["row"], number["column"]]
    return [*place, f"{relation}{_print(number['paper'])}", _print(number["ours"])]


def _describe_findings(checks: "pd.DataFrame") -> list[str]:
    if checks.empty:
        return []
    rows = []
    for _, part in checks.groupby("finding"):
        first = part.iloc[0]
        n_held, n_judged = int(part["holds"].eq(True).sum()), int(part["holds"].notna().sum())
        ranges = [_print_range(part[name]) for name in ("paper", "ours", "control")]
        claim = f"{first['finding']}. {first['claim']}"
        rows.append([claim, first["rule"], *ranges, first["control_name"], f"{n_held} of {n_judged}", first["outcome"]])
    header = ("Finding", "A check holds where", "Paper", "Ours", "Control", "which is", "Checks that hold", "Outcome")
    lead = f"{RULE} Each check is in `tables/findings.csv`."
    return ["## Findings of section 5.5", "", lead, "", *list_rows(header, rows), ""]


def _list_verdicts(results: "pd.DataFrame") -> list[str]:
    rows, notes, earlier = [], [], []
    for study in DIAGNOSTIC_STUDIES:
        runs = results[results["study"] == study]
        for row in gather_conditions(results, study).to_dict("records"):
            size = tell_size(row["dataset"], runs[runs["dataset"] == row["dataset"]])
            verdict = row["verdict"]
            rows.append(
                [
                    title_of(row["dataset"]) + (f" ({size})" if size else ""),
                    title_of(row["architecture"]),
                    f"{100 * row['forget_fraction']:g}%",
                    title_of(row["method"]),
                    print_if_known(row["retain_accuracy"]),
                    print_if_known(row["m4"], spread=row["m4_sd"]),
                    print_if_known(row["m4_held_out"]),
                    print_if_known(row["m2"], "+.4f", row["m2_sd"]),
                    f"broken; {verdict}" if row["is_broken"] and verdict else verdict,
                ]
            )
        if len(runs) and not is_of_full_size(runs):
            notes.append(f"`{study}` is a smoke run on few records, so none of it is judged.")
        elif runs["verdict"].notna().any() and runs["damage_similarity"].isna().all():
            earlier.append(f"`{study}`")
    if not rows:
        return []
    if earlier:
        notes.append(
            "An earlier rule, which read M2 and M4 alone and could not call a model damaged, gave the verdicts of "
            f"{', '.join(earlier)}."
        )
    lead = (
        "Diagnostic studies. M4 and M2: mean ± SD over seeds. M4 held-out: M4 of records that no model was trained on, "
        "in the same model. Verdict: the audit's, with these records as its control, counted over seeds. Broken: the "
        "mean retain accuracy is less than half of the original's."
    )
    header = ("Dataset", "Model", "Forget", "Method", "Retain accuracy", "M4", "M4 held-out", "M2", "Verdict")
    return ["## Verdicts of the audit", "", " ".join([lead, *notes]), "", *list_rows(header, rows), ""]


def _set_table(name: str, results: "pd.DataFrame") -> list[str]:
    table = TABLES[name]
    numbers = as_frame(table.compute(results))
    if numbers.empty:
        return []
    return [f"## {table.name}", "", escape_markdown(table.caption), "", *to_markdown_rows(arrange(numbers, table)), ""]


def _describe_runs(results: "pd.DataFrame") -> list[str]:
    if results.empty:
        return ["## Runs", "", "No cell is finished.", ""]
    rows = []
    for keys, runs in split_by(results, "study"):
        fractions = (f"{100 * fraction:g}%" for fraction in sorted(runs["forget_fraction"].unique()))
        settings = [
            f"{label} {', '.join(f'{value:g}' for value in sorted(runs[column].dropna().unique()))}"
            for column, label in _SETTINGS.items()
            if runs[column].notna().any()
        ]
        if runs["forget_choice"].nunique() > 1:
            settings.append(f"identities {_list_titles(runs, 'forget_choice')}")
        n_seeds = len({*runs["seed"].dropna(), *runs["other_seed"].dropna()})
        cells = [keys["study"], count_cells(keys["study"], runs), str(runs["dataset"].nunique())]
        cells += [_list_titles(runs, "architecture"), _list_titles(runs, "method"), ", ".join(fractions), str(n_seeds)]
        cells += [
            "; ".join(settings),
            _list_values(runs, "engine"),
            _list_values(runs, "machine"),
            *state_seconds(runs),
        ]
        rows.append(cells)
    header = ["Study", "Cells", "Datasets", "Architectures", "Methods", "Forget fractions", "Seeds", "Settings"]
    header += ["Engine", "Machine", "Work", "Wall"]
    lead = (
        "Cells: with the number of the whole study, if that has more. Work: seconds summed over cells. Wall: seconds "
        "in which at least one cell ran, without pauses."
    )
    recorded = {label: _list_values(results, column) for column, label in _PROVENANCE.items()}
    provenance = [f"- {label}: {values}" for label, values in recorded.items() if values != NOT_RECORDED]
    return ["## Runs", "", lead, "", *list_rows(header, rows), "", *provenance, ""]


def count_cells(study: str, runs: "pd.DataFrame") -> str:
    """How many cells of a study have a row, beside the plan where that has more, as in ``200 of 210``.

    Engines and precisions are not told apart. A smoke run and a study of one's own have no plan.
    """
    if study not in STUDIES or not is_of_full_size(runs):
        return str(len(runs))
    places = runs[list(CELL)].itertuples(index=False, name=None)
    finished = {tuple(None if value != value else value for value in place) for place in places}
    planned = {tuple(getattr(cell, name) for name in CELL) for cell in list_cells(STUDIES[study])}
    if planned <= finished:
        return str(len(runs))
    n_beyond = len(finished - planned)
    return f"{len(finished & planned)} of {len(planned)}{f', {n_beyond} beyond them' if n_beyond else ''}"


def state_seconds(runs: "pd.DataFrame") -> tuple[str, str]:
    """Seconds of work, and seconds in which any cell ran: a run that was resumed does not count its pause."""
    if "elapsed_s" not in runs:
        return NOT_RECORDED, NOT_RECORDED
    import pandas as pd

    work = f"{runs['elapsed_s'].sum():.0f}"
    if "finished_at" not in runs:
        return work, NOT_RECORDED
    ends = pd.to_datetime(runs["finished_at"], utc=True, format="ISO8601")
    spans = pd.DataFrame({"start": ends - pd.to_timedelta(runs["elapsed_s"], unit="s"), "end": ends})
    spans = spans.sort_values("start")
    seen = spans["end"].cummax().shift()  # when all that started before had ended
    fresh = spans["end"] - spans["start"].where(~(seen > spans["start"]), seen)
    return work, f"{fresh.dt.total_seconds().clip(lower=0).sum():.0f}"


def _list_tolerances() -> list[str]:
    rows = []
    for entry in list_tolerances():
        tables = [_name(table) for table in entry.tables]
        sizes = [] if math.isinf(entry.max_forget) else [f"up to {entry.max_forget:g} forget records"]
        rows.append([entry.columns, ", ".join([*tables, *entry.studies, *sizes]) or "all", str(entry), entry.reason])
    lead = "The first line that fits a number gives its tolerance."
    return ["## Tolerances", "", lead, "", *list_rows(("Numbers", "Where", "Tolerance", "Why"), rows), ""]


def _list_values(runs: "pd.DataFrame", column: str) -> str:
    values = sorted(set(runs[column].dropna().astype(str)) - {""}) if column in runs else []
    return ", ".join(values) or NOT_RECORDED


def _list_titles(runs: "pd.DataFrame", key: str) -> str:
    return ", ".join(title_of(name) for name in sorted(runs[key].unique(), key=lambda name: rank_of(key, name)))


def _name(table: str) -> str:
    return "Text and captions" if table == "text" else f"Table {table}"


def _print(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.4g}"


def _print_range(values: "pd.Series[Any]") -> str:
    known = values.dropna()
    ends = [f"{end:.3f}" for end in ((known.min(), known.max()) if len(known) else ())]
    return " to ".join(dict.fromkeys(ends))
