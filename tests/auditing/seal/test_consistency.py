"""Each contradiction between the parts of a report is named, and an audit leaves none."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.seal.cases import make_audit

from ruler.auditing.findings import AttackFinding, Report
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.seal.consistency import find_contradictions


@pytest.fixture(scope="module")
def report() -> Report:
    return make_audit()


@pytest.fixture(scope="module")
def grouped() -> Report:
    return make_audit(groups=[f"person {row // 3}" for row in range(60)])


@pytest.fixture(scope="module")
def layered() -> Report:
    return make_audit(n_layers=2)


def change_metric(report, name, /, **values):
    return replace(report, metrics={**report.metrics, name: replace(report.metrics[name], **values)})


def change_part(report, name, part, /, **values):
    return change_metric(report, name, **{part: replace(getattr(report.metrics[name], part), **values)})


def change_control(report, name, /, **values):
    return change_metric(report, name, control=replace(report.metrics[name].control, **values))


def change_remaining(report, name, /, **values):
    found = report.metrics[name].remaining
    return change_metric(report, name, remaining={**found, "original": replace(found["original"], **values)})


def change_given(report, /, **values):
    return replace(report, given=replace(report.given, **values))


def change_layer(report, name, place, /, **values):
    layers = list(report.metrics[name].layers)
    layers[place] = replace(layers[place], **values)
    return change_metric(report, name, layers=tuple(layers))


def leave_out(report, name):
    return replace(report, metrics={key: metric for key, metric in report.metrics.items() if key != name})


def leave_out_scores(report, name):
    scores = {key: parts for key, parts in report.distributions.scores.items() if key != name}
    return replace(leave_out(report, name), distributions=replace(report.distributions, scores=scores))


def move_scores(report, name):
    """Forget records higher by one than the effects say."""
    parts = report.distributions.scores[name]
    scores = {**report.distributions.scores, name: {**parts, "forget": parts["forget"] + 1.0}}
    return replace(report, distributions=replace(report.distributions, scores=scores))


def said_of(what):
    return f"The report contradicts itself about {what}: what was given is not what was measured."


FORGERIES = {
    said_of("an oracle"): lambda one: change_given(one, oracle=2),
    said_of("the original"): lambda one: change_given(one, original=False),
    said_of("held-out records"): lambda one: change_given(one, held_out=False),
    said_of("losses"): lambda one: change_given(one, losses=True),
    said_of("groups"): lambda one: change_given(one, groups=True),
    "The report must say how the oracle is paired if there is one, and only then.": lambda one: replace(
        one, pairing=None
    ),
    "More references were measured than were given.": lambda one: replace(
        one, provenance={**one.provenance, "arrays": {**one.provenance["arrays"], "reference": {}}}
    ),
    "m4 decides and its scores are in the report, but its finding is missing.": lambda one: leave_out(one, "m4"),
    "m2 decides and all that it needs was given, but its finding is missing.": lambda one: leave_out_scores(one, "m2"),
    "m2 is reported, but what it needs (oracle) was not given.": lambda one: change_given(one, oracle=0),
    "m3 is reported, but what it needs (oracle, original) was not given.": lambda one: change_given(
        one, original=False
    ),
    "The finding of m2 carries the name 'm4'.": lambda one: change_metric(one, "m2", name="m4"),
    "A p-value of m2 lies outside 0 to 1.": lambda one: change_part(one, "m2", "spread", p_value=1.5),
    "A corrected p-value of m4 lies under its p-value.": lambda one: change_part(one, "m4", "place", p_value=0.0),
    "The value of m2 lies outside its interval.": lambda one: change_metric(one, "m2", interval=(0.9, 0.95)),
    "The AUC of the spread of m2 lies outside its interval.": lambda one: change_part(
        one, "m2", "spread", interval=(0.0, 0.01)
    ),
    "Whether m2 was compared with held-out records is stated inconsistently.": lambda one: change_control(
        one, "m2", kind="none"
    ),
    "m2 counts 61 forget records; the report holds 60.": lambda one: change_control(one, "m2", n_forget=61),
    "m2 has numbers of the original, but none was given.": lambda one: change_given(one, original=False),
    "What remains by tangent is listed under another scale or contrast.": lambda one: change_remaining(
        one, "tangent", scale="members"
    ),
    "What remains by tangent lies outside its interval.": lambda one: change_remaining(one, "tangent", low=5.0),
    "tangent is measured on the scale of the original, but none was given.": lambda one: change_given(
        one, original=False
    ),
    "records.parquet holds a q outside 0 to 1.": lambda one: replace(one, records=one.records.assign(q_value=1.5)),
    "The q-values in records.parquet do not follow from its p-values.": lambda one: replace(
        one, records=one.records.assign(q_value=0.9, finding=ALIKE)
    ),
    "Which records stand out in records.parquet contradicts their q-values.": lambda one: replace(
        one, records=one.records.assign(finding="like retain records")
    ),
    "What remains of a record in records.parquet lies outside its interval.": lambda one: replace(
        one, records=one.records.assign(remaining=-7.0)
    ),
    "The histogram of ranks counts other forget records than records.parquet holds.": lambda one: replace(
        one, distributions=replace(one.distributions, rank_counts={"forget": np.ones(59)})
    ),
}


def test_an_audit_leaves_no_contradiction(report, grouped, layered):
    assert [fault for one in (report, grouped, layered) for fault in find_contradictions(one)] == []


@pytest.mark.parametrize("words", FORGERIES)
def test_each_contradiction_is_named(report, words):
    assert words in list(find_contradictions(FORGERIES[words](report)))


def test_what_remains_is_that_of_the_least_favourable_layer(layered):
    found = layered.metrics["tangent"].remaining["original"]
    other = replace(found, low=found.low - 0.1)
    forged = change_metric(layered, "tangent", remaining={"original": other})
    assert list(find_contradictions(forged)) == ["What remains by tangent is none of the numbers of its layers."]
    rows = [row.remaining["original"] for row in layered.metrics["tangent"].layers]
    milder = min(rows, key=lambda one: max(abs(one.at_least), abs(one.at_most)))
    forged = change_metric(layered, "tangent", remaining={"original": milder})
    assert list(find_contradictions(forged)) == [
        "What remains by tangent is not the least favourable number of its layers."
    ]


def test_effects_of_layers_lie_in_their_intervals(layered):
    forged = change_layer(layered, "m2", 0, effect_interval=(0.6, 0.7))
    assert list(find_contradictions(forged)) == ["The AUC of m2 at layer 1 lies outside its interval."]


def test_effects_follow_from_the_scores(report):
    found = list(find_contradictions(move_scores(report, "m2")))
    metric = report.metrics["m2"]
    assert [words for words in found if words.startswith(f"The AUC of m2 is {metric.effect:.3f}; the scores")]


def test_scores_of_a_sample_are_not_compared(report):
    sample = {"forget": np.zeros(59), "held_out": np.zeros(120)}
    scores = {**report.distributions.scores, "m2": sample}
    thinned = replace(report, distributions=replace(report.distributions, scores=scores))
    assert list(find_contradictions(thinned)) == []


def test_means_of_the_records_are_the_numbers(report):
    shifted = replace(report, records=report.records.assign(shift=report.records["shift"] + 0.25))
    (words,) = find_contradictions(shifted)
    assert words == f"m3 is {report.metrics['m3'].value:.4f}; the records give {report.metrics['m3'].value + 0.25:.4f}."


@pytest.mark.parametrize("column", ["n_records", "n_flagged"])
def test_groups_count_the_records(grouped, column):
    forged = replace(grouped, groups=grouped.groups.assign(**{column: grouped.groups[column] + 1}))
    assert list(find_contradictions(forged)) == ["The groups count other records than records.parquet holds."]


def test_corrected_p_values_of_groups_follow_from_their_own(grouped):
    forged = replace(grouped, groups=grouped.groups.assign(q_value=0.5))
    assert list(find_contradictions(forged)) == ["The q-values of the groups do not follow from their p-values."]


def test_which_groups_stand_out_follows_from_their_q_values(grouped):
    stands_out = grouped.groups["finding"].isin([ALIKE, NOT_JUDGED])
    findings = np.where(stands_out, "higher than held-out records", ALIKE)
    forged = replace(grouped, groups=grouped.groups.assign(finding=findings))
    assert "Which groups stand out contradicts their q-values." in list(find_contradictions(forged))


def test_what_remains_of_a_group_lies_in_its_intervals(grouped):
    for name in ("high", "at_most"):
        forged = replace(grouped, groups=grouped.groups.assign(**{name: -9.0}))
        assert list(find_contradictions(forged)) == ["What remains of a group lies outside its interval."]


def test_attacks_are_examined_too(report):
    attack = AttackFinding("quantize", "rounding", "residual", "", {"m2": report.metrics["m2"]}, [], 0)
    forged = replace(attack, metrics={"m2": replace(report.metrics["m2"], name="m4")})
    assert list(find_contradictions(replace(report, attacks={"quantize": attack}))) == []
    assert list(find_contradictions(replace(report, attacks={"quantize": forged}))) == [
        "After the attack quantize: The finding of m2 carries the name 'm4'."
    ]
