"""The sentences of verdicts, contrasts, limits, what was given, and privacy."""

import math
from dataclasses import replace

import pytest
from tests.auditing.report.factory import NAN, VERDICTS, attack, make_remaining, make_report, say

from ruler.auditing import audit
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Part
from ruler.auditing.records import NOT_JUDGED
from ruler.auditing.report import words
from ruler.auditing.rule import Judged
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import decide

OUTPUTS = AuditSettings(scope="outputs")


def change(report, **metrics):
    """The report with other numbers of some contrasts, and the verdicts that follow from them."""
    found = {name: replace(report.metrics[name], **fields) for name, fields in metrics.items()}
    return decide(replace(report, metrics={**report.metrics, **found}))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdict_headline_and_doubts_are_said(verdict):
    report = make_report(verdict)
    text = say(report)
    assert text.startswith(f"RULER audit: {verdict.upper()}. {words.choose_headline(report)} Remaining (limit 20%): ")
    assert all(len(line) <= 100 for line in str(report).splitlines())
    assert str(report).isascii()
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
    text = say(make_report(verdict, n_layers=n_layers))
    if verdict not in ("invalid", "damaged"):
        named = {1: "layer fc2", 3: "layers transformer.h.0, transformer.h.1 and transformer.h.2"}
        layers = named.get(n_layers, "30 layers (transformer.h.0 to transformer.h.29)")
        assert f"Judged by loss, readout, M2, M4 and norm at {layers}, the " in text


def test_a_layer_without_a_name_is_called_unnamed():
    report = make_report("residual")
    metrics = {name: replace(metric, layer=None) for name, metric in report.metrics.items()}
    assert "at one unnamed layer" in say(replace(report, provenance={}, metrics=metrics))


def test_headline_says_how_much_and_where():
    assert words.choose_headline(make_report("erased")) == (
        "At most 13% remains, in what the model says and in what its layers hold."
    )
    assert words.choose_headline(make_report("residual")) == (
        "The model remembers the forget records, in what it says and in its layers."
    )
    assert words.choose_headline(make_report("residual", has_losses=False)).endswith("records, in its layers.")


def test_headline_says_that_only_the_answers_were_asked():
    for report in (
        make_report("erased", settings=OUTPUTS),
        make_report("erased", settings=OUTPUTS, has_oracle=False, has_original=False, n_references=1),
        make_report("inconclusive", settings=OUTPUTS, guards=[]),
    ):
        assert "Only what the model says was asked" in words.choose_headline(report)
    assert "asked" not in words.choose_headline(make_report("erased"))


def test_what_is_erased_is_bounded_from_above_even_if_something_was_seen():
    seen = make_remaining("loss", 0.1, half=0.08)
    report = change(make_report("erased", settings=OUTPUTS), loss={"remaining": {"original": seen}})
    assert report.verdict == "erased"
    assert words.choose_headline(report).startswith("At most 17% remains, in what the model says.")
    assert words.explain_remaining(report).startswith("At most 17% remains in what the model says: 10% [2%, 18%]")
    below = make_remaining("loss", -0.1, half=0.08)
    report = change(make_report("erased", settings=OUTPUTS), loss={"remaining": {"original": below}})
    assert words.choose_headline(report).startswith("Less than nothing remains")


@pytest.mark.parametrize("verdict", ["residual", "displaced"])
def test_headline_says_that_an_attack_brought_it_back(verdict):
    report = attack(make_report("erased"), verdict)
    assert report.verdict == verdict
    assert "attack" in words.choose_headline(report)
    assert "in what it says" not in words.choose_headline(report)
    assert f"quantize: {verdict}, after weights were rounded." in say(report)
    assert "The verdict is the worst of 2 audits." in say(report)


