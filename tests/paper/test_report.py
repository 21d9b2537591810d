import importlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ruler.core.errors import MissingPackageError
from ruler.paper import report
from ruler.paper.published import load_table
from ruler.paper.report import write_all
from ruler.paper.results import title_of


@pytest.fixture(scope="module")
def small(full_results):
    is_small = (full_results.dataset == "phoneme") & (full_results.seed < 3) & (full_results.forget_fraction == 0.05)
    return full_results[is_small & (full_results.study == "primary")]


@pytest.fixture(scope="module")
def folder(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    write_all(small, folder)
    return folder


def test_the_folder_holds_what_the_study_allows(folder):
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    tables = {f"tables/table_{name}.{kind}" for name in ("01", "03", "04", "05", "methods") for kind in KINDS}
    figures = {f"figures/figure_{name}.{kind}" for name in ("01", "05", "06", "07") for kind in ("csv", "png", "pdf")}
    assert names == {"comparison.csv", "reproduction.md", *tables, *figures}


KINDS = ("csv", "md", "tex")


def test_the_comparison_has_a_row_per_published_number(folder, small):
    comparison = pd.read_csv(folder / "comparison.csv", dtype={"table": str})
    assert len(comparison) == 1184
    assert comparison.columns.tolist()[:8] == COLUMNS
    [ours] = comparison[(comparison.table == "4") & (comparison.row == "phoneme, scrub, 5%")].to_dict("records")
    part = small[(small.dataset == "phoneme") & (small.method == "scrub") & (small.forget_fraction == 0.05)]
    assert ours["ours"] == pytest.approx(part.mia.mean())
    assert ours["difference"] == pytest.approx(part.mia.mean() - 0.508)
    assert pd.isna(ours["agrees"])
    assert "3 runs where the paper has 10" in ours["note"]


COLUMNS = ["table", "row", "column", "paper", "ours", "difference", "tolerance", "agrees"]


def test_a_diagnostic_study_leaves_its_tables_controls_and_findings(diagnostics, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_figures", lambda *_: None)
    write_all(diagnostics[diagnostics.study == "faces"], tmp_path)
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert names == {"findings.csv", *(f"table_{name}.{kind}" for name in ("14", "face_controls") for kind in KINDS)}
    verdicts = pd.read_csv(tmp_path / "verdicts.csv")
    assert len(verdicts) == 3 * 7
    assert set(verdicts[verdicts.method == "scrub"].verdict) == {"residual 4, inconclusive 1"}
    findings = pd.read_csv(tmp_path / "tables" / "findings.csv")
    outcomes = findings.groupby("finding").outcome.first().to_dict()
    assert outcomes == dict.fromkeys((1, 2, 3, 7), "not run") | dict.fromkeys((4, 5, 6), "confirmed")


def test_writing_again_replaces_and_changes_nothing(folder, small, monkeypatch):
    monkeypatch.setattr(report, "write_figures", lambda *_: None)  # whose bytes have a test of their own
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    write_all(small, folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_without_matplotlib_all_but_the_figures_is_written(small, tmp_path, monkeypatch):
    original = importlib.import_module

    def refuse(name, *args):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return original(name, *args)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingPackageError, match=r'drawing figures needs .* pip install "ruler-audit\[report\]"'):
        write_all(small, tmp_path)
    assert (tmp_path / "comparison.csv").exists()
    assert (tmp_path / "reproduction.md").exists()
    assert not (tmp_path / "figures").exists()


DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_page_in_the_docs_is_that_of_the_recorded_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "write_figures", lambda *_: None)
    write_all(pd.read_parquet(DOCS / "results.parquet"), tmp_path)
    head, written = (DOCS / "reproduction.md").read_text().split("## Agreement")
    assert written == (tmp_path / "reproduction.md").read_text().split("## Agreement")[1]
    differing = pd.read_csv(tmp_path / "comparison.csv", dtype={"table": str}).query("agrees == False")
    by_table = differing.groupby("table").size()
    is_wine = differing.row.str.startswith("wine_quality") & (differing.column == "m4_mean")
    in_text = differing[differing.table == "text"].row.str.partition(",")[0].value_counts()
    expected = {
        "Table 6": by_table["6"],
        "Table 8": is_wine.sum(),
        "Tables 7 and 8": by_table["7"] + by_table["8"] - is_wine.sum(),
        "Tables 9, 10 and 11": by_table[["9", "10", "11"]].sum(),
        "Table 1": by_table["1"],
        "Table 4": by_table["4"],
        "Section 5.3": in_text["section 5.3"],
        "Appendix A.6": in_text["appendix A.6"],
        "Tables 12 to 14 and section 5.5": by_table[["12", "13", "14"]].sum() + in_text["section 5.5"],
    }
    rows = [line.split(" | ") for line in head.split("## Table 6")[0].splitlines() if line.startswith("| ")][2:]
    assert {row[0][2:].partition(":")[0]: int(row[1]) for row in rows} == expected
    assert sum(expected.values()) == len(differing)
    assert f"**{1136 - len(differing)} agree,\n{len(differing)} differ**" in head


def test_the_docs_table_of_other_oracles_is_that_of_their_rows():
    rows = pd.read_csv(DOCS / "table_6_oracles.csv")
    assert len(rows) == 4 * 10 * 5
    published = load_table(6).query("column == 'm2_mean'").set_index("method").paper
    for method, part in rows.groupby("method"):
        same, other = part.m2_same_seed.mean(), part.m2_other_seeds.mean()
        line = f"| {title_of(str(method))} | {published[method]:+.5f} | {same:+.5f} | {other:+.5f} |"
        assert line in (DOCS / "reproduction.md").read_text()
        assert abs(other - published[method]) < 0.0006


def test_importing_the_room_loads_no_heavy_package():
    heavy = "{'torch', 'matplotlib', 'sklearn', 'pandas'}"
    code = f"import sys, ruler.paper.report; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
