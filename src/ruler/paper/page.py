"""The page of a run: what agrees with the paper, every number that does not, findings, verdicts, and what was run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically
from ruler.core.text import markdown_table
from ruler.experiment.grid import list_cells
from ruler.experiment.studies import STUDIES
from ruler.paper.agreement import list_tolerances
from ruler.paper.findings import RULE
from ruler.paper.results import CELL, DIAGNOSTIC_STUDIES, gather_conditions, is_of_full_size, split_by, title_of
from ruler.paper.tables import TABLES, arrange
from ruler.paper.tables.diagnostics import tell_size
from ruler.paper.typeset import escape_markdown, to_markdown

if TYPE_CHECKING:
    import pandas as pd

NOT_RECORDED = "not recorded"
_MOST_UNJUDGED = 200
_NUMBER = ("Table", "Row", "Number", "Paper", "Ours")
_SHOWN = ("face_controls", "clinical_leak", "language_models")
_PROVENANCE = ("device", "precision", "model", "models", "ruler_version", "torch_version", "commit", "note")
_SETTINGS = ("learning_rate", "batch_size", "forget_seed", "teacher_seed")
_LABELS = {"model": "Pretrained model", "ruler_version": "RULER", "torch_version": "PyTorch"}
_LABELS |= {"forget_seed": "forget-set seed"}
_EARLIER = "An earlier rule, which read M2 and M4 alone and could not call a model damaged, gave the verdicts of"


def write_page(
    results: "pd.DataFrame",
    numbers: "Mapping[str, pd.DataFrame]",
    comparison: "pd.DataFrame",
    findings: "pd.DataFrame",
    path: Path,
) -> None:
    """Write the page of checked results as Markdown; the same results always give the same page."""
    lines = ["# Reproduction of the paper", "", "Written by `ruler reproduce` from its results.", ""]
    lines += _count_agreement(comparison) + _list_differences(comparison) + _list_unjudged(comparison)
    lines += _describe_findings(findings) + _list_verdicts(results)
    for name in _SHOWN:
        if len(numbers[name]):
            rows = arrange(numbers[name], TABLES[name])
            lines += [*to_markdown(TABLES[name], rows, f"## {TABLES[name].name}"), ""]
    lines += _describe_runs(results) + _list_tolerances()
    write_atomically(path, "\n".join(lines).rstrip() + "\n")


def _set_section(title: str, lead: str, header: Sequence[str], rows: Iterable[Sequence[str]], *end: str) -> list[str]:
    """A heading, a paragraph, a table of plain text and what stands under it; nothing where the table has no rows."""
    cells = [[*map(escape_markdown, row)] for row in rows]
    head = [f"## {title}", "", *([lead, ""] if lead else [])]
    return [*head, *markdown_table(header, cells), "", *end] if cells else []


def _count_agreement(comparison: "pd.DataFrame") -> list[str]:
    def count(part: "pd.DataFrame") -> list[int]:
        n_judged, n_agreeing = int(part["agrees"].notna().sum()), int(part["agrees"].sum())
        return [len(part), int(part["ours"].notna().sum()), n_judged, n_agreeing, n_judged - n_agreeing]

    n_all, n_measured, n_judged, n_agreeing, n_differing = count(comparison)
    rows = [
        [_name(table), TABLES[str(table)].title if table in TABLES else "Settings", *map(str, count(part))]
        for table, part in comparison.groupby("table", sort=False)
    ]
    judged = f", {n_judged} on as many runs as the paper's, so judged: **{n_agreeing} agree, {n_differing} differ**"
    if n_judged == 0:
        judged = ", none on as many runs as the paper's, so none is judged; they are listed beside the paper's below"
    measured = f"{n_measured} of them were measured here{judged}" if n_measured else "None of them were measured here"
    lead = f"The paper prints {n_all} numbers. {measured}. Each number is in `comparison.csv`."
    return _set_section("Agreement", lead, ("Table", "Shows", "Numbers", "Measured", "Judged", "Agree", "Differ"), rows)


def _list_differences(comparison: "pd.DataFrame") -> list[str]:
    numbers = comparison[comparison["agrees"].eq(False).fillna(False)].to_dict("records")
    rows = ([*_list_number(number), number["tolerance"], number["note"]] for number in numbers)
    return _set_section("Numbers that differ", "", (*_NUMBER, "Tolerance", "Note"), rows)


def _list_unjudged(comparison: "pd.DataFrame") -> list[str]:
    """Numbers on fewer runs than the paper's, and of smoke runs: what they are, without a judgement."""
    numbers = comparison[comparison["agrees"].isna() & comparison["ours"].notna()].to_dict("records")
    rest = len(numbers) - _MOST_UNJUDGED
    rows = (
        [*_list_number(number), f"{number['n']:.0f} of {number['n_paper']:.0f}"] for number in numbers[:_MOST_UNJUDGED]
    )
    more = [f"{rest:,} more are in `comparison.csv`.", ""] if rest > 0 else []
    lead = "Fewer runs vary more, so a difference from the paper does not mean disagreement here."
    return _set_section("Numbers that are not judged", lead, (*_NUMBER, "Runs"), rows, *more)


def _list_number(number: Mapping[Any, Any]) -> list[str]:
    """Its place in the paper, the published value and ours."""
    relation = "" if number["relation"] == "=" else number["relation"]
    paper, ours = ("n/a" if math.isnan(number[name]) else f"{number[name]:.4g}" for name in ("paper", "ours"))
    return [_name(number["table"]), number["row"], number["column"], f"{relation}{paper}", ours]


