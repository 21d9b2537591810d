"""The points of each figure, and figures as files."""

import matplotlib
import pandas as pd
import pytest

from ruler.paper import figures
from ruler.paper.figures import FIGURES, paper_style, write_figures
from ruler.paper.results import check_results


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
    write_figures(some_results[some_results.study == study], tmp_path)
    names = {path.stem for path in tmp_path.iterdir()}
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


def test_the_points_are_the_results(some_results):
    one = figures.gather_figure_1(some_results)
    primary = some_results[(some_results.study == "primary") & (some_results.forget_fraction == 0.05)]
    mia = primary[primary.method != "original"].mia
    m2 = primary[~primary.method.isin(["original", "oracle"])].m2
    assert sorted(one[one.panel == "a"].value) == sorted(mia)
    assert sorted(one[one.panel == "b"].value) == sorted(m2)
    assert set(one.metric) == {"mia", "m2"}


def test_full_results_show_the_papers_number_of_points(all_results):
    results = check_results(all_results)
    counts = {number: len(figure.gather(results)) for number, figure in FIGURES.items()}
    assert counts == {
        "1": 500 + 400,
        "3": 1500,
        "4": 3 * 5 * (5 + 6),
        "5": 450 + 400,
        "6": 1200,
        "7": 500,
        "8": 3 * 5 * (5 + 6),
        "language_layers": 0,  # a study of ours alone
        "face_controls": 6 * 5 * (2 + 4),
    }


def test_figure_3_carries_the_tests_it_marks(some_results):
    points = figures.gather_figure_3(some_results)
    p_values = points.groupby("method").p_against_bad_teacher
    assert p_values.count()["bad_teacher"] == 0
    assert (p_values.count().drop("bad_teacher") == 20).all()


def test_datasets_and_methods_stand_in_the_papers_order(some_results):
    points = FIGURES["7"].gather(some_results)
    assert points.dataset.unique().tolist() == ["breast_cancer", "phoneme"]
    assert points.method.unique().tolist() == ["gradient_ascent", "neggrad_plus", "fine_tuning", "scrub", "oracle"]


def test_the_face_controls_show_all_choices_and_quote_the_paper_for_its_own_alone(some_results):
    points = FIGURES["face_controls"].gather(some_results)
    assert points.forget_choice.unique().tolist() == ["random", "most_frequent", "single", "pair"]
    quoted = points[points.paper.notna()]
    assert set(quoted.forget_choice) == {"random"}
    assert set(zip(quoted.method, quoted.metric, strict=True)) == {("original", "m4")}
    names = points.groupby("forget_choice").identities.unique()
    assert names["random"].tolist() == ["2 people, 43 images", "8 people, 216 images", "16 people, 432 images"]
    with paper_style():
        [axes] = FIGURES["face_controls"].draw(points).axes
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks[0] == "random, 1%\n2 people\n43 images"
    assert ticks[-1] == "two alone\n16 people\n432 images"
    held_out = points[points.metric == "m4_held_out"]
    assert set(held_out.method) == {"original"}
