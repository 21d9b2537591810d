import csv
import io
import math

import pytest

from ruler.paper.tables import TABLES, Column, PaperTable, Printed, arrange, print_value
from ruler.paper.tables.numbers import Number, as_frame
from ruler.paper.typeset import escape_latex, escape_markdown, to_csv, to_latex, to_markdown

TABLE = PaperTable(
    lambda results: [],
    "A_caption with 5% & r_rb.",
    rows=("forget_fraction", "method"),
    columns=(
        Column("M2", "gap", "m2_mean", "+.5f"),
        Column("M2", "p", "m2_p_mixed", "p"),
        Column("", "MIA", "mia_mean", "membership", "mia_sd"),
        Column("", "holds", "n_holds", "count"),
    ),
)
NUMBERS = [
    ("scrub", 0.05, {"m2_mean": -0.00122, "m2_p_mixed": 0.0445, "mia_mean": 0.56, "mia_sd": 0.034, "n_holds": 2}),
    ("neggrad_plus", 0.05, {"m2_mean": 0.0005, "m2_p_mixed": 0.0002, "mia_mean": 0.5}),
    ("scrub", 0.01, {"m2_mean": -0.002, "m2_p_mixed": math.nan}),
]

MARKDOWN = """\
# Table 99

A\\_caption with 5% & r\\_rb.

| Forget fraction | Method | M2 gap | M2 p | MIA | holds | n |
| :-- | :-- | --: | --: | --: | --: | --: |
| 1% | SCRUB | -0.00200 | n/a |  |  | 10 |
| 5% | NegGrad+ | +0.00050 | \\<0.001\\*\\*\\* | 0.500 |  | 10 |
| 5% | SCRUB | -0.00122 | 0.044\\* | **0.560 ± 0.034** | **2/3** | 10 |

- n/a: singular | fit
""".replace("singular | fit", "singular \\| fit")

LATEX = r"""\begin{table}
\caption{A\_caption with 5\% \& r\_rb.}
\label{tab:table_99}
\centering
\begin{tabular}{llrrrrr}
\toprule
 &  & \multicolumn{2}{c}{$M_2$} &  &  &  \\
\cmidrule(lr){3-4}
Forget fraction & Method & gap & $p$ & MIA & holds & n \\
\midrule
1\% & SCRUB & $-0.00200$ & n/a &  &  & 10 \\
\addlinespace
5\% & NegGrad+ & $+0.00050$ & $<0.001^{***}$ & $0.500$ &  & 10 \\
5\% & SCRUB & $-0.00122$ & $0.044^{*}$ & $\mathbf{0.560 \pm 0.034}$ & $\mathbf{2/3}$ & 10 \\
\bottomrule
\end{tabular}
\par\footnotesize n/a: singular | fit.
\end{table}
"""

CSV = """\
forget_fraction,method,m2_mean,m2_p_mixed,mia_mean,mia_sd,n_holds,n,note
0.01,scrub,-0.002,,,,,10,singular | fit
0.05,neggrad_plus,0.0005,0.0002,0.5,,,10,
0.05,scrub,-0.00122,0.0445,0.56,0.034,2,10,
"""


@pytest.fixture(scope="module")
def printed():
    numbers = [
        Number(
            column=column,
            value=value,
            n=10,
            n_paper=10,
            out_of=3 if column == "n_holds" else math.nan,
            note="singular | fit" if math.isnan(value) else "",
            method=method,
            forget_fraction=fraction,
        )
        for method, fraction, values in NUMBERS
        for column, value in values.items()
    ]
    return arrange(as_frame(numbers), TABLE)


def test_markdown_is_stable(printed):
    assert "\n".join(to_markdown(TABLE, printed, "# Table 99")) + "\n" == MARKDOWN


def test_latex_is_stable(printed):
    assert fix_groups(to_latex(TABLE, printed, "table_99")) == fix_groups(LATEX)


def fix_groups(text):
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_csv_has_full_precision_and_reasons(printed):
    assert to_csv(TABLE, printed) == CSV


@pytest.mark.parametrize(
    ("value", "text", "stars"),
    [(0.0009, "<0.001", 3), (0.001, "0.001", 2), (0.0099, "0.010", 2), (0.01, "0.010", 1), (0.05, "0.050", 0)],
)
def test_p_values_and_their_stars(value, text, stars):
    assert print_value("p", value) == Printed(text, stars=stars)


@pytest.mark.parametrize(("value", "is_bold"), [(0.55, True), (0.45, True), (0.5499, False), (0.5, False)])
def test_membership_is_bold_outside_the_pass_window(value, is_bold):
    assert print_value("membership", value).is_bold is is_bold


def test_counts():
    assert print_value("count", 19, 20) == Printed("19/20", is_bold=True)
    assert print_value("count", 20, 20) == Printed("20/20")
    assert print_value("count", 432) == Printed("432")


def test_escapes():
    assert escape_latex("a&b%c$d#e_f{g}h~i^j\\k") == (
        r"a\&b\%c\$d\#e\_f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k"
    )
    assert escape_latex("r_rb") == r"$r_{\mathrm{rb}}$"
    assert escape_latex("M2 and p<0.05") == "$M_2$ and p$<$0.05"
    assert escape_markdown("a|b*c_d<e\\") == "a\\|b\\*c\\_d\\<e\\\\"


def test_every_layout_prints_every_number_of_its_table(full_numbers):
    numbers = full_numbers
    for name, table in TABLES.items():
        if not table.rows:
            continue
        printed = arrange(numbers[name], table)
        assert all(cell.text not in ("", "n/a") for row in printed for cell in row.cells), name
        shown = sum(len(row.numbers) for row in printed)
        hidden = numbers[name].column.str.endswith("_p_paired").sum() if name == "methods" else 0
        assert shown == len(numbers[name]) - hidden, name
        [header, *rows] = csv.reader(io.StringIO(to_csv(table, printed)))
        assert len(set(header)) == len(header), name
        assert len(rows) == len(printed)


def test_an_empty_table_is_a_header():
    printed = arrange(as_frame([]), TABLE)
    assert to_csv(TABLE, printed) == "forget_fraction,method,n,note\n"
    assert "\\midrule\n\\bottomrule" in to_latex(TABLE, printed, "x")
