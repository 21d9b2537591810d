"""Histograms of scores and of ranks."""

import numpy as np
import pytest
from tests.auditing.report.factory import NAN, make_report

from ruler.auditing.findings import Plane
from ruler.auditing.report.figures import draw_distributions, draw_plane, draw_ranks
from ruler.auditing.report.figures.axes import EDGE, WIDTH
from ruler.auditing.report.page import render_page


def test_histogram_holds_every_record_within_the_drawing():
    random = np.random.default_rng(0)
    values = {"forget": random.random(500), "retain": random.random(900), "held_out": random.random(30)}
    figure = draw_distributions("oracle", "title", values)
    assert [row.side for row in figure.rows] == ["forget", "held_out", "retain"]
    assert len(figure.rows[1].dots) == 30
    for row in figure.rows:
        for x, y, width, _ in row.bars:
            assert x >= EDGE
            assert x + width <= WIDTH - EDGE + 0.1
            assert 0 <= y <= row.base_y
    assert len(figure.ticks) >= 2


@pytest.mark.parametrize("values", [[1.0], [1.0] * 50, [0.0] * 3, [NAN, 0.5], [-1.0, 1.0], [1 - 1e-12, 1.0]])
def test_degenerate_values_are_drawn(values):
    figure = draw_distributions("oracle", "title", {"forget": np.array(values)})
    assert np.isfinite([row.median_x for row in figure.rows]).all()


def test_nothing_to_draw():
    assert draw_distributions("oracle", "title", {}) is None
    assert draw_distributions("oracle", "title", {"forget": np.array([NAN])}) is None
    report = make_report(has_oracle=False)
    report.metrics.clear()
    report.distributions.rank_counts.clear()
    assert draw_ranks(report.distributions) is None
    assert "<h1" in render_page(report)


def test_ranks_below_and_above():
    figure = draw_ranks(make_report().distributions)
    assert figure.outline
    assert len(figure.bars) <= 20
    assert not draw_ranks(make_report("inconclusive", n_held_out=0).distributions).outline


def test_plane_marks_every_record_within_the_frame():
    random = np.random.default_rng(0)
    points = {
        side: random.standard_t(2, size=(n, 2)) for side, n in (("forget", 30), ("retain", 200), ("held_out", 90))
    }
    figure = draw_plane(Plane("fc2", points, (0.5, 0.25)))
    assert figure.title == "The records at layer fc2, in two dimensions"
    assert [one.side for one in figure.marks] == ["retain", "held_out", "forget"]  # the forget records on top
    for one in figure.marks:
        places = [place.split(one.glyph)[0].split() for place in one.path.split("M")[1:]]
        assert len(places) == len(points[one.side])
        assert all(EDGE <= float(x) <= WIDTH - EDGE and 34 <= float(y) <= 314 for x, y in places)
    assert "beyond the frame" in figure.note
    assert "50.0% and 25.0% of the variance" in figure.sentence


def test_plane_of_few_or_no_records():
    one = draw_plane(Plane("", {"forget": np.zeros((1, 2))}, (1.0, 0.0)))
    assert "the layer that was read" in one.title
    assert one.note == ""
    assert draw_plane(None) is None
    assert draw_plane(Plane("", {"forget": np.zeros((0, 2))}, (1.0, 0.0))) is None
