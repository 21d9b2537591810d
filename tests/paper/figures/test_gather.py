"""The points of each figure."""

from ruler.paper.figures import FIGURES, gather, paper_style
from ruler.paper.results import check_results


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
        "language_layers": 0,  # a study of ours alone
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
