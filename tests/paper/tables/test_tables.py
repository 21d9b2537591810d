"""Numbers set as the paper sets them."""

import pytest

from ruler.paper.results import check_results
from ruler.paper.tables import TABLES, arrange
from ruler.paper.tables.numbers import as_frame
from ruler.paper.typeset import to_latex, to_markdown


def compute(results, table):
    return as_frame(TABLES[table].compute(check_results(results)))


def test_the_original_stands_first_and_a_spread_has_no_sign(diagnostics):
    printed = arrange(compute(diagnostics, "13"), TABLES["13"])
    assert [row.labels[-1] for row in printed[:7]] == [
        *("Original", "Gradient Ascent", "NegGrad+", "Fine-Tuning", "SCRUB", "Bad Teacher", "Oracle"),
    ]
    page = "\n".join(to_markdown(TABLES["13"], printed, "# Table 13"))
    assert "| CIFAR-10 | ResNet-18 | 5% | NegGrad+ | 0.1598 ± 0.0543 | 0.1598 ± 0.0543 | 0.514 |" in page
    assert "± +" not in page


def test_group_headings_stand_over_their_columns(diagnostics):
    table = TABLES["face_controls"]
    lines = to_latex(table, arrange(compute(diagnostics, "face_controls"), table), "x").splitlines()
    groups = next(line for line in lines if "multicolumn" in line)
    assert groups.startswith(" & " * 6 + r"\multicolumn{4}{c}{$M_4$}")
    assert lines[lines.index(groups) + 1].startswith(r"\cmidrule(lr){7-10}")


def test_other_choices_are_not_labelled_by_a_fraction(diagnostics):
    rows = arrange(compute(diagnostics, "face_controls"), TABLES["face_controls"])
    assert [row.labels[2:] for row in rows[2:]] == [
        ["random", "10%"],
        ["most frequent", ""],
        ["one alone", ""],
        ["two alone", ""],
    ]


@pytest.mark.parametrize("table", ["12", "13", "14", "clinical", "face_controls", "clinical_leak"])
def test_no_printed_row_is_blank(diagnostics, table):
    printed = arrange(compute(diagnostics, table), TABLES[table])
    assert printed
    for row in printed:
        empty = [column.header for column, cell in zip(TABLES[table].columns, row.cells, strict=True) if not cell.text]
        assert set(empty) <= {"paper", "holds the paper's"}, row.keys
