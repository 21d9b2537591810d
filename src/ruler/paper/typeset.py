"""A printed table as CSV, Markdown and LaTeX text, and the pieces of a Markdown page."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from ruler.core.text import markdown_table
from ruler.paper.tables import Column, Printed, PrintedTable

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


def to_csv(printed: PrintedTable) -> str:
    """Rows and columns of the table with full precision, the runs behind a row, and reasons for what is missing."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = list(printed.rows[0].numbers) if printed.rows else []
    writer.writerow([*printed.table.rows, *names, "n", "note"])
    for row in printed.rows:
        values = ["" if math.isnan(value) else f"{value:.10g}" for value in row.numbers.values()]
        writer.writerow([*row.keys, *values, row.runs, "; ".join(dict.fromkeys(row.notes))])
    return stream.getvalue()


def to_markdown(printed: PrintedTable, heading: str) -> str:
    """The table as Markdown, headed and with its caption."""
    lines = [f"# {heading}", "", escape_markdown(printed.table.caption), "", *to_markdown_rows(printed)]
    return "\n".join(lines) + "\n"


def to_markdown_rows(printed: PrintedTable) -> list[str]:
    """The table's rows and notes as lines of Markdown, without heading and caption."""
    columns = printed.table.columns
    names = [*printed.headers, *(f"{column.group} {column.title}".strip() for column in columns), "n"]
    marks = [":--"] * len(printed.headers) + ["--:"] * (len(columns) + 1)
    rows = ([*map(escape_markdown, row.labels), *map(_mark_down, row.cells), row.runs] for row in printed.rows)
    lines = markdown_table(list(map(escape_markdown, names)), rows, marks=marks)
    notes = [f"- n/a: {escape_markdown(note)}" for note in printed.notes]
    return [*lines, "", *notes] if notes else lines


def list_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table of plain text, every cell escaped.

    Example:
        >>> list_rows(["a", "b"], [["x_y", "1"]])
        ['| a | b |', '| --- | --- |', '| x\\\\_y | 1 |']
    """
    return markdown_table(header, (map(escape_markdown, row) for row in rows))


def print_if_known(value: float, form: str = ".3f", spread: float = math.nan) -> str:
    """A number with its spread, empty where it was not measured.

    Example:
        >>> print_if_known(0.5, spread=0.01), print_if_known(float("nan"))
        ('0.500 ± 0.010', '')
    """
    if math.isnan(value):
        return ""
    tail = "" if math.isnan(spread) else f" ± {spread:{form.lstrip('+')}}"
    return f"{value:{form}}{tail}"


def to_latex(printed: PrintedTable, label: str) -> str:
    """The table as LaTeX, for the package booktabs and nothing else."""
    columns, n_labels = printed.table.columns, len(printed.headers)
    alignment = "l" * n_labels + "r" * (len(columns) + 1)
    caption = escape_latex(printed.table.caption)
    lines = [r"\begin{table}", rf"\caption{{{caption}}}", rf"\label{{tab:{label}}}", r"\centering"]
    lines += [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", *_set_groups(columns, n_labels)]
    headers = [*printed.headers, *(column.title for column in columns), "n"]
    lines += [_end_row(map(escape_latex, headers)), r"\midrule"]
    for index, (_, rows) in enumerate(groupby(printed.rows, key=lambda row: row.keys[0])):
        lines += [r"\addlinespace"] if index else []
        lines += [
            _end_row([*map(escape_latex, row.labels), *map(_set_latex_cell, row.cells), row.runs]) for row in rows
        ]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize n/a: {escape_latex(note)}." for note in printed.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def escape_latex(text: str) -> str:
    """Text with LaTeX's special characters made harmless and the paper's symbols set as mathematics.

    Example:
        >>> escape_latex("r_rb")
        '$r_{\\\\mathrm{rb}}$'
        >>> escape_latex("50% of a_b")
        '50\\\\% of a\\\\_b'
    """
    words = (_MATH.get(word) or "".join(_LATEX_SPECIAL.get(mark, mark) for mark in word) for word in text.split(" "))
    return " ".join(words)


def escape_markdown(text: str) -> str:
    """Text with the characters that would break a Markdown table or start emphasis made harmless.

    Example:
        >>> escape_markdown("|Df| ** p_adj")
        '\\\\|Df\\\\| \\\\*\\\\* p\\\\_adj'
    """
    return "".join("\\" + mark if mark in "|*_<\\" else mark for mark in text)


def _mark_down(cell: Printed) -> str:
    text = escape_markdown(cell.text) + r"\*" * cell.stars
    return f"**{text}**" if cell.is_bold else text


def _end_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _set_groups(columns: Sequence[Column], n_labels: int) -> list[str]:
    if not any(column.group for column in columns):
        return []
    cells, rules, start = [""] * n_labels, "", n_labels + 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        cells += [rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}"] if group else [""] * width
        rules += rf"\cmidrule(lr){{{start}-{start + width - 1}}}" if group else ""
        start += width
    return [_end_row([*cells, ""]), rules]


def _set_latex_cell(cell: Printed) -> str:
    if not cell.text or cell.text == "n/a":
        return cell.text
    number = cell.text.replace("±", r"\pm")
    number = rf"\mathbf{{{number}}}" if cell.is_bold else number
    return f"${number}^{{{'*' * cell.stars}}}$" if cell.stars else f"${number}$"