def _describe_findings(checks: "pd.DataFrame") -> list[str]:
    rows = []
    for _, part in checks.groupby("finding") if len(checks) else ():
        first = part.iloc[0]
        n_held, n_judged = int(part["holds"].eq(True).sum()), int(part["holds"].notna().sum())
        ranges = []
        for known in (part[name].dropna() for name in ("paper", "ours", "control")):
            ends = [f"{end:.3f}" for end in (known.min(), known.max()) if len(known)]
            ranges.append(" to ".join(dict.fromkeys(ends)))
        claim = f"{first['finding']}. {first['claim']}"
        rows.append([claim, first["rule"], *ranges, first["control_name"], f"{n_held} of {n_judged}", first["outcome"]])
    header = ("Finding", "A check holds where", "Paper", "Ours", "Control", "which is", "Checks that hold", "Outcome")
    return _set_section("Findings of section 5.5", f"{RULE} Each check is in `tables/findings.csv`.", header, rows)


def _list_verdicts(results: "pd.DataFrame") -> list[str]:
    rows, earlier = [], []
    lead = (
        "Diagnostic studies. M4 and M2: mean ± SD over seeds. M4 held-out: M4 of records that no model was trained on, "
        "in the same model. Verdict: the audit's, with these records as its control, counted over seeds. Broken: the "
        "mean retain accuracy is less than half of the original's."
    )
    for study in DIAGNOSTIC_STUDIES:
        runs = results[results["study"] == study]
        for row in gather_conditions(results, study).to_dict("records"):
            size = tell_size(row["dataset"], runs[runs["dataset"] == row["dataset"]])
            rows.append(
                [
                    title_of(row["dataset"]) + (f" ({size})" if size else ""),
                    title_of(row["architecture"]),
                    f"{100 * row['forget_fraction']:g}%",
                    title_of(row["method"]),
                    _print_if_known(row["retain_accuracy"]),
                    _print_if_known(row["m4"], spread=row["m4_sd"]),
                    _print_if_known(row["m4_held_out"]),
                    _print_if_known(row["m2"], "+.4f", row["m2_sd"]),
                    f"broken; {row['verdict']}" if row["is_broken"] and row["verdict"] else row["verdict"],
                ]
            )
        if len(runs) and not is_of_full_size(runs):
            lead += f" `{study}` is a smoke run on few records, so none of it is judged."
        elif runs["verdict"].notna().any() and runs["damage_similarity"].isna().all():
            earlier.append(f"`{study}`")
    lead += f" {_EARLIER} {', '.join(earlier)}." if earlier else ""
    header = ("Dataset", "Model", "Forget", "Method", "Retain accuracy", "M4", "M4 held-out", "M2", "Verdict")
    return _set_section("Verdicts of the audit", lead, header, rows)


def _print_if_known(value: float, form: str = ".3f", spread: float = math.nan) -> str:
    """A number with its spread, empty where it was not measured."""
    if math.isnan(value):
        return ""
    return f"{value:{form}}" + ("" if math.isnan(spread) else f" ± {spread:{form.lstrip('+')}}")


def _describe_runs(results: "pd.DataFrame") -> list[str]:
    if results.empty:
        return ["## Runs", "", "No cell is finished.", ""]
    rows = []
    for keys, runs in split_by(results, "study"):
        values = {name: sorted(runs[name].dropna().unique()) for name in _SETTINGS}
        settings = [
            f"{_LABELS.get(name, name.replace('_', ' '))} {', '.join(f'{one:g}' for one in some)}"
            for name, some in values.items()
            if some
        ]
        if runs["forget_choice"].nunique() > 1:
            settings.append(f"identities {_list_titles(runs, 'forget_choice')}")
        cells = [keys["study"], count_cells(keys["study"], runs), str(runs["dataset"].nunique())]
        cells += [_list_titles(runs, "architecture"), _list_titles(runs, "method")]
        cells += [", ".join(f"{100 * fraction:g}%" for fraction in sorted(runs["forget_fraction"].unique()))]
        cells += [str(len({*runs["seed"].dropna(), *runs["other_seed"].dropna()})), "; ".join(settings)]
        rows.append([*cells, _list_values(runs, "engine"), _list_values(runs, "machine"), *state_seconds(runs)])
    header = ["Study", "Cells", "Datasets", "Architectures", "Methods", "Forget fractions", "Seeds", "Settings"]
    header += ["Engine", "Machine", "Work", "Wall"]
    lead = (
        "Cells: with the number of the whole study, if that has more. Work: seconds summed over cells. Wall: seconds "
        "in which at least one cell ran, without pauses."
    )
    recorded = {name: _list_values(results, name) for name in _PROVENANCE}
    provenance = [
        f"- {_LABELS.get(name, name.capitalize())}: {values}"
        for name, values in recorded.items()
        if values != NOT_RECORDED
    ]
    return _set_section("Runs", lead, header, rows, *provenance, "")


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
        sizes = [] if math.isinf(entry.max_forget) else [f"up to {entry.max_forget:g} forget records"]
        where = ", ".join([*map(_name, entry.tables), *entry.studies, *sizes])
        rows.append([entry.columns, where or "all", str(entry), entry.reason])
    lead = "The first line that fits a number gives its tolerance."
    return _set_section("Tolerances", lead, ("Numbers", "Where", "Tolerance", "Why"), rows)


def _list_values(runs: "pd.DataFrame", column: str) -> str:
    values = sorted(set(runs[column].dropna().astype(str)) - {""}) if column in runs else []
    return ", ".join(values) or NOT_RECORDED


def _list_titles(runs: "pd.DataFrame", key: str) -> str:
    return ", ".join(title_of(keys[key]) for keys, _ in split_by(runs, key))


def _name(table: Any) -> str:
    return "Text and captions" if table == "text" else f"Table {table}"
