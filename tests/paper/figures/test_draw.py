"""Points on paper."""

import numpy as np
import pytest

from ruler.paper import figures
from ruler.paper.figures import FIGURES, paper_style, render
from ruler.paper.figures.draw import colour_of
from ruler.paper.results import PAPER_MODELS


def test_a_single_run_is_drawn_as_points(some_results):
    single = some_results[(some_results.dataset == "phoneme") & (some_results.seed == 0)]
    single = single[(single.study == "primary") & (single.forget_fraction == 0.05)]
    with paper_style():
        drawn = FIGURES["7"].draw(FIGURES["7"].gather(single))
        assert render(drawn, "png").startswith(b"\x89PNG")
    [axes] = drawn.axes
    assert [len(points.get_offsets()) for points in axes.collections] == [1] * 5


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


def test_face_controls_without_placebos_are_drawn(some_results):
    bare = some_results.assign(m4_placebo=np.nan, m4_placebo_low=np.nan, m4_placebo_high=np.nan, m4_held_out=np.nan)
    with paper_style():
        drawn = FIGURES["face_controls"].draw(FIGURES["face_controls"].gather(bare))
        assert render(drawn, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(("p_value", "mark"), [(0.0098, "**"), (0.01, "**"), (0.02, "*"), (0.05, "ns")])
def test_tests_against_bad_teacher_are_marked(some_results, p_value, mark):
    points = figures.gather_figure_3(some_results)
    points["p_against_bad_teacher"] = points["p_against_bad_teacher"].where(points.method == "bad_teacher", p_value)
    with paper_style():
        drawn = FIGURES["3"].draw(points)
    texts = {text.get_text() for axes in drawn.axes for text in axes.texts}
    assert texts == {mark}


def test_the_finer_scale_ends_at_the_whiskers_and_counts_what_lies_beyond(some_results):
    points = figures.gather_figure_5(some_results)
    is_method = points.panel == "b"
    points.loc[is_method, "value"] = np.resize([0.0, 1.0, 2.0, 3.0, 4.0], is_method.sum())
    points.loc[points.index[is_method][0], "value"] = 100.0
    with paper_style():
        _, right = FIGURES["5"].draw(points).axes
    low, high = right.get_ylim()
    assert low < 0 < 4 < high < 10
    [note] = [text.get_text() for text in right.texts]
    assert note == f"1 of {is_method.sum()} values off scale"


@pytest.mark.parametrize(("number", "panel"), [("1", "b"), ("5", "b"), ("8", "b")])
def test_a_panel_without_points_is_not_drawn(number, panel, some_results):
    points = FIGURES[number].gather(some_results)
    with paper_style():
        assert len(FIGURES[number].draw(points).axes) == 2
        assert len(FIGURES[number].draw(points[points.panel == panel]).axes) == 1


def test_a_dataset_without_runs_at_a_fraction_leaves_its_place_free(some_results):
    points = FIGURES["6"].gather(some_results)
    dataset, fraction = points.dataset.iloc[0], points.forget_fraction.iloc[0]
    kept = points[(points.dataset != dataset) | (points.forget_fraction != fraction)]
    with paper_style():
        drawn = FIGURES["6"].draw(kept)
    assert [axes.get_visible() for axes in drawn.axes].count(False) == 1


@pytest.mark.parametrize(("n", "n_boxes"), [(4, 0), (5, 1)])
def test_boxes_are_drawn_from_five_points_on(n, n_boxes, some_results):
    points = FIGURES["7"].gather(some_results)
    points = points[(points.dataset == "phoneme") & (points.method == "oracle")]
    points = points.loc[np.resize(points.index, n)].assign(value=np.arange(n) / n)
    with paper_style():
        [axes] = FIGURES["7"].draw(points).axes
    assert len(axes.patches) == n_boxes
