"""The words of verdicts, layers, margins, sensitivity and privacy."""

from dataclasses import replace

import pytest
from tests.auditing.report.factory import VERDICTS, make_report, say

from ruler.auditing import audit
from ruler.auditing.report.wording import choose_headline, find_strongest
from ruler.auditing.settings import AuditSettings


@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdict_headline_and_doubts_are_said(verdict):
    report = make_report(verdict)
    text = str(report)
    assert text.startswith(f"RULER audit: {verdict.upper()}\n{choose_headline(report)}\n")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.isascii()
    for guard in report.guards:
        assert guard.name in text
        assert "What to do:" in text


@pytest.mark.parametrize("verdict", ["residual", "erased"])
def test_verdicts_that_need_nothing_are_not_to_be_settled(verdict):
    report = make_report(verdict)
    assert "settle it" not in str(report)
    assert "settle it" not in report._repr_html_()


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("n_layers", [1, 3, 30])
def test_the_verdict_speaks_of_contrasts_and_layers_only(verdict, n_layers):
    report = make_report(verdict, n_layers=n_layers)
    text = say(report)
    assert "whoever sees" not in text
    if verdict not in ("invalid", "damaged"):
        named = {1: "layer fc2", 3: "layers transformer.h.0, transformer.h.1 and transformer.h.2"}
        layers = named.get(n_layers, "30 layers (transformer.h.0 to transformer.h.29)")
        assert f"Judged by M2, M4, norm and loss at {layers}, the " in text


def test_a_layer_without_a_name_is_called_unnamed():
    report = make_report("residual")
    metrics = {name: replace(metric, layer=None) for name, metric in report.metrics.items()}
    assert "at one unnamed layer" in say(replace(report, provenance={}, metrics=metrics))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (AuditSettings(), "in at most 60 of 100 pairs. Chosen by: default of the software."),
        (AuditSettings(margin=0.05), "in at most 55 of 100 pairs. Chosen by: whoever ran the audit, no name given."),
        (AuditSettings(margin_chosen_by="the board, 3 May"), "Chosen by: the board, 3 May."),
        (AuditSettings(share_limit=0.2), "share left is 20%"),
    ],
    ids=str,
)
def test_margin_and_share_limit_say_who_chose_them(settings, words):
    assert words in say(make_report(settings=settings))


def test_one_contrast_is_not_the_strongest_of_several():
    report = make_report("residual", has_oracle=False, has_original=False, has_losses=False)
    assert "record, the only deciding contrast (M4 at layer fc2) tells which is which" in say(report)


def test_spread_is_told_where_it_tells_more():
    report = make_report("residual")
    report.metrics["m2"] = replace(report.metrics["m2"], effect=0.5, spread=0.9)
    assert "(spread of M2 at layer fc2) tells which is which in 90 of 100 tries" in say(report)


def test_privacy_in_words():
    text = say(make_report("residual"))
    assert "epsilon is at least 0.84 (confidence 95%)" in text
    assert "M2 finds 15.0% of the forget records [5.7, 29.8]%; guessing finds 1%." in text
    assert "prove no epsilon above 0" in say(make_report("erased"))
    assert "only be measured with at least 100 held-out records" in say(make_report(n_held_out=60))
    assert "epsilon" not in say(make_report("inconclusive", n_held_out=0))


def test_right_guesses_read_both_directions():
    assert find_strongest(make_report("residual")).n_right == 76
    assert find_strongest(make_report("displaced")).n_right == 78
    assert find_strongest(make_report("invalid")) is None
    assert find_strongest(make_report("damaged")) is None


def test_few_records_promise_no_share_of_right_guesses(random):
    report = audit(tuple(random.normal(size=(n, 4)) for n in (1, 60, 40)))
    assert report.verdict == "inconclusive"
    text = " ".join(str(report).split())
    assert "neither that the 1 forget record is remembered nor that it was erased" in text
    assert "any difference but a complete one may have been missed" in text