def test_headline_says_that_layers_could_not_be_judged():
    report = make_report("erased", has_oracle=False, settings=OUTPUTS)
    asked = decide(replace(report, settings=AuditSettings()))
    assert asked.verdict == "inconclusive"
    headline = words.choose_headline(asked)
    assert headline == "At most 13% remains in what the model says. What its layers hold could not be judged."
    assert "layers that look clean may have been made to" in asked.layers.reason


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (AuditSettings(), "The limit is 20%: for a verdict of erased, no more may remain, at a confidence of 95%."),
        (AuditSettings(), "Chosen by: default of the software."),
        (AuditSettings(limit=0.3), "Chosen by: whoever ran the audit, no name given."),
        (AuditSettings(limit_chosen_by="the board, 3 May"), "Chosen by: the board, 3 May."),
    ],
    ids=str,
)
def test_the_limit_says_who_chose_it(settings, expected):
    assert expected in say(make_report(settings=settings))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (
            (0.04, -0.03, 0.11, -0.02, 0.1),
            "At most 10% remains in what the model says: 4% [-3%, 11%] by loss, on the original's scale. ",
        ),
        ((0.34, 0.2, 0.48, 0.22, 0.46), "At least 22% remains in what the model says: 34% [20%, 48%] by loss"),
        ((-0.4, -0.6, -0.2, -0.5, -0.3), "Less than nothing remains in what the model says: -40% [-60%, -20%] by loss"),
        (
            (0.4, -0.1, math.inf, 0.0, math.inf),
            "How much remains has no upper limit in what the model says: 40% [-10%, not known] by loss",
        ),
        ((0.4, -math.inf, math.inf, -math.inf, math.inf), "How much remains in what the model says is not known."),
    ],
)
def test_what_remains_is_bounded_as_it_was_found(numbers, expected):
    report = make_report("inconclusive", settings=OUTPUTS)
    found = replace(
        make_remaining("loss", 0.0), **dict(zip(("value", "low", "high", "at_least", "at_most"), numbers, strict=True))
    )
    report = replace(report, outputs=replace(report.outputs, remaining=found))
    assert words.explain_remaining(report).startswith(expected)
    assert words.explain_remaining(report).endswith(" The limit is 20%, at a confidence of 95%.")


def test_what_is_not_measured_is_not_a_number():
    report = make_report("inconclusive", n_held_out=0)
    assert words.explain_remaining(report).startswith(
        "How much remains in what the model says is not known. How much remains in what its layers hold is not known."
    )
    assert words.format_percent(NAN) == words.format_percent(math.inf) == words.format_remaining(None) == "not known"
    assert words.format_span(0.3, 0.1, math.inf) == "30% [10%, not known]"


def test_a_contrast_says_why():
    erased, residual, displaced = (make_report(verdict) for verdict in ("erased", "residual", "displaced"))
    assert erased.metrics["loss"].reason == (
        "4% [-5%, 13%] remains on the original's scale and 5% [-4%, 14%] remains on the members' scale. This lies "
        "within the limit of 20%."
    )
    assert "cannot" not in erased.metrics["m4"].reason
    assert "does not measure how much remains" in erased.metrics["m4"].reason
    assert residual.metrics["loss"].reason.startswith(
        "Forget records score above held-out ones (AUC 0.76, p 0.0020). 34% [25%, 43%] remains on the original's scale"
    )
    assert "The original shows a difference, too, so it is old." in residual.metrics["m2"].reason
    assert "They lie beyond records that were never trained on." in displaced.metrics["loss"].reason
    assert "The original does not show this difference, so it is new." in displaced.metrics["m4"].reason
    assert "The original does not tell" in make_report(has_original=False).metrics["m2"].reason


def test_every_part_that_differs_is_named():
    wide, high = Part(0.7, (0.6, 0.8), 0.01), Part(0.65, (0.6, 0.7), 0.02)
    report = change(make_report("erased"), loss={"spread": wide, "tail": high})
    assert report.verdict == "residual"
    reason = report.metrics["loss"].reason
    assert "scatter more than held-out ones (AUC 0.70, p 0.010) and are unusually high more often than" in reason
    assert "This is what memory of a few records looks like." in reason


