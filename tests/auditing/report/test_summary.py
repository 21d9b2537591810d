import math
from dataclasses import replace

import pytest
from tests.auditing.report.factory import VERDICTS, make_report

from ruler.auditing.findings import GuardFinding
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


def say(report):
    return " ".join(str(report).split())


def test_inconclusive_says_what_was_missed_and_what_would_settle_it():
    report = make_report("inconclusive")
    text = say(report)
    assert "A difference that gives fewer than 64 right guesses in 100 may have been missed." in text
    assert "What would settle it, the most useful first 1. Five oracles" in text
    assert [text.index(need) for need in report.needs] == sorted(text.index(need) for need in report.needs)
    assert "not a sign of erasure" in text


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


def test_what_was_declared_is_called_declared():
    assert "Held-out records, oracle and seed pairing: declared by whoever ran the audit, not verified." in say(
        make_report()
    )
    assert "Held-out records: declared" in say(make_report(has_oracle=False, has_original=False))
    assert "declared" not in say(make_report("inconclusive", n_held_out=0, has_oracle=False, has_original=False))


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


def test_erased_says_by_what_it_could_have_been_seen():
    text = say(make_report("erased"))
    assert "M2, norm and loss told the forget records apart in the original model." in text
    assert "told known members from held-out records" in say(make_report("erased", has_original=False))


def test_a_contrast_that_sees_nothing_clears_nothing():
    report = make_report("residual")
    text = say(report)
    assert "M4 (original model: AUC 0.480, p 0.710): Not seen here, so this contrast cannot clear the model." in text
    assert "p 0.0004): Seen best here. At most 101% of it is left, which is not under the limit of 50%." in text
    assert "p 0.0004): Seen here. At most 31% of it is left. The share of the contrast that is seen best" in text
    assert "Seen best here. Nothing of it is left, which is under the limit" in say(make_report("displaced"))
    m2 = report.metrics["m2"]
    report.metrics["m2"] = replace(m2, share_left_upper=math.inf, share_left_interval=(0.1, math.inf))
    assert "Seen best here. No upper limit can be given for how much of it is left, so it may exceed" in say(report)
    report.metrics["m2"] = replace(m2, share_left_upper=None)
    assert "Seen here. How much of it is left is not known." in say(report)
    report.metrics["m2"] = replace(m2, sensitivity=None)
    assert "M2: Not tried, so this contrast cannot clear the model." in say(report)


def test_one_contrast_alone_is_not_called_erased():
    lines = str(make_report("erased")).splitlines()
    assert next(line for line in lines if line.startswith("M2  ")).endswith("within margin")
    assert next(line for line in lines if line.startswith("M4  ")).endswith("insensitive")
    assert "Insensitive: within the margin, but not able to clear the model." in lines


def test_one_contrast_is_not_the_strongest_of_several():
    report = make_report("residual", has_oracle=False, has_original=False, has_losses=False)
    assert "record, the only deciding contrast (M4 at layer fc2) tells which is which" in say(report)


def test_records_that_could_not_be_judged():
    report = make_report("inconclusive")
    report.records["q_value"] = float("nan")
    assert "Records: none could be judged individually." in say(report)


def test_spread_is_told_where_it_tells_more():
    report = make_report("residual")
    report.metrics["m2"] = replace(report.metrics["m2"], effect=0.5, spread=0.9)
    assert "(spread of M2 at layer fc2) tells which is which in 90 of 100 tries" in say(report)


def test_several_oracles_are_named():
    text = say(make_report(test="hybrid"))
    assert "after subtracting what the oracles show" in text
    assert "hybrid test (several oracles)" in text


def test_a_damaged_model_gets_no_guesses():
    text = say(make_report("damaged"))
    assert "of 100 tries" not in text
    assert "linear CKA 0.41 (at least 0.70), skill 0.12 (at least 0.50)" in text


def test_privacy_in_words():
    text = say(make_report("residual"))
    assert "epsilon is at least 0.84 (confidence 95%)" in text
    assert "M2 finds 15.0% of the forget records [5.7, 29.8]%; guessing finds 1%." in text
    assert "prove no epsilon above 0" in say(make_report("erased"))
    assert "only be measured with at least 100 held-out records" in say(make_report(n_held_out=60))
    assert "epsilon" not in say(make_report("inconclusive", n_held_out=0))


def test_reading_of_the_sign_is_called_a_reading():
    assert "inferred from the direction of the difference alone" in say(make_report("residual", has_original=False))
    assert "original model showed the same contrast" in say(make_report("residual"))


def test_without_held_out_records_nothing_is_tested():
    text = say(make_report("inconclusive", n_held_out=0))
    assert "could not be compared with anything, because no held-out records were given" in text
    assert "of 100 tries" not in text


def test_guards_that_block_say_so():
    assert "p = 0.0001). Blocks the verdict." in say(make_report("inconclusive"))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_notebooks_get_the_verdict_without_scripts(verdict):
    hostile = "<script>alert(1)</script>"
    report = make_report(verdict, guards=[GuardFinding(hostile, "warn", hostile, hostile)], ids=[hostile] * 40)
    report = replace(report, reason=hostile, needs=[hostile])
    page = report._repr_html_()
    assert f"RULER audit: {verdict}." in page
    assert choose_headline(report) in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert len(page) < 10_000
    assert page.count("<li>") == page.count("</li>") == 2


def test_no_doubts_no_metrics():
    report = make_report("erased", guards=[])
    assert "Guards: no problem found." in str(report)


def test_names_cannot_reach_the_terminal_nor_flood_it():
    names = [f"\x1b[31m{number}" + "x" * 10_000 for number in range(40)]
    report = make_report("residual", ids=names)
    text = str(report)
    assert "\x1b" not in text
    assert len(text) < 8_000


def test_a_difference_within_the_margin_is_not_called_traceless():
    report = make_report("erased")
    assert choose_headline(report).startswith("No trace beyond the margin")
    report.metrics["m4"] = replace(report.metrics["m4"], p_value=0.01)
    assert choose_headline(report) == "A difference was found, but it was shown to lie within the margin."


def test_right_guesses_read_both_directions():
    assert find_strongest(make_report("residual")).n_right == 76
    assert find_strongest(make_report("displaced")).n_right == 78
    assert find_strongest(make_report("invalid")) is None
    assert find_strongest(make_report("damaged")) is None


def test_the_representation_is_one_line():
    text = repr(make_report("residual"))
    assert text.startswith("<Report: residual (m1 descriptive, m2 residual, ")
    assert "40 forget records, 2 guard findings" in text
    assert "\n" not in text
    assert len(text) < 300
