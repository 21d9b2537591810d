"""Layer profiles and ROC curves."""

from dataclasses import replace

import numpy as np
from tests.auditing.report.factory import NAN, make_report

from ruler.auditing.report.figures import draw_layers, draw_loss_roc, draw_roc
from ruler.auditing.report.page import render_page


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


def test_loss_roc_shows_the_report_s_own_auc():
    report = make_report()
    loss = report.metrics["loss"]
    below = draw_loss_roc(report)
    assert below.label == "AUC 0.54 [0.45, 0.63]"  # 0.46 from the other side
    assert "lowest first, reaches an AUC of 0.54 [0.45, 0.63]." in below.sentence
    assert "In the tables it is 0.46" in below.sentence
    assert below.path.startswith("M48 244L")
    assert below.path.endswith("L428 34")
    report.metrics["loss"] = replace(loss, effect=0.7, effect_interval=(0.6, 0.8))
    above = draw_loss_roc(replace(report, pairing=None))
    assert above.sentence.endswith("by their loss, highest first, reaches an AUC of 0.70 [0.60, 0.80].")
    report.metrics["loss"] = replace(loss, test="hybrid")
    assert "the curve is that of this model alone" in draw_loss_roc(report).sentence


def test_no_loss_roc_without_losses_or_held_out_records():
    assert draw_loss_roc(make_report(has_losses=False)) is None
    assert draw_loss_roc(make_report("inconclusive", n_held_out=0)) is None
    report = make_report()
    report.distributions.roc["loss"] = (np.array([NAN]), np.array([NAN]))
    assert draw_loss_roc(report) is None
    assert "loss-roc-title" not in render_page(report)
