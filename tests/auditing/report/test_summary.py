import math
from dataclasses import replace

from tests.auditing.report.factory import make_report, say

from ruler.auditing.report.wording import choose_headline


def test_inconclusive_says_what_was_missed_and_what_would_settle_it():
    report = make_report("inconclusive")
    text = say(report)
    assert "A difference that gives fewer than 64 right guesses in 100 may have been missed." in text
    assert "What would settle it, the most useful first 1. Five oracles" in text
    assert [text.index(need) for need in report.needs] == sorted(text.index(need) for need in report.needs)
    assert "not a sign of erasure" in text


def test_what_was_declared_is_called_declared():
    assert "Held-out records, oracle and seed pairing: declared by whoever ran the audit, not verified." in say(
        make_report()
    )
    assert "Held-out records: declared" in say(make_report(has_oracle=False, has_original=False))
    assert "declared" not in say(make_report("inconclusive", n_held_out=0, has_oracle=False, has_original=False))


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


def test_records_that_could_not_be_judged():
    report = make_report("inconclusive")
    report.records["q_value"] = float("nan")
    assert "Records: none could be judged individually." in say(report)


def test_several_oracles_are_named():
    text = say(make_report(test="hybrid"))
    assert "after subtracting what the oracles show" in text
    assert "hybrid test (several oracles)" in text


def test_a_damaged_model_gets_no_guesses():
    text = say(make_report("damaged"))
    assert "of 100 tries" not in text
    assert "linear CKA 0.41 (at least 0.70), skill 0.12 (at least 0.50)" in text


def test_reading_of_the_sign_is_called_a_reading():
    assert "inferred from the direction of the difference alone" in say(make_report("residual", has_original=False))
    assert "original model showed the same contrast" in say(make_report("residual"))


def test_without_held_out_records_nothing_is_tested():
    text = say(make_report("inconclusive", n_held_out=0))
    assert "could not be compared with anything, because no held-out records were given" in text
    assert "of 100 tries" not in text


def test_guards_that_block_say_so():
    assert "p = 0.0001). Blocks the verdict." in say(make_report("inconclusive"))


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
