import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ruler.auditing.report.wording import choose_headline

sys.path.insert(0, str(Path(__file__).parent))
from report_factory import VERDICTS, make_report


@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdict_headline_and_doubts_are_said(verdict):
    report = make_report(verdict)
    text = str(report)
    assert text.startswith(f"RULER audit: {verdict.upper()}\n{choose_headline(report)}\n")
    assert all(len(line) <= 100 for line in text.splitlines())
    assert text.isascii()
    for guard in report.guards:
        assert guard.name in text
        assert "Cure:" in text


def test_inconclusive_says_what_was_missed_and_what_it_takes():
    text = " ".join(str(make_report("inconclusive")).split())
    assert "Fewer than 64 right guesses in 100 were likely to be missed." in text
    assert "About 310 forget records would show erasure" in text
    assert "not a sign of erasure" in text


def test_erased_does_not_pass_for_usable_where_no_accuracy_was_seen():
    report = make_report("erased")
    seen = {"unlearned": {"retain_accuracy": 0.9}}
    warning = "Nor does it say that the model still works"
    assert warning in " ".join(str(replace(report, outputs={})).split())
    assert warning not in " ".join(str(replace(report, outputs=seen)).split())
    assert warning not in " ".join(str(replace(make_report("residual"), outputs={})).split())


def test_reading_of_the_sign_is_called_a_reading():
    assert "paper's reading" in " ".join(str(make_report("residual", has_original=False)).split())
    assert "original model showed the same contrast" in " ".join(str(make_report("residual")).split())


def test_weaker_control_is_named():
    assert "sets drawn at random" in " ".join(str(make_report("inconclusive", n_held_out=0)).split())


def test_no_doubts_no_metrics():
    report = make_report("erased", guards=[])
    assert "Guards: none raised a doubt." in str(report)


def test_names_cannot_reach_the_terminal_nor_flood_it():
    names = [f"\x1b[31m{number}" + "x" * 10_000 for number in range(40)]
    report = make_report("residual", ids=names)
    text = str(report)
    assert "\x1b" not in text
    assert len(text) < 5_000


def test_a_difference_within_the_margin_is_not_called_traceless():
    report = make_report("erased")
    assert choose_headline(report).startswith("No trace")
    report.metrics["m4"] = replace(report.metrics["m4"], p_value=0.01)
    assert choose_headline(report) == "What is left of the forgotten records lies within the agreed margin."


def test_without_an_oracle_the_headline_names_the_measure():
    report = make_report("erased")
    for name in ("m1", "m2", "m3"):
        report.metrics.pop(name, None)
    assert choose_headline(report).endswith("by the one measure that needs no oracle.")
