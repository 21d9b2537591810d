from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.report.factory import NAN, make_report

from ruler.auditing.report.figures import draw_distributions, draw_layers, draw_ranks, draw_roc, fit_effects
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis
from ruler.auditing.report.page import render_page
from ruler.auditing.report.wording import find_strongest


def test_layer_profiles():
    report = make_report(n_layers=12)
    profiles = draw_layers(report)
    assert [profile.metric.name for profile in profiles] == ["m2", "m4", "norm", "loss"]
    first = profiles[0]
    assert first.sentence == "Strongest at transformer.h.11, layer 12 of 12 (AUC 0.24 [0.15, 0.33])."
    assert first.strongest == 12
    assert first.original
    heights = [float(place.split()[1]) for place in first.line[1:].split("L")]
    assert len(heights) == 12
    assert heights == sorted(heights)  # ever further below 0.5
    assert draw_layers(make_report(n_layers=1)) == []
    assert not draw_layers(make_report(n_layers=3, has_original=False))[0].original


def test_layer_profiles_without_a_number_or_a_name():
    report = make_report(n_layers=40)
    m2 = report.metrics["m2"]
    layers = (replace(m2.layers[0], effect=NAN, effect_interval=(NAN, NAN)), *m2.layers[1:])
    report.metrics["m2"] = replace(m2, layer=None, layers=layers)
    profile = draw_layers(report)[0]
    assert profile.line.count("L") == 38
    assert profile.strongest is None
    assert len(profile.depths) <= 12
    assert "nan" not in profile.line
    assert "transformer.h.39" in render_page(report)


def test_roc_lies_within_the_drawing_and_stays_small():
    random = np.random.default_rng(0)
    false = np.sort(random.random(5000))
    report = make_report()
    report.distributions.roc["m2"] = (false, false**0.3)
    figure = draw_roc(report)
    assert [curve.label for curve in figure.curves][-1] == "M2"  # the best one on top
    assert sum(len(curve.path) for curve in figure.curves) < 12_000
    for curve in figure.curves:
        places = [tuple(map(float, place.split())) for place in curve.path[1:].split("L")]
        assert all(48 <= x <= 428 and 34 <= y <= 244 for x, y in places)
    assert "M2" in figure.description
    assert draw_roc(make_report("inconclusive", n_held_out=0)) is None


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
    assert fit_effects(report) is None
    assert find_strongest(report) is None
    report.distributions.rank_counts.clear()
    assert draw_ranks(report.distributions) is None
    assert "<h1" in render_page(report)


def test_ranks_below_and_above():
    figure = draw_ranks(make_report().distributions)
    assert figure.outline
    assert len(figure.bars) <= 20
    assert not draw_ranks(make_report(n_held_out=0).distributions).outline


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.99, 1.0), (-1, 1), (0.999999, 1.0), (0.1999, 0.2003)])
def test_ticks_are_round_and_apart(low, high):
    ticks = Axis(low, high).find_ticks()
    labels = [tick.label for tick in ticks]
    assert 2 <= len(labels) <= 6
    assert len(set(labels)) == len(labels)