def test_a_weak_contrast_says_what_it_cannot_show():
    weak = make_remaining("loss", 0.05, half=0.2, resolution=9.4)
    report = change(make_report("erased", settings=OUTPUTS), loss={"remaining": {"original": weak}})
    assert report.verdict == "inconclusive"
    assert report.metrics["loss"].reason == (
        "No difference was found. It does not decide, because with these records, it would show in fewer than four of "
        "five audits that a model in which nothing remains lies within the limit of 20%: what training leaves is 9.4 "
        "standard errors, and 14.7 are needed. 5% [-15%, 25%] remains on the original's scale."
    )
    assert report.outputs.reason == (
        "What the model says could not be judged: with these records, loss would show in fewer than four of five "
        "audits that a model in which nothing remains lies within the limit of 20%."
    )
    apart = change(make_report("erased", settings=OUTPUTS), loss={"remaining": {"original": replace(weak, low=0.01)}})
    assert "by a test that allows for all contrasts, which intervals do not" in apart.metrics["loss"].reason
    faint = change(
        make_report("erased", settings=OUTPUTS),
        loss={"remaining": {"original": replace(weak, resolution=20.0, visibility=2.4)}},
    )
    assert "too faint in it" in faint.metrics["loss"].reason
    assert "is 2.4 standard errors, and 3.0 are needed" in faint.metrics["loss"].reason
    assert "what training leaves is too faint in loss" in faint.outputs.reason
    accused = change(
        make_report("residual", settings=OUTPUTS), loss={"remaining": {"original": replace(weak, low=0.01)}}
    )
    assert "By loss, 5% [1%, 25%] remains." in accused.outputs.reason
    wide = make_remaining("loss", 0.15, half=0.12)
    report = change(make_report("erased", settings=OUTPUTS), loss={"remaining": {"original": wide}})
    assert "by loss, 15% [3%, 27%] remains" in report.outputs.reason
    blind = change(make_report("erased", settings=OUTPUTS), loss={"remaining": {}})
    assert "has no scale without the original or comparable members" in blind.outputs.reason


def test_layers_say_what_would_measure_them():
    report = decide(make_report("inconclusive", has_labels=False, has_original=False, guards=[]))
    assert "measuring how much remains takes class labels, the original beside the oracle" in report.layers.reason


def test_nothing_is_called_declared_that_nobody_declared():
    for verdict in VERDICTS:
        text = say(make_report(verdict))
        assert "was declared" not in text
        assert "Nobody declared where it came from." in text
    declared = {"oracle_made": "retrained by us", "held_out_declared_by": "Dr Ann"}
    text = say(make_report(declared=declared))
    assert "Its origin was declared, not verified: retrained by us." in text
    assert "Their origin was declared, not verified: Dr Ann." in text
    same_rule = make_report(settings=AuditSettings(control="same-rule"))
    assert "They were declared to be chosen by the rule that chose the forget records." in say(same_rule)
    assert ("Held-out records chosen by", "the rule that chose the forget records") in words.list_declarations(
        same_rule
    )
    assert words.list_declarations(make_report()) == [("Limit chosen by", "default of the software")]


def test_what_each_model_supports_is_said():
    text = say(make_report(n_references=2, has_oracle=False))
    assert "Reference: 2 given. It shows how hard each record is" in text
    assert "Oracle: not given. Without it, the layers can be accused, but cleared only by relearning." in text
    assert "supports judging what the model says and what its layers hold" in say(make_report())
    assert "Original: not given. So 100% is what known members show" in say(make_report(has_original=False))


@pytest.mark.parametrize("n_references", [0, 1])
def test_without_a_neutral_model_an_accusation_says_what_was_not_checked(n_references):
    report = make_report("residual", has_oracle=False, n_references=n_references)
    unchecked = "nothing checked whether the held-out records are as typical as the forget records"
    assert (unchecked in report.reason) == (n_references == 0)
    assert (unchecked in words.explain_meaning(report)) == (n_references == 0)
    assert any(unchecked in one for one in words.list_limitations(report)) == (n_references == 0)


