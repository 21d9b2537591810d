import math
import re
from pathlib import Path

import pandas as pd
import pytest
from tests.paper.language_rows import make_rows

from benchmarks.tofu_table import COLUMNS, count_verdicts, describe, keep_rows, tabulate, write_page
from ruler.paper.tables.diagnostics import choose_rates

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "docs" / "bench" / "tofu.csv"


@pytest.fixture
def rows():
    return make_rows().reindex(columns=COLUMNS).query("seed == 0")


def test_the_page_shows_what_was_measured():
    (shown,) = re.findall(
        r"<!-- measured: study -->\n(.*?)\n<!-- end -->", (ROOT / "docs" / "tofu.md").read_text(), flags=re.DOTALL
    )
    known = describe(pd.read_csv(MODELS)) if MODELS.is_file() else ["Not measured yet."]
    assert shown.startswith("\n".join(known))


def test_a_method_has_the_rate_that_keeps_what_it_should(rows):
    lines = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in tabulate(choose_rates(rows))[2:]}
    assert list(lines) == ["Oracle", "Original", "NPO", "RMU"]
    assert lines["NPO"][1:9] == ["5e-05", "0.77", "", "inconclusive", "0.200", "0.100", "0.500", "0.000"]
    assert lines["RMU"][1] == "1e-05, none keeps 95%"
    assert lines["Original"][1] == ""


def test_all_rates_count_among_the_verdicts(rows):
    assert count_verdicts(rows)[2] == "| **TOFU, 10%** | 4 | 0 | 1 | 2 | 0 | 1 | 0 |"


def test_a_part_without_its_original_is_counted_but_not_tabulated(rows):
    text = "\n".join(describe(rows[rows["method"] != "original"]))
    assert "| **TOFU, 10%** | 4 |" in text
    assert "models measured" not in text
    assert "**TOFU, 10%**, 1 seed, 6 of 22 models measured:" in "\n".join(describe(rows))


def test_rows_are_kept_once_and_drawn(tmp_path, rows, monkeypatch):
    csv, page = tmp_path / "tofu.csv", tmp_path / "tofu.md"
    page.write_text("before\n<!-- measured: study -->\n<!-- end -->\nafter\n")
    later = rows.assign(verdict=rows["verdict"].replace("damaged", "residual"))
    stores = {"one": rows.assign(other=1), "two": later.iloc[-1:]}
    monkeypatch.setattr("benchmarks.tofu_table.load_results", lambda path: stores[path.name])
    keep_rows([Path("one")], csv)
    keep_rows([Path("two")], csv)
    table = pd.read_csv(csv)
    assert (len(table), "other" in table) == (len(rows), False)
    assert table["peers"].dropna().iloc[0] == '{"uds": 0.0}'
    assert math.isnan(table.set_index("method").loc["original", "learning_rate"])
    write_page(csv, page)
    shown = re.fullmatch(r"before\n<!-- measured: study -->\n(.*)\n<!-- end -->\nafter\n", page.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1].startswith("\n".join(describe(table)))
    assert "| **TOFU, 10%** | 4 | 0 | 1 | 3 |" in shown[1]
    assert "(tofu_layers.svg)" in shown[1]
    assert "<svg" in (tmp_path / "tofu_layers.svg").read_text()
