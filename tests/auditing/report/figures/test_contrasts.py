"""Layer profiles and ROC curves."""

from dataclasses import replace

import numpy as np
from tests.auditing.report.factory import NAN, make_report

from ruler.auditing.findings import Given, Part
from ruler.auditing.report.figures import draw_layers, draw_loss_roc, draw_roc
from ruler.auditing.report.page import render_page


def test_layer_profiles():
    profiles = draw_layers(make_report(n_layers=12))
    assert [(profile.metric.name, profile.what) for profile in profiles] == [
        ("readout", "what remains"),
        ("m2", "AUC"),
        ("m4", "AUC"),
        ("norm", "AUC"),
    ]
    first = profiles[0]
    assert first.sentence == (
        "Differs most at transformer.h.11, layer 12 of 12 (84% [75%, 93%] remains, AUC 0.76 [0.67, 0.85])."
    )
    assert first.strongest == first.points[-1].x
    heights = [point.y for point in first.points]
    assert len(heights) == 12
    assert heights == sorted(heights, reverse=True)  # ever more remains, and up is smaller
    assert first.band[0] < first.middle < first.band[1]
    assert profiles[1].band is None
    assert {tick.label for tick in first.rises} >= {"0%", "100%"}
    assert draw_layers(make_report(n_layers=1)) == []


def test_layer_profiles_without_a_number_or_a_name():
    report = make_report(n_layers=40)
    m2 = report.metrics["m2"]
    layers = (replace(m2.layers[0], effect=NAN, effect_interval=(NAN, NAN)), *m2.layers[1:])
    report.metrics["m2"] = replace(m2, layer=None, layers=layers)
    profile = draw_layers(report)[1]
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


def test_loss_roc_shows_the_report_s_own_auc():
    report = make_report()
    loss = report.metrics["loss"]
    above = draw_loss_roc(report)
    assert above.label == "AUC 0.76 [0.67, 0.85]"
    assert "what references have, highest first, reaches an AUC of 0.76 [0.67, 0.85]." in above.sentence
    assert above.path.startswith("M48 244L")
    assert above.path.endswith("L428 34")
    report.metrics["loss"] = replace(loss, place=Part(0.3, (0.2, 0.4), 0.01))
    below = draw_loss_roc(replace(report, given=Given()))
    assert (
        "by their confidence in the right answer, lowest first, reaches an AUC of 0.70 [0.60, 0.80]." in below.sentence
    )
    assert "In the tables it is 0.30" in below.sentence


def test_no_loss_roc_without_losses_or_held_out_records():
    assert draw_loss_roc(make_report(has_losses=False)) is None
    assert draw_loss_roc(make_report("inconclusive", n_held_out=0)) is None
    report = make_report()
    report.distributions.roc["loss"] = (np.array([NAN]), np.array([NAN]))
    assert draw_loss_roc(report) is None
    assert "loss-roc-title" not in render_page(report)
