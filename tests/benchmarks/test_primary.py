"""What the paper's methods leave: the page shows the rows that were kept."""

import pandas as pd

from benchmarks.primary import BENCH, FILE, FRACTIONS, MARK, PAGE, list_comparisons, tabulate


def test_the_page_shows_what_was_measured():
    shown = PAGE.read_text().split(f"<!-- measured: {MARK} -->\n")[1].split("\n<!-- end -->")[0]
    assert shown.splitlines() == tabulate(pd.read_csv(BENCH / FILE))


def test_every_table_and_fraction_of_the_primary_study_is_compared():
    found = list_comparisons()
    assert len(found) == 10 * len(FRACTIONS)
    assert all(len(one.methods) == 5 and one.seeds == 3 for one in found.values())


def test_what_some_seed_could_not_tell_is_a_dash():
    (row,) = pd.read_csv(BENCH / FILE).head(1).to_dict("records")
    rows = pd.DataFrame([row | {"layers_remaining": value} for value in (0.5, float("nan"))])
    cells = tabulate(rows)[-1].split(" | ")
    assert cells[4] == "\u2013"
    assert cells[3].endswith("%")
