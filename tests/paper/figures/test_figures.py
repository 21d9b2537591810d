"""Figures as files."""

import matplotlib
import pandas as pd
import pytest

from ruler.paper.figures import FIGURES, paper_style, write_figures


@pytest.mark.parametrize("number", FIGURES)
def test_each_figure_is_written_in_three_forms(folder, some_results, number):
    stem = f"figure_{int(number):02d}" if number.isdigit() else f"figure_{number}"
    png, pdf = ((folder / f"{stem}.{extension}").read_bytes() for extension in ("png", "pdf"))
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert min(len(png), len(pdf)) > 8_000
    written = pd.read_csv(folder / f"{stem}.csv")
    gathered = FIGURES[number].gather(some_results)
    pd.testing.assert_series_equal(written.value, gathered.value, check_exact=False, rtol=1e-12)
    assert written.method.tolist() == gathered.method.tolist()


@pytest.mark.parametrize("study", ["bad-teacher", "oracle-null", "minibatch"])
def test_a_study_alone_draws_what_it_can(some_results, study, tmp_path):
    written = write_figures(some_results[some_results.study == study], tmp_path)
    names = {path.stem for path in written}
    assert names == {"bad-teacher": {"figure_03"}, "oracle-null": {"figure_05"}, "minibatch": set()}[study]


def test_the_same_results_give_the_same_bytes(some_results, folder, tmp_path):
    write_figures(some_results[some_results.study == "oracle-null"], tmp_path / "a")
    write_figures(some_results[some_results.study == "oracle-null"], tmp_path / "b")
    for extension in ("png", "pdf"):
        first, second = (tmp_path / name / f"figure_05.{extension}" for name in "ab")
        assert first.read_bytes() == second.read_bytes()


def test_drawing_leaves_the_callers_matplotlib_alone(some_results, tmp_path):
    before = dict(matplotlib.rcParams)
    write_figures(some_results[some_results.study == "oracle-null"], tmp_path)
    assert dict(matplotlib.rcParams) == before
    with paper_style():
        assert matplotlib.rcParams["axes.spines.top"] is False
