"""What would settle an inconclusive verdict: only what somebody can do, the most useful first."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.report.factory import make_remaining, make_report

from ruler.auditing.findings import GuardFinding
from ruler.auditing.gather import gather_evidence
from ruler.auditing.needs import list_needs
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import decide
from ruler.core.types import Embeddings

OUTPUTS = AuditSettings(scope="outputs")
ROWS = np.random.default_rng(0).normal(size=(140, 3))
LOSSES = np.random.default_rng(1).gamma(2.0, size=140)


def gather(*, oracle=True, original=True, labels=False, held_out=True, n_forget=10, n_held_out=30):
    """Evidence of ``n_forget`` forget and ``n_held_out`` held-out records."""
    cuts = [n_forget, n_forget + 100 - n_held_out, 100 + n_forget]

    def embed(shift):
        beside = {"losses": LOSSES} | ({"labels": np.arange(140) % 2} if labels else {})
        parts = {name: np.split(values, cuts) for name, values in beside.items()}
        rows = np.split(ROWS + 0.01 * shift * ROWS[::-1], cuts)
        return tuple(
            Embeddings(rows[side], **{name: part[side] for name, part in parts.items()})
            for side in range(3 if held_out else 2)
        )

    return gather_evidence(
        embed(0), oracle=embed(1) if oracle else None, original=embed(2) if original else None, settings=OUTPUTS
    )


def inconclude(*, remaining=None, layers=None, guards=(), **options):
    """An inconclusive report whose loss has these amounts by scale, and its readout those."""
    report = make_report("inconclusive", guards=list(guards), **options)
    for name, given in (("loss", remaining), ("readout", layers)):
        if given is not None and name in report.metrics:
            metric = replace(report.metrics[name], remaining=given)
            report = replace(report, metrics={**report.metrics, name: metric})
    return decide(report)


def weak(resolution, value=0.0, half=0.1):
    return {"original": make_remaining("loss", value, half=half, resolution=resolution)}


def test_what_blocks_comes_first():
    doubt = GuardFinding("unfair", "warn", "Unfair.", "Be fair.", blocks=True)
    needs = list_needs(inconclude(guards=[doubt], settings=OUTPUTS), gather())
    assert needs[0] == "Be fair."


def test_without_held_out_records_nothing_else_is_asked_for():
    report = make_report("inconclusive", n_held_out=0, has_oracle=False, has_original=False, guards=[])
    (need,) = list_needs(report, gather(oracle=False, original=False, held_out=False))
    assert need.startswith("Held-out records: at least 100 that no model was trained on")


@pytest.mark.parametrize(("has_oracle", "has_original"), [(True, True), (False, False)])
def test_models_that_are_missing_are_asked_for(has_oracle, has_original):
    report = inconclude(settings=OUTPUTS, has_oracle=has_oracle, has_original=has_original)
    needs = list_needs(report, gather(oracle=has_oracle, original=has_original))
    assert any(need.startswith("The original: ") for need in needs) != has_original
    assert any(need.startswith("An oracle, or a reference") for need in needs) != has_oracle
    assert not any(need.startswith("Losses of all records") for need in needs)


def test_losses_that_are_missing_are_asked_for():
    report = inconclude(settings=OUTPUTS, has_losses=False)
    assert list_needs(report, gather())[0].startswith("Losses of all records in every model")


def test_layers_ask_for_what_can_clear_them():
    report = inconclude(has_oracle=False, has_labels=False, settings=AuditSettings())
    needs = " ".join(list_needs(report, gather(oracle=False)))
    assert "An oracle: without one, layers that look clean may have been made to." in needs
    assert "Class labels of all records, if they have classes" in needs
    assert "what returns in the other half was inside" in needs
    labelled = " ".join(list_needs(inconclude(settings=AuditSettings()), gather(labels=True)))
    assert "Class labels" not in labelled
    assert "An oracle:" not in labelled


def test_a_narrower_question_is_offered_once_the_answers_are_cleared():
    cleared = inconclude(remaining={"original": make_remaining("loss", 0.02)})
    assert cleared.outputs.verdict == "erased"
    assert list_needs(cleared, gather(labels=True))[-1].startswith("A narrower question, scope='outputs'")
    assert not any("narrower" in need for need in list_needs(inconclude(), gather(labels=True)))


@pytest.mark.parametrize(
    ("resolution", "expected"),
    [
        # 2.93 / 0.2 = 14.65 standard errors are needed; the error goes with 1 / 10 + 1 / 30
        (13.5, "About 76 held-out records (now 30), to show a limit of 20% for what the model says."),
        (10.0, "About 22 forget records with 65 held-out ones (now 10 with 30), to show a limit of 20%"),
        (3.2, "A limit of 92%, if that is enough: this request shows no lower one for what the model says."),
        (2.0, "This request is too small to show any limit for what the model says. See the per-record results."),
    ],
)
def test_records_are_counted_as_far_as_they_can_be_had(resolution, expected):
    report = inconclude(remaining=weak(resolution), settings=OUTPUTS)
    needs = list_needs(report, gather())
    assert any(need.startswith(expected) for need in needs), needs


def test_no_more_than_twenty_times_the_records_are_asked_for():
    for resolution in np.geomspace(1, 14, 40):
        needs = list_needs(inconclude(remaining=weak(resolution), settings=OUTPUTS), gather())
        for need in needs:
            numbers = [int(word.replace(",", "")) for word in need.split() if word.replace(",", "").isdigit()]
            assert max(numbers, default=0) <= 20 * 30 * 1.1  # numbers are rounded up to two digits


def test_an_interval_that_must_shrink_asks_for_records_too():
    wide = {"original": make_remaining("loss", 0.08, half=0.18)}
    needs = list_needs(inconclude(remaining=wide, settings=OUTPUTS), gather())
    # 0.18 must become 0.12: (0.18 / 0.12)^2 = 2.25 times the records
    assert any(need.startswith("About 23 forget records with 68 held-out ones") for need in needs), needs


def test_what_remains_above_the_limit_is_another_round():
    much = {"original": make_remaining("loss", 0.3, half=0.25)}
    report = inconclude(remaining=much, settings=OUTPUTS)
    assert report.outputs.verdict == "inconclusive"
    needs = list_needs(report, gather())
    assert any(need.startswith("Another round of unlearning: by loss, 30% remains") for need in needs)


def test_an_unchanged_model_needs_the_unlearned_one():
    untouched = GuardFinding("identical_to_original", "warn", "The same.", "Check.")
    report = inconclude(guards=[untouched], settings=OUTPUTS)
    need = "The unlearned model: the one that was given is the original."
    assert need in list_needs(report, gather())
    assert need not in list_needs(inconclude(settings=OUTPUTS), gather())


def test_records_that_stand_out_need_another_round():
    report = inconclude(settings=OUTPUTS)
    need = "Another round of unlearning for the records that stand out, or a reason why they should."
    assert need not in list_needs(report, gather())
    report.records.loc[0, "finding"] = "answered better than held-out records"
    assert need in list_needs(report, gather())


def test_oracles_instead_of_records_where_their_error_counts():
    evidence = gather()
    unfair = replace(evidence, is_fair=False, oracles=[*evidence.oracles, *evidence.oracles])
    needs = list_needs(inconclude(remaining=weak(10.0), settings=OUTPUTS), unfair)
    assert any(need.startswith("More oracles (now 1)") for need in needs)
    assert not any(need.startswith("About") for need in needs)


def test_a_request_of_one_is_never_told_to_find_more_forget_records():
    for resolution in np.geomspace(1, 14.6, 30):
        needs = list_needs(inconclude(remaining=weak(resolution), settings=OUTPUTS), gather(n_forget=1))
        assert not any("forget records" in need for need in needs), needs
        assert any("held-out records (now 30)" in need or "limit" in need for need in needs), needs


def test_the_limit_that_can_be_shown_holds_the_interval_that_was_found():
    near = {"original": make_remaining("loss", 0.19, half=0.12)}
    needs = list_needs(inconclude(remaining=near, settings=OUTPUTS), gather())
    assert any(need.startswith("A limit of 30%, if that is enough") for need in needs), needs


def test_another_round_needs_no_records():
    much = {"original": make_remaining("loss", 0.3, half=0.25)}
    needs = list_needs(inconclude(remaining=much, settings=OUTPUTS), gather())
    assert not any(need.startswith("About") for need in needs), needs


def test_unlike_held_out_records_are_to_be_replaced():
    evidence = gather()
    unfair = replace(evidence, is_fair=False, oracles=[*evidence.oracles, *evidence.oracles])
    need = "Held-out records that are like the forget records"
    assert any(one.startswith(need) for one in list_needs(inconclude(settings=OUTPUTS), unfair))
    assert not any(one.startswith(need) for one in list_needs(inconclude(settings=OUTPUTS), evidence))


def test_what_contradicts_the_verdict_needs_another_round():
    report = inconclude(remaining={"original": make_remaining("loss", 0.02)}, settings=AuditSettings())
    need = "Another round of unlearning: by tangent, 60% remains in what its layers hold."
    assert need not in list_needs(report, gather(labels=True))
    tangent = replace(report.metrics["tangent"], remaining={"original": make_remaining("tangent", 0.6)})
    against = decide(replace(report, metrics={**report.metrics, "tangent": tangent}))
    assert need in list_needs(against, gather(labels=True))
    assert "By tangent, 60% [51%, 69%] remains" in against.reason


def test_a_tangent_below_zero_needs_nothing():
    report = inconclude(has_labels=False, has_original=True)
    below = replace(report.metrics["tangent"], remaining={"original": make_remaining("tangent", -0.6)})
    report = decide(replace(report, metrics={**report.metrics, "tangent": below}))
    assert report.layers.verdict == "erased"
    assert not any("its layers" in need for need in list_needs(report, gather()))
