import matplotlib
import numpy as np
import pandas as pd
import pytest

from ruler.paper.figures import FIGURES, data, write_figures
from ruler.paper.figures.draw import _mark, _whiskers
from ruler.paper.figures.style import COLOURS, paper_style, render
from ruler.paper.names import METHODS
from ruler.paper.results import check_results


@pytest.fixture(scope="module")
def some_results(full_results):
    is_some = full_results.dataset.isin(["breast_cancer", "phoneme"]) & (full_results.forget_fraction < 0.1)
    return check_results(full_results[is_some & (full_results.seed < 5)])


@pytest.fixture(scope="module")
def folder(some_results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    write_figures(some_results, folder)
    return folder


@pytest.mark.parametrize("number", FIGURES)
def test_each_figure_is_written_in_three_forms(folder, some_results, number):
    stem = f"figure_{int(number):02d}"
    png, pdf = ((folder / f"{stem}.{extension}").read_bytes() for extension in ("png", "pdf"))
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert min(len(png), len(pdf)) > 8_000
    written = pd.read_csv(folder / f"{stem}.csv")
    gathered = FIGURES[number].gather(some_results)
    pd.testing.assert_series_equal(written.value, gathered.value, check_exact=False, rtol=1e-12)
    assert written.method.tolist() == gathered.method.tolist()


def test_the_points_are_the_results(some_results):
    one = data.gather_figure_1(some_results)
    primary = some_results[(some_results.study == "primary") & (some_results.forget_fraction == 0.05)]
    mia = primary[primary.method != "original"].mia
    m2 = primary[~primary.method.isin(["original", "oracle"])].m2
    assert sorted(one[one.panel == "a"].value) == sorted(mia)
    assert sorted(one[one.panel == "b"].value) == sorted(m2)
    assert set(one.metric) == {"mia", "m2"}


def test_full_results_show_the_papers_number_of_points(full_results):
    results = check_results(full_results)
    counts = {number: len(figure.gather(results)) for number, figure in FIGURES.items()}
    assert counts == {"1": 500 + 400, "3": 1500, "5": 450 + 400, "6": 1200, "7": 500}


def test_figure_3_carries_the_tests_it_marks(some_results):
    points = data.gather_figure_3(some_results)
    p_values = points.groupby("method").p_against_bad_teacher
    assert p_values.count()["bad_teacher"] == 0
    assert (p_values.count().drop("bad_teacher") == 20).all()


def test_datasets_and_methods_stand_in_the_papers_order(some_results):
    points = data.gather_figure_7(some_results)
    assert points.dataset.unique().tolist() == ["breast_cancer", "phoneme"]
    assert points.method.unique().tolist() == ["gradient_ascent", "neggrad_plus", "fine_tuning", "scrub", "oracle"]


@pytest.mark.parametrize("study", ["bad-teacher", "oracle-null", "minibatch"])
def test_a_study_alone_draws_what_it_can(some_results, study, tmp_path):
    written = write_figures(some_results[some_results.study == study], tmp_path)
    names = {path.stem for path in written}
    assert names == {"bad-teacher": {"figure_03"}, "oracle-null": {"figure_05"}, "minibatch": set()}[study]


def test_a_single_run_is_drawn_as_points(some_results):
    single = some_results[(some_results.dataset == "phoneme") & (some_results.seed == 0)]
    single = single[(single.study == "primary") & (single.forget_fraction == 0.05)]
    with paper_style():
        drawn = FIGURES["7"].draw(FIGURES["7"].gather(single))
        assert render(drawn, "png").startswith(b"\x89PNG")
    [axes] = drawn.axes
    assert [len(points.get_offsets()) for points in axes.collections] == [1] * 5


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


def test_every_method_has_a_colour_of_its_own():
    assert set(COLOURS) == set(METHODS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_marks_and_whiskers():
    assert [_mark(p) for p in (0.0098, 0.01, 0.02, 0.05)] == ["**", "**", "*", "ns"]
    assert _whiskers(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 100.0])) == (0.0, 4.0)
