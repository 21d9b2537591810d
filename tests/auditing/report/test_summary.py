"""What print(report) shows."""

from tests.auditing.report.factory import make_report, say

from ruler.auditing.settings import AuditSettings


def test_it_opens_with_the_headline_and_what_remains():
    lines = str(make_report("erased")).splitlines()
    assert lines[0] == "RULER audit: ERASED. At most 13% remains, in what the model says and in what its layers hold."
    assert lines[1] == "Remaining (limit 20%): 5% [-4%, 14%] in what it says, 4% [-5%, 13%] in its layers."
    assert lines[2] == "What it says: erased. Its layers: erased. Intervals: 95%."
    assert lines[4].split()[0] == "remaining"


def test_what_was_not_asked_is_said():
    report = make_report("erased", settings=AuditSettings(scope="outputs"))
    assert "Its layers: erased, not asked." in say(report)


def test_the_table_holds_both_scales():
    lines = str(make_report("erased")).splitlines()
    (loss,) = [line for line in lines if line.startswith("loss  ")]
    assert loss.split("  ")[-1] == "within limit"
    assert "4% [-5%, 13%]" in loss
    assert "5% [-4%, 14%]" in loss
    (m2,) = [line for line in lines if line.startswith("M2  ")]
    assert m2.split()[1:3] == ["-", "-"]


def test_inconclusive_says_what_would_settle_it():
    report = make_report("inconclusive")
    text = say(report)
    assert "What would settle it, the most useful first 1. Two oracles" in text
    assert [text.index(need) for need in report.needs] == sorted(text.index(need) for need in report.needs)
    assert "not a sign of erasure" in text


def test_persons_have_a_line_each():
    report = make_report("residual", n_groups=25)
    text = str(report)
    assert "Groups: 25" in text
    assert "and 5 more in report.groups" in text
    gravest = [line for line in text.splitlines() if line.startswith("  person ")]
    assert len(gravest) == 20
    assert gravest[0].split(": ")[1].startswith("residual, ")
    assert "at most 5% are expected to be false alarms" in say(report)
    assert "Groups:" not in str(make_report("residual"))


def test_a_person_whose_amount_is_not_known_has_none():
    report = make_report("residual", n_groups=4)
    report.groups.loc[0, ["remaining", "low", "high"]] = float("nan")
    text = str(report)
    assert "; how much remains is not known." in text
    assert "not known remains" not in text


def test_groups_are_what_was_compared():
    assert "Compared: 10 people (groups) with 40 forget records." in say(make_report(n_groups=10))
    assert "Compared: 1 person (group) with 40 forget records." in say(make_report(n_groups=1))
    assert "Compared: 40 forget records." in say(make_report())


def test_too_few_held_out_records_for_single_ones():
    assert "(single records can only be told with about 1,600 held-out ones)" in say(make_report("erased"))
    assert "single records can only" not in say(make_report("erased", n_held_out=1599))
    assert "single records can only" not in say(make_report("inconclusive", n_held_out=0))


def test_descriptive_contrasts_that_know_the_original_have_no_p():
    (m3,) = [line for line in str(make_report("erased")).splitlines() if line.startswith("M3  ")]
    assert m3.split()[-2:] == ["-", "descriptive"]


def test_records_that_could_not_be_judged():
    report = make_report("inconclusive")
    report.records["q_value"] = float("nan")
    assert "Records: none could be judged individually." in say(report)


def test_damage_is_told_with_its_numbers():
    assert "linear CKA 0.41 (at least 0.70), skill 0.12 (at least 0.50)" in say(make_report("damaged"))


def test_without_held_out_records_nothing_is_tested():
    text = say(make_report("inconclusive", n_held_out=0))
    assert "could not be compared with anything, because no held-out records were given" in text
    assert "not known in what it says, not known in its layers" in text


def test_guards_that_block_say_so():
    assert "p = 0.0001). Blocks the verdict." in say(make_report("inconclusive"))


def test_no_doubts_no_metrics():
    report = make_report("erased", guards=[])
    assert "Guards: no problem found." in str(report)


def test_names_cannot_reach_the_terminal_nor_flood_it():
    names = [f"\x1b[31m{number}" + "x" * 10_000 for number in range(40)]
    report = make_report("residual", ids=names, n_groups=4)
    report.groups["group"] = [f"\x1b[31m{number}" + "x" * 10_000 for number in range(4)]
    text = str(report)
    assert "\x1b" not in text
    assert len(text) < 8_000