def test_privacy_in_words():
    text = say(make_report("residual"))
    assert "epsilon is at least 0.84 (confidence 95%)" in text
    assert "M2 finds 15.0% of the forget records [5.7, 29.8]%; guessing finds 1%." in text
    assert "prove no epsilon above 0" in say(make_report("erased"))
    assert "only be measured with at least 100 held-out records" in say(make_report(n_held_out=60))
    assert "epsilon" not in say(make_report("inconclusive", n_held_out=0))


def test_one_record_is_one(random):
    report = audit(tuple(random.normal(size=(n, 4)) for n in (1, 60, 40)))
    assert report.verdict == "inconclusive"
    assert "neither that the forget record is remembered nor that it was erased" in say(report)
    assert "1 forget record " not in say(report)


def test_what_was_not_looked_for_is_said():
    report = make_report("erased", has_labels=False)
    assert CONTRASTS["readout"].if_absent in words.explain_limits(report)
    assert CONTRASTS["loss"].if_absent not in words.explain_limits(report)
    assert CONTRASTS["readout"].if_absent in words.list_limitations(make_report(has_labels=False))


def test_a_person_is_told_what_would_settle_it():
    report = make_report("residual", n_groups=3)
    row = {"verdict": "inconclusive", "at_least": -0.1, "at_most": 0.351}
    assert words.explain_group(row, report) == "A limit of 36%, if that is enough."
    assert words.explain_group({**row, "verdict": "erased"}, report) == "Nothing."
    assert "Another round" in words.explain_group({**row, "verdict": "residual"}, report)
    unknown = {**row, "at_most": math.inf}
    assert words.explain_group({**row, "at_most": 1.4}, report) == "More held-out records."
    assert words.explain_group(unknown, report) == "More held-out records."
    assert words.explain_group(unknown, make_report(has_oracle=False)).startswith("An oracle, a reference")
    assert words.explain_group(unknown, make_report("inconclusive")) == "What the guards ask for."


def test_a_contrast_names_only_the_amounts_that_decide():
    report = make_report("erased")
    wide = make_remaining("readout", 0.03, scale="members", half=0.48, resolution=5.0)
    both = {**report.metrics["readout"].remaining, "members": wide}
    within = change(report, readout={"remaining": both})
    assert within.metrics["readout"].reason == (
        "3% [-6%, 12%] remains on the original's scale (at fc2). This lies within the limit of 20%."
    )
    off = {"original": make_remaining("readout", 0.17), "members": wide}
    assert "members" not in change(report, readout={"remaining": off}).metrics["readout"].reason
    assert "not shown to lie" in change(report, readout={"remaining": off}).metrics["readout"].reason


def test_of_many_layers_the_least_favourable_one_that_decides_is_named():
    report = make_report("erased", n_layers=3)
    reason = report.metrics["readout"].reason
    assert reason.count("original's scale") == 1
    assert "(at transformer.h.2)" in reason


def test_a_contrast_that_was_not_tested_does_not_say_that_it_found_nothing():
    report = make_report("erased")
    silent = {
        name: {part: replace(metric.parts[part], p_value=NAN) for part in metric.parts}
        for name, metric in report.metrics.items()
        if metric.verdict != "descriptive"
    }
    changed = change(report, **silent)
    for name in ("m2", "m4", "norm"):
        assert "No difference" not in changed.metrics[name].reason
        assert "It was not tested" in changed.metrics[name].reason
    assert "Judged by loss and readout at" in words.explain_meaning(changed)
    assert "It covers loss and readout at" in " ".join(words.list_limitations(changed))
    weak = {"original": make_remaining("loss", 0.05, half=0.2, resolution=9.4)}
    only_place = change(report, loss={**silent["loss"], "place": report.metrics["loss"].place, "remaining": weak})
    assert only_place.metrics["loss"].reason.startswith(
        "No difference between the means was found. Nothing else was tested."
    )


