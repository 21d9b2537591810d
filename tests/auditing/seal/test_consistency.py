"""Each contradiction between the parts of a report is named, and an audit leaves none."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.seal.cases import make_audit

from ruler.auditing.findings import Report
from ruler.auditing.records import ALIKE
from ruler.auditing.seal.consistency import find_contradictions


@pytest.fixture(scope="module")
def report() -> Report:
    return make_audit()


@pytest.fixture(scope="module")
def grouped() -> Report:
    return make_audit(groups=[f"person {row // 3}" for row in range(60)])


def change_metric(report, name, /, **values):
    return replace(report, metrics={**report.metrics, name: replace(report.metrics[name], **values)})


def change_sensitivity(report, name, /, **values):
    return change_metric(report, name, sensitivity=replace(report.metrics[name].sensitivity, **values))


def change_strongest(report, name, /, **values):
    return change_metric(report, name, strongest=replace(report.metrics[name].strongest, **values))


def leave_out(report, name):
    return replace(report, metrics={key: metric for key, metric in report.metrics.items() if key != name})


def leave_out_scores(report, name):
    scores = {key: parts for key, parts in report.distributions.scores.items() if key != name}
    return replace(leave_out(report, name), distributions=replace(report.distributions, scores=scores))


def without_arrays(report, name):
    arrays = {key: value for key, value in report.provenance["arrays"].items() if key != name}
    return replace(report, provenance={**report.provenance, "arrays": arrays})


def move_scores(report, name):
    """Forget records higher by one than the effects say."""
    parts = report.distributions.scores[name]
    scores = {**report.distributions.scores, name: {**parts, "forget": parts["forget"] + 1.0}}
    return replace(report, distributions=replace(report.distributions, scores=scores))


FORGERIES = {
    "m4 decides and its scores are in the report, but its finding is missing.": lambda one: leave_out(one, "m4"),
    "m4 decides and needs nothing, but its finding is missing.": lambda one: leave_out_scores(one, "m4"),
    "m2 is reported, but what it needs (oracle) was not given.": lambda one: replace(one, pairing=None),
    "m3 is reported, but what it needs (oracle, original) was not given.": lambda one: without_arrays(one, "original"),
    "0 contrasts count as seen best; there must be one if any is seen, and none otherwise.": lambda one: replace(
        one,
        metrics={
            name: metric
            if metric.sensitivity is None
            else replace(metric, sensitivity=replace(metric.sensitivity, is_strongest=False))
            for name, metric in one.metrics.items()
        },
    ),
    "The finding of m2 carries the name 'm4'.": lambda one: change_metric(one, "m2", name="m4"),
    "The margin of m2 is 0.2; the settings say 0.1.": lambda one: change_metric(one, "m2", margin=0.2),
    "The corrected p-value of m2 lies under its p-value.": lambda one: change_metric(one, "m2", adjusted_p_value=-1.0),
    "Whether m2 was seen in the positive control contradicts its p-value there.": lambda one: change_sensitivity(
        one, "m2", p_value=0.9
    ),
    "The share of m2 that is left must be given if m2 was seen, and only then.": lambda one: change_metric(
        one, "m2", share_left_lower=None
    ),
    "The value of m2 lies outside its interval.": lambda one: change_metric(one, "m2", interval=(0.9, 0.95)),
    "The spread of m2 lies outside its interval.": lambda one: change_metric(one, "m2", spread_interval=(0.0, 0.01)),
    "The difference of m2 is not its value minus that of the held-out records.": lambda one: change_metric(
        one, "m2", null=0.5
    ),
    "Whether m2 was compared with held-out records is stated inconsistently.": lambda one: change_metric(
        one, "m2", control="none"
    ),
    "m2 counts 61 forget records; records.parquet holds 60.": lambda one: change_metric(one, "m2", n_forget=61),
    "The strongest effect of m2 is not the one that is listed.": lambda one: change_strongest(one, "m2", effect=0.4),
    "The original model's effect of m2 is stated inconsistently.": lambda one: change_strongest(
        one, "m2", original_effect=None
    ),
    "The largest distance that m2 cannot exclude is smaller than one that was seen.": lambda one: change_metric(
        one, "m2", largest_distance=0.01
    ),
    "The equivalence p-value of m2 is smaller than the scores in the report give.": lambda one: change_metric(
        one, "m2", equivalence_p_value=0.0
    ),
    "records.parquet holds a q outside 0 to 1.": lambda one: replace(one, records=one.records.assign(q_value=1.5)),
    "The q-values in records.parquet do not follow from its p-values.": lambda one: replace(
        one, records=one.records.assign(q_value=0.9, finding=ALIKE)
    ),
    "Which records stand out in records.parquet contradicts their q-values.": lambda one: replace(
        one, records=one.records.assign(finding="like retain records")
    ),
    "The histogram of ranks counts other forget records than records.parquet holds.": lambda one: replace(
        one, distributions=replace(one.distributions, rank_counts={"forget": np.ones(59)})
    ),
}


def test_an_audit_leaves_no_contradiction(report, grouped):
    assert [*find_contradictions(report), *find_contradictions(grouped)] == []


@pytest.mark.parametrize("words", FORGERIES)
def test_each_contradiction_is_named(report, words):
    assert words in list(find_contradictions(FORGERIES[words](report)))


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
