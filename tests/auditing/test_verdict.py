"""A report's verdicts, read from its numbers."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.cases import FAST, make_cleared
from tests.auditing.report.factory import VERDICTS, make_report

from ruler.auditing import AuditSettings, audit
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import GuardFinding
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.verdict import count_flagged, decide, is_flagged
from ruler.core.errors import UnknownNameError


def change(report, name, **numbers):
    """A report in which one contrast has other numbers, decided again."""
    return decide(replace(report, metrics={**report.metrics, name: replace(report.metrics[name], **numbers)}))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_verdict_is_read_from_the_numbers_whatever_was_written(verdict):
    report = make_report(verdict)
    forged = replace(
        report,
        verdict="erased" if verdict != "erased" else "residual",
        reason="Trust me.",
        outputs=replace(report.outputs, verdict="displaced", reason=""),
        layers=replace(report.layers, remaining=None),
        metrics={name: replace(one, verdict="erased", reason="") for name, one in report.metrics.items()},
    )
    assert repr(decide(forged)) == repr(decide(report))
    assert (decide(forged).verdict, decide(forged).reason) == (report.verdict, report.reason)
    assert decide(forged).outputs == report.outputs
    assert decide(forged).layers == report.layers


def test_the_rule_reads_the_same_from_the_numbers_of_a_finished_audit(build_world):
    given = make_cleared(build_world)
    for extras in ({}, {"oracle": None}, {"original": None}, {"unlearned": given["original"]}):
        report = audit(**given | extras)
        assert repr(decide(report)) == repr(report)


def test_the_whole_is_the_worse_of_outputs_and_layers_within_the_scope(build_world):
    given = make_cleared(build_world)
    layers_only = audit(**given | {"unlearned": build_world(0).model(0.5, gain=0.0)})
    assert (layers_only.outputs.verdict, layers_only.layers.verdict) == ("erased", "residual")
    assert layers_only.verdict == "residual"
    asked = decide(replace(layers_only, settings=replace(FAST, scope="outputs")))
    assert asked.verdict == "residual"  # what was seen is not hushed up
    open_layers = decide(
        replace(
            audit(**given),
            metrics={
                name: replace(one, remaining={}) if one.family == "layers" else one
                for name, one in audit(**given).metrics.items()
            },
        )
    )
    assert open_layers.verdict == "inconclusive"
    assert decide(replace(open_layers, settings=replace(FAST, scope="outputs"))).verdict == "erased"


def test_a_family_is_told_by_what_decides_it():
    report = make_report("residual")
    accusing = [name for name, one in report.metrics.items() if one.verdict == "residual" and one.family == "layers"]
    assert report.layers.remaining.contrast in accusing
    clean = make_report("erased")
    reaches = [
        max(abs(one.at_least), abs(one.at_most))
        for metric in clean.metrics.values()
        if metric.family == "layers" and metric.verdict == "erased"
        for one in metric.remaining.values()
    ]
    least_favourable = clean.layers.remaining
    assert max(abs(least_favourable.at_least), abs(least_favourable.at_most)) == max(reaches)
    assert clean.remaining in (clean.outputs.remaining, clean.layers.remaining)


def test_a_scale_that_accuses_is_told_even_if_it_cannot_clear():
    report = make_report("erased")
    loss = report.metrics["loss"]
    scales = dict(loss.remaining)
    name, one = next(iter(scales.items()))
    weak = replace(one, value=0.9, low=0.5, high=1.3, at_least=0.6, at_most=1.2, resolution=4.0)
    place = replace(loss.place, effect=0.7, p_value=0.001)
    found = change(report, "loss", remaining=scales | {name: weak}, place=place)
    assert found.outputs.verdict == found.verdict == "residual"
    assert found.outputs.remaining == weak


def test_where_nothing_can_show_the_limit_the_most_precise_number_is_told():
    report = make_report("inconclusive")
    loss = report.metrics["loss"]
    one = next(iter(loss.remaining.values()))
    wide = replace(one, low=-1.0, high=1.0, at_least=-0.9, at_most=0.9, resolution=3.0)
    narrow = replace(wide, low=-0.4, high=0.5, at_least=-0.3, at_most=0.4, scale="members")
    found = change(report, "loss", remaining={"original": wide, "members": narrow})
    assert found.outputs.verdict == "inconclusive"
    assert found.outputs.remaining == narrow
    nothing = change(report, "loss", remaining={})
    assert nothing.outputs.remaining is None


@pytest.mark.parametrize(("severity", "word"), [("warn", "inconclusive"), ("fail", "invalid")])
def test_what_stops_the_verdict_stops_every_contrast_that_decides(severity, word):
    stop = GuardFinding("unfair", severity, "Unfair.", "Be fair.", blocks=True)
    report = decide(replace(make_report("erased"), guards=[stop]))
    assert {report.verdict, report.outputs.verdict, report.layers.verdict} == {word}
    for metric in report.metrics.values():
        assert metric.verdict in (word, "descriptive")


def test_one_contrast_decides_in_anothers_stead():
    report = make_report("erased")
    assert CONTRASTS["tangent"].unless == "readout"
    assert report.metrics["tangent"].verdict == ("descriptive" if "readout" in report.metrics else "erased")
    without = decide(replace(report, metrics={k: v for k, v in report.metrics.items() if k != "readout"}))
    assert without.metrics["tangent"].verdict == "erased"


def test_a_contrast_that_is_not_in_the_table_is_named():
    report = make_report("erased")
    unknown = replace(report, metrics={**report.metrics, "mine": replace(report.metrics["m2"], name="mine")})
    with pytest.raises((UnknownNameError, KeyError), match="mine"):
        decide(unknown)


# records and people


def test_groups_flag_their_records_only_if_held_out_groups_are_named():
    report = make_report(n_groups=4)
    groups = report.groups.assign(finding=["far", ALIKE, ALIKE, ALIKE])
    report = replace(report, groups=groups, records=report.records.assign(finding=ALIKE))
    bare = replace(report, provenance={**report.provenance, "grouped": ["forget"]})
    assert count_flagged(bare) == 0
    assert not is_flagged(bare)
    grouped = replace(report, provenance={**report.provenance, "grouped": ["forget", "held_out"]})
    assert count_flagged(grouped) == (report.records["group"] == groups["group"][0]).sum()
    assert is_flagged(grouped)


def test_nobody_who_stands_out_is_erased():
    report = make_report("erased")
    flagged = decide(
        replace(report, records=report.records.assign(finding=["far", *[ALIKE] * (len(report.records) - 1)]))
    )
    assert flagged.verdict == "inconclusive"
    assert (flagged.outputs.verdict, flagged.layers.verdict) == ("erased", "erased")
    unjudged = decide(replace(report, records=report.records.assign(finding=NOT_JUDGED)))
    assert unjudged.verdict == "erased"


@pytest.mark.parametrize(
    ("finding", "limits", "high", "expected"),
    [
        (ALIKE, (-0.1, 0.1), 0.15, "erased"),
        (ALIKE, (-0.1, 0.2), 0.3, "inconclusive"),
        (ALIKE, (-0.2, 0.1), 0.15, "inconclusive"),
        (ALIKE, (np.nan, np.nan), np.nan, "inconclusive"),
        (NOT_JUDGED, (-0.1, 0.1), 0.15, "erased"),
        ("far", (-0.1, 0.1), 0.15, "residual"),
        ("far", (0.5, 0.9), 0.95, "residual"),
        ("far", (-0.9, -0.5), -0.4, "displaced"),
        ("far", (np.nan, np.nan), np.nan, "residual"),
    ],
)
def test_the_verdict_of_a_person(finding, limits, high, expected):
    report = make_report("erased", n_groups=4)
    groups = report.groups.assign(finding=ALIKE, low=-0.15, high=0.15, at_least=-0.1, at_most=0.1)
    groups.loc[0, ["finding", "at_least", "at_most", "high"]] = [finding, *limits, high]
    found = decide(replace(report, groups=groups)).groups["verdict"]
    assert found[0] == expected
    assert set(found[1:]) == {"erased"}
    narrow = replace(report, groups=groups, settings=replace(AuditSettings(), limit=0.05))
    assert set(decide(narrow).groups["verdict"][1:]) == {"inconclusive"}
