"""The diagnostic studies' part of the page: findings, a section a study, and the controls."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ruler.paper.diagnostics.conditions import gather_conditions, is_of_full_size
from ruler.paper.diagnostics.findings import RULE, check_findings
from ruler.paper.diagnostics.readings import FACE_RULES, LEAK_RULE, read_chance, read_face_controls, read_leak
from ruler.paper.explanations import explain, find_traits
from ruler.paper.markdown import print_if_known, print_range, table_lines
from ruler.paper.names import DIAGNOSTIC_STUDIES, title_of
from ruler.paper.plan import compare_with_plan
from ruler.paper.results import CONTRASTS, split_by
from ruler.paper.runs import NOT_RECORDED, list_values, state_seconds
from ruler.paper.tables import TABLES
from ruler.paper.tables.diagnostics import name_set
from ruler.paper.tables.layout import arrange
from ruler.paper.tables.numbers import as_frame
from ruler.paper.typeset import to_markdown_rows

if TYPE_CHECKING:
    import pandas as pd

_TITLES = {"large-tabular": "Large tables", "images": "Images", "faces": "Faces", "clinical": "Clinical text"}
_TABLES = {"large-tabular": "12", "images": "13", "faces": "14", "clinical": "text"}
_CONDITION = ("Dataset", "Model", "Forget", "Method")
_HEADER = (
    *(*_CONDITION, "Retain accuracy"),
    *("M4 paper", "M4 ours", "M4 held-out", "M2 paper", "M2 ours", "Audit's verdict"),
)
_CONTRAST_HEADERS = {
    "m2": ("By M2", "M2 effect", "M2 p"),
    "m4": ("By M4", "M4 effect", "M4 p"),
    "norm": ("By norm", "Norm effect", "Norm p"),
    "loss": ("By loss", "Loss effect", "Loss p"),
}
_EARLIER_RULE = (
    "These verdicts were given by an earlier rule, from M2 and M4 alone: it could not call a model damaged, and called "
    "one erased without asking whether its records had been visible before unlearning."
)
_SIMILARITY = (
    "Similarity: linear CKA of the retain records to the oracle's, mean over seeds. A model with too little of it, or "
    "with too little of the oracle's skill on these records, is damaged."
)
_HOW_TO_READ = (
    "M4 and M2: mean ± SD over seeds, nulls 0.50 and 0. Held-out: M4 of records that no model was trained on, in the "
    "same model: the null to read M4 against here. The audit's verdict is its own, against that control, "
    "counted over seeds; its effects are areas under the curve, 0.50 for none, p over seeds as median (least to most). "
    "Broken: the mean retain accuracy is less than half of the original's. Such a model may treat forgotten records "
    "like held-out ones because it tells few records apart, and whatever the verdict, nobody would use it."
)


def describe_diagnostics(results: "pd.DataFrame", comparison: "pd.DataFrame") -> list[str]:
    """Every section that the diagnostic studies of the results allow, as lines; none where none was run.

    Args:
        results: Checked results, one row a finished cell.
        comparison: Ours beside the published numbers, from ``compare_numbers``.
    """
    lines = _describe_findings(results)
    for study in DIAGNOSTIC_STUDIES:
        runs = results[results["study"] == study]
        if runs.empty:
            continue
        lines += _describe_study(study, results, comparison)
        lines += _describe_face_controls(results) if study == "faces" else []
        lines += _describe_leak(results) if study == "clinical" else []
    return lines


def _describe_findings(results: "pd.DataFrame") -> list[str]:
    checks = check_findings(results)
    if checks.empty:
        return []
    summary = [_sum_up(part) for _, part in checks.groupby("finding")]
    details = [
        [
            str(check["finding"]),
            check["label"],
            print_if_known(check["paper"]),
            print_if_known(check["ours"]),
            print_if_known(check["control"]),
            str(check["n"]),
            {True: "yes", False: "no"}.get(check["holds"], "not judged"),
        ]
        for check in checks.to_dict("records")
    ]
    header = ("", "Finding", "A check holds where", "Paper", "Ours", "Control", "Its value", "Holds", "Outcome")
    return [
        *("## Findings of section 5.5, confirmed or refuted", "", RULE, ""),
        *table_lines(header, summary),
        *("", "Each check:", ""),
        *table_lines(("Finding", "Where", "Paper", "Ours", "Control", "Seeds", "Holds"), details),
        "",
    ]


def _sum_up(checks: "pd.DataFrame") -> list[str]:
    first = checks.iloc[0]
    n_held, n_judged = int((checks["holds"] == True).sum()), int(checks["holds"].notna().sum())  # noqa: E712
    return [
        str(first["finding"]),
        first["claim"],
        first["rule"],
        print_range(checks["paper"]),
        print_range(checks["ours"]),
        first["control_name"],
        print_range(checks["control"]),
        f"{n_held} of {n_judged}",
        f"**{first['outcome']}**",
    ]


def _describe_study(study: str, results: "pd.DataFrame", comparison: "pd.DataFrame") -> list[str]:
    runs = results[results["study"] == study]
    work, wall = state_seconds(runs)
    n_cells = compare_with_plan(study, runs).count(len(runs))
    lines = [
        *(f"## {_TITLES[study]}: the study `{study}`", ""),
        f"{n_cells} cells of {runs['seed'].nunique()} seeds on {list_values(runs, 'machine')}: {wall} s without "
        f"pauses, {work} s of work. Precision: {list_values(runs, 'precision')}.",
    ]
    if not is_of_full_size(runs):
        lines.append("A smoke run on few records, to see that the study runs: nothing of it is judged.")
    if runs["model"].notna().any():
        lines.append(f"Pretrained model: {list_values(runs, 'model')}.")
    lines += ["", *_list_deviations(study, runs, comparison), *_describe_accuracies(study, results)]
    paper = _quote(comparison, study)
    knows_damage = bool(runs["damage_similarity"].notna().any())
    contrasts = CONTRASTS if knows_damage else ("m2", "m4")
    conditions = _records(gather_conditions(results, study))
    rows = [_print_condition(row, runs, paper, contrasts) for row in conditions]
    header = [*_HEADER, *(text for name in contrasts for text in _CONTRAST_HEADERS[name])]
    if knows_damage:
        header.append("Similarity")
        rows = [[*cells, print_if_known(row["damage_similarity"])] for cells, row in zip(rows, conditions, strict=True)]
    rule = [_HOW_TO_READ, _SIMILARITY if knows_damage else _EARLIER_RULE]
    return [*lines, " ".join(rule), "", *table_lines(header, rows), ""]


def _list_deviations(study: str, runs: "pd.DataFrame", comparison: "pd.DataFrame") -> list[str]:
    traits = find_traits(runs)
    measured = comparison[(comparison["study"] == study) & comparison["n"].notna()]
    texts = dict.fromkeys(text for row in _records(measured) for text in explain(row, traits))
    notes = [] if list_values(runs, "note") == NOT_RECORDED else sorted(set(runs["note"].dropna()) - {""})
    found = [f"- {text}" for text in (*texts, *notes)]
    return ["What differs from the paper's setting, or may:", "", *found, ""] if found else []


def _describe_accuracies(study: str, results: "pd.DataFrame") -> list[str]:
    what = "Share of masked words found" if study == "clinical" else "Accuracy reached"
    rows = [
        [
            name_set(keys["dataset"], runs),
            title_of(keys["architecture"]),
            title_of(method),
            *(print_if_known(part[f"{records}_accuracy"].mean()) for records in ("test", "retain", "forget")),
            print_range(part["test_accuracy"]),
        ]
        for keys, runs in split_by(results[results["study"] == study], "dataset", "architecture")
        for method in ("original", "oracle")
        if len(part := runs[runs["method"] == method])
    ]
    header = ("Dataset", "Model", "", "Test", "Retain", "Forget", "Test, least to most")
    return [f"{what}, mean over seeds and forget fractions:", "", *table_lines(header, rows), ""]


def _print_condition(
    row: Mapping[str, Any], runs: "pd.DataFrame", paper: Mapping[Any, float], contrasts: Sequence[str]
) -> list[str]:
    place = (row["dataset"], row["architecture"], row["method"], row["forget_fraction"])
    cells = [name_set(row["dataset"], runs[runs["dataset"] == row["dataset"]])]
    cells += [title_of(row["architecture"]), f"{100 * row['forget_fraction']:g}%", title_of(row["method"])]
    cells.append(print_if_known(row["retain_accuracy"]))
    cells += [print_if_known(paper.get((*place, "m4_mean"), math.nan)), print_if_known(row["m4"], spread=row["m4_sd"])]
    cells.append(print_if_known(row["m4_held_out"]))
    cells.append(print_if_known(paper.get((*place, "m2_mean"), math.nan), "+.3f"))
    cells.append(print_if_known(row["m2"], "+.4f", row["m2_sd"]))
    cells.append(f"broken; {row['verdict']}" if row["is_broken"] and row["verdict"] else row["verdict"])
    for metric in contrasts:
        p_value = print_if_known(row[f"{metric}_p_value_median"])
        ends = print_range([row[f"{metric}_p_value_min"], row[f"{metric}_p_value_max"]])
        cells += [row[f"{metric}_verdict"], print_if_known(row[f"{metric}_effect"])]
        cells.append(f"{p_value} ({ends})" if p_value else "")
    return cells


def _quote(comparison: "pd.DataFrame", study: str) -> dict[Any, float]:
    part = comparison[(comparison["study"] == study) & (comparison["table"] == _TABLES[study])]
    keys = ("dataset", "architecture", "method", "forget_fraction", "column")
    return {tuple(row[key] for key in keys): row["paper"] for row in _records(part)}


def _describe_face_controls(results: "pd.DataFrame") -> list[str]:
    numbers = as_frame(TABLES["face_controls"].compute(results))
    if numbers.empty:
        return []
    readings = [f"- {text}" for text in read_face_controls(numbers)]
    chance = [text, ""] if (text := read_chance(numbers)) else []
    lines = [*_set_table("face_controls", numbers), "Read by these rules:", "", *_list(FACE_RULES), "", *readings, ""]
    return [*lines, *chance]


def _describe_leak(results: "pd.DataFrame") -> list[str]:
    numbers = as_frame(TABLES["clinical_leak"].compute(results))
    if numbers.empty:
        return []
    readings = [f"- {text}" for text in read_leak(numbers)]
    return [*_set_table("clinical_leak", numbers), LEAK_RULE, "", *readings, ""]


def _set_table(name: str, numbers: "pd.DataFrame") -> list[str]:
    table = TABLES[name]
    assert table.layout is not None
    printed = arrange(numbers, table.layout)
    return [f"## {table.name}", "", printed.caption, "", *to_markdown_rows(printed), ""]


def _list(texts: tuple[str, ...]) -> list[str]:
    return [f"{number}. {text}" for number, text in enumerate(texts, start=1)]


def _records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    return [{str(key): value for key, value in record.items()} for record in frame.to_dict("records")]
