"""A printed table as CSV, Markdown and LaTeX text, and the pieces of a Markdown page."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ruler.core.text import markdown_table
from ruler.paper.tables import Column, PaperTable, Printed, PrintedRow

if TYPE_CHECKING:
    import pandas as pd

_MATH = {
    "M2": "$M_2$",
    "M4": "$M_4$",
    "p": "$p$",
    "r_rb": r"$r_{\mathrm{rb}}$",
    "p_LMM": r"$p_{\mathrm{LMM}}$",
    "p_Wilc": r"$p_{\mathrm{Wilc}}$",
    "p_adj": r"$p_{\mathrm{adj}}$",
    "|Df|": "$|D_f|$",
    "η=1e-4": r"$\eta=10^{-4}$",
    "η=5e-4": r"$\eta=5\times10^{-4}$",
    "η=1e-3": r"$\eta=10^{-3}$",
}
_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "η": r"$\eta$",
    **{mark: "\\" + mark for mark in "&%$#_{}"},
}


def print_csv(frame: "pd.DataFrame") -> str:
    """A frame as text with ten digits."""
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.10g")


def to_csv(table: PaperTable, rows: Sequence[PrintedRow]) -> str:
    """Rows and columns of the table with full precision, the runs behind a row, and reasons for what is missing."""
    import pandas as pd

    names = [*table.rows, *(rows[0].numbers if rows else ()), "n", "note"]
    lines = [[*row.keys, *row.numbers.values(), row.runs, "; ".join(dict.fromkeys(row.notes))] for row in rows]
    return print_csv(pd.DataFrame(lines, columns=names))


def to_markdown(table: PaperTable, rows: Sequence[PrintedRow], heading: str) -> list[str]:
    """The table as lines of Markdown, headed and with its caption and notes."""
    names = [*table.headers, *(f"{column.group} {column.title}".strip() for column in table.columns), "n"]
    marks = [":--"] * len(table.rows) + ["--:"] * (len(table.columns) + 1)
    cells = ([*map(escape_markdown, row.labels), *map(_mark_down, row.cells), row.runs] for row in rows)
    notes = [f"- n/a: {escape_markdown(note)}" for note in _list_notes(rows)]
    lines = markdown_table(list(map(escape_markdown, names)), cells, marks=marks)
    return [heading, "", escape_markdown(table.caption), "", *lines, *([""] if notes else []), *notes]


def to_latex(table: PaperTable, rows: Sequence[PrintedRow], label: str) -> str:
    """The table as LaTeX, for the package booktabs and nothing else."""
    n_labels = len(table.rows)
    alignment = "l" * n_labels + "r" * (len(table.columns) + 1)
    caption = escape_latex(table.caption)
    lines = [r"\begin{table}", rf"\caption{{{caption}}}", rf"\label{{tab:{label}}}", r"\centering"]
    lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", *_set_groups(table.columns, n_labels)]
    headers = [*table.headers, *(column.title for column in table.columns), "n"]
    lines += [end_row(map(escape_latex, headers)), r"\midrule"]
    for index, (_, group) in enumerate(groupby(rows, key=lambda row: row.keys[0])):
        lines += [r"\addlinespace"] if index else []
        for row in group:
            lines.append(end_row([*map(escape_latex, row.labels), *map(_set_latex_cell, row.cells), row.runs]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize n/a: {escape_latex(note)}." for note in _list_notes(rows)]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def escape_latex(text: str) -> str:
    """Text with LaTeX's special characters made harmless and the paper's symbols set as mathematics."""
    words = (_MATH.get(word) or "".join(_LATEX_SPECIAL.get(mark, mark) for mark in word) for word in text.split(" "))
    return " ".join(words)


def escape_markdown(text: str) -> str:
    """Text with the characters that would break a Markdown table or start emphasis made harmless."""
    return "".join("\\" + mark if mark in "|*_<\\" else mark for mark in text)


def end_row(cells: Iterable[str]) -> str:
    """A row of a LaTeX table."""
    return " & ".join(cells) + r" \\"


def _list_notes(rows: Sequence[PrintedRow]) -> Iterable[str]:
    """Every reason for a missing number, once."""
    return dict.fromkeys(note for row in rows for note in row.notes)


def _mark_down(cell: Printed) -> str:
    text = escape_markdown(cell.text) + r"\*" * cell.stars
    return f"**{text}**" if cell.is_bold else text


def _set_groups(columns: Sequence[Column], n_labels: int) -> list[str]:
    if not any(column.group for column in columns):
        return []
    cells, rules, start = [""] * n_labels, "", n_labels + 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        cells += [rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}"] if group else [""] * width
        rules += rf"\cmidrule(lr){{{start}-{start + width - 1}}}" if group else ""
        start += width
    return [end_row([*cells, ""]), rules]


def _set_latex_cell(cell: Printed) -> str:
    if not cell.text or cell.text == "n/a":
        return cell.text
    number = cell.text.replace("±", r"\pm")
    number = rf"\mathbf{{{number}}}" if cell.is_bold else number
    return f"${number}^{{{'*' * cell.stars}}}$" if cell.stars else f"${number}$"
