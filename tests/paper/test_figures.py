import matplotlib
import numpy as np
import pandas as pd
import pytest

from ruler.paper.figures import FIGURES, gather, paper_style, render, write_figures
from ruler.paper.figures.draw import colour_of
from ruler.paper.results import PAPER_MODELS, check_results


@pytest.fixture(scope="module")
def some_results(all_results):
    is_some = all_results.dataset.isin(["breast_cancer", "phoneme"]) & (all_results.forget_fraction < 0.1)
    is_some |= all_results.study.isin(["faces", "clinical"])
    return check_results(all_results[is_some & (all_results.seed < 5)])


@pytest.fixture(scope="module")
def folder(some_results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    write_figures(some_results, folder)
    return folder


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


def test_the_points_are_the_results(some_results):
    one = gather.gather_figure_1(some_results)
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
        "face_controls": 6 * 5 * (2 + 4),
    }


def test_figure_3_carries_the_tests_it_marks(some_results):
    points = gather.gather_figure_3(some_results)
    p_values = points.groupby("method").p_against_bad_teacher
    assert p_values.count()["bad_teacher"] == 0
    assert (p_values.count().drop("bad_teacher") == 20).all()


def test_datasets_and_methods_stand_in_the_papers_order(some_results):
    points = gather.gather_figure_7(some_results)
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
    assert len({colour_of(name) for name in PAPER_MODELS}) == len(PAPER_MODELS)


def test_figures_4_and_8_show_each_seed_and_the_published_mean(some_results):
    for number, study in (("4", "clinical"), ("8", "faces")):
        points = FIGURES[number].gather(some_results)
        assert points.groupby("panel").metric.unique().map(list).to_dict() == {"a": ["m2"], "b": ["m4"]}
        assert "original" not in set(points[points.panel == "a"].method)
        assert "oracle" not in set(points.method)
        rows = some_results[(some_results.study == study) & (some_results.forget_choice == "random")]
        rows = rows[rows.dataset.ne("mtsamples_rows") & rows.method.ne("oracle")]
        assert sorted(points[points.panel == "b"].value) == sorted(rows.m4)
    faces = points[(points.panel == "b") & (points.forget_fraction == 0.01)].groupby("method").paper.first()
    assert faces["original"] == 0.941
    assert np.isnan(faces["bad_teacher"])


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


def test_face_controls_without_placebos_are_drawn(some_results):
    bare = some_results.assign(m4_placebo=np.nan, m4_placebo_low=np.nan, m4_placebo_high=np.nan, m4_held_out=np.nan)
    with paper_style():
        drawn = FIGURES["face_controls"].draw(FIGURES["face_controls"].gather(bare))
        assert render(drawn, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(("p_value", "mark"), [(0.0098, "**"), (0.01, "**"), (0.02, "*"), (0.05, "ns")])
def test_tests_against_bad_teacher_are_marked(some_results, p_value, mark):
    points = gather.gather_figure_3(some_results)
    points["p_against_bad_teacher"] = points["p_against_bad_teacher"].where(points.method == "bad_teacher", p_value)
    with paper_style():
        drawn = FIGURES["3"].draw(points)
    texts = {text.get_text() for axes in drawn.axes for text in axes.texts}
    assert texts == {mark}


def test_the_finer_scale_ends_at_the_whiskers_and_counts_what_lies_beyond(some_results):
    points = gather.gather_figure_5(some_results)
    is_method = points.panel == "b"
    points.loc[is_method, "value"] = np.resize([0.0, 1.0, 2.0, 3.0, 4.0], is_method.sum())
    points.loc[points.index[is_method][0], "value"] = 100.0
    with paper_style():
        _, right = FIGURES["5"].draw(points).axes
    low, high = right.get_ylim()
    assert low < 0 < 4 < high < 10
    [note] = [text.get_text() for text in right.texts]
    assert note == f"1 of {is_method.sum()} values off scale"