def test_the_tangent_says_nothing_of_values_below_zero():
    report = make_report("inconclusive", has_labels=False, guards=[])
    assert report.metrics["tangent"].reason.startswith("It does not show that more than the limit of 20% remains.")
    below = change(
        make_report("erased", has_labels=False), tangent={"remaining": {"original": make_remaining("tangent", -0.6)}}
    )
    assert below.metrics["tangent"].reason.endswith("This is no more than the limit of 20%.")


def test_why_nothing_can_be_cleared():
    report = make_report("erased")
    untested = words.explain_report(Judged("inconclusive", "untested"), report, 0)
    assert "unlike the forget records" in untested
    assert "cannot be cleared" in untested
    metrics = {
        **report.metrics,
        "tangent": replace(report.metrics["tangent"], remaining={"original": make_remaining("tangent", 0.6)}),
    }
    against = words.explain_report(
        Judged("inconclusive", "contradicted", ("tangent",)), replace(report, metrics=metrics), 0
    )
    assert against.startswith("By tangent, 60% [51%, 69%] remains, more than the limit of 20%.")
    assert "cannot be cleared" in against


def test_old_is_only_what_lies_on_the_side_of_the_original():
    report = make_report("residual")
    control = report.metrics["m2"].control
    assert "so it is old" in report.metrics["m2"].reason
    high = Part(0.8, (0.7, 0.9), 0.002)
    ruler = {"remaining": {}, "place": high, "control": replace(report.metrics["loss"].control, original_effect=0.2)}
    assert "The original shows a difference, too" not in change(report, loss=ruler).metrics["loss"].reason
    spread = {"place": replace(high, p_value=0.8), "spread": high, "control": control}
    reason = change(report, m2=spread).metrics["m2"].reason
    assert reason.endswith("This counts as memory, because the original, too, tells these records apart.")


def test_what_100_percent_is_follows_from_the_scales_that_decide():
    report = make_report("residual")
    members = {
        name: {"remaining": {"members": metric.remaining["members"]}}
        for name, metric in report.metrics.items()
        if "members" in metric.remaining
    }
    assert "100% on the original's scale." in say(report)
    by_members = say(change(report, **members))
    assert "100% on the original's scale" not in by_members
    assert "The contrasts that decide use the members' scale instead" in by_members
    one = say(change(report, loss=members["loss"]))
    assert "100% on the original's scale (of readout)." in one
    bare = make_report("inconclusive", has_losses=False, has_labels=False, has_original=False, guards=[])
    assert "known members show" not in say(bare)
    assert "So old differences are not told from new ones." in say(bare)


def test_records_stand_out_only_where_they_were_judged():
    report = make_report("erased", n_held_out=2000)
    assert words.explain_meaning(report).endswith("No record stands out.")
    few = words.explain_meaning(make_report("erased"))
    # 40 records, two ranks each, at 5%
    assert few.endswith("No record stands out (single records can only be told with about 1,600 held-out ones).")
    report.records["finding"] = NOT_JUDGED
    assert words.explain_meaning(report).endswith("Single records were not judged.")


def test_contrasts_that_know_the_original_have_a_p_only_if_they_decide():
    report = make_report("erased")
    assert {name for name in report.metrics if words.show_p(report.metrics[name]) == "\u2013"} == {"m3", "tangent"}
    decides = make_report("erased", has_labels=False)
    assert words.show_p(decides.metrics["tangent"]) == "0.412"


def test_sentences_begin_with_a_capital():
    report = make_report("residual")
    text = " ".join(words.explain_privacy(replace(report, privacy=replace(report.privacy, contrast="loss"))))
    assert "Loss tells forget from held-out records" in text
