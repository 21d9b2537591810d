"""Which contrasts an audit measures, and at which layers."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t, ttest_ind
from tests.auditing.cases import FAST, QUICK, make_class, make_cleared, run_audit, score_peak

from ruler.auditing import audit, gather_evidence
from ruler.auditing.contrasts import OWN, Contrast
from ruler.auditing.measure import measure_contrasts
from ruler.core.types import Embeddings
from ruler.stats.auc import measure_effect
from ruler.stats.scale import correct_families, relabel, share_of_members, share_of_original


def make_layers(build_world, memory):
    """A model of three layers; ``memory[layer]`` of its marks are left."""
    world = build_world(1)
    names = ("first", "second", "last")
    losses = world.lose()

    def model(marks):
        layers = [world.cut(world.embed(mark)) for mark in marks]
        return tuple(
            {
                name: Embeddings(layer[side], losses=world.cut(losses)[side])
                for name, layer in zip(names, layers, strict=True)
            }
            for side in range(3)
        )

    return {"unlearned": model(memory), "oracle": model((0, 0, 0)), "original": model((0.5, 0.5, 0.5))}


def test_the_layer_that_gives_the_records_away_is_named(build_world):
    report = audit(**make_layers(build_world, (0.0, 0.5, 0.0)), settings=FAST)
    m2, tangent = report.metrics["m2"], report.metrics["tangent"]
    assert report.verdict == m2.verdict == tangent.verdict == "residual"
    assert m2.layer == tangent.layer == "second"
    assert [one.layer for one in m2.layers] == ["first", "second", "last"]
    values = [one.remaining["original"].value for one in tangent.layers]
    assert values == pytest.approx([0.0, 1.0, 0.0], abs=0.15)
    assert [one.remaining["original"].layer for one in tangent.layers] == ["first", "second", "last"]
    assert report.layers.remaining.layer == "second"
    assert m2.layers[1].effect < 0.3 < 0.4 < m2.layers[0].effect
    assert report.metrics["loss"].layer is None
    assert report.provenance["layers"] == ["first", "second", "last"]


def test_memory_at_an_earlier_layer_alone_is_never_erased(build_world):
    given = make_layers(build_world, (0.5, 0.0, 0.0))
    assert audit(**given, settings=FAST).verdict == "residual"
    last = {name: tuple(part["last"] for part in model) for name, model in given.items()}
    assert audit(**last, settings=FAST).verdict != "residual"


def test_a_metric_that_needs_more_than_was_given_is_left_out(build_world, table):
    table.register("peak", Contrast("Peakedness", score_peak, needs=("losses",)))
    assert "peak" not in run_audit(build_world().model(), table).metrics


@pytest.mark.parametrize(
    ("name", "score", "message"),
    [
        ("Peak", score_peak, r"metrics must be named by lower-case letters, digits and _; got 'Peak'"),
        (
            "peak",
            lambda model, oracles: {side: rows[:-1, 0] for side, rows in model.rows.items()},
            r"metric 'peak' must score every forget record, shape \(150,\); got \(149,\)",
        ),
        ("peak", lambda model, oracles: {"forget": model.rows["forget"][:, 0]}, "must score every held_out record"),
        (
            "peak",
            lambda model, oracles: {side: rows[:, 0] / 0.0 for side, rows in model.rows.items()},
            "metric 'peak' must be finite; got NaN or inf for forget records",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_metric_that_does_not_score_every_record_is_named(build_world, table, name, score, message):
    table.register(name, Contrast("Peakedness", score))
    with pytest.raises(ValueError, match=message):
        run_audit(build_world().model(), table)


# the numbers of a finding, from its scores


@pytest.fixture
def measured(build_world):
    evidence = gather_evidence(**make_cleared(build_world))
    return evidence, measure_contrasts(evidence)


def test_what_remains_is_measured_on_the_strands_scores(measured):
    evidence, found = measured
    (strand,) = found["loss"].strands
    options = {"n_permutations": FAST.n_permutations, "seed": evidence.draw_seed}
    drawn = relabel(np.array([strand.now, strand.before, strand.plain]), 150, **options)
    shares = {
        "original": share_of_original(strand.now, strand.before, 150, alpha=0.05, found=drawn),
        "members": share_of_members(
            strand.plain[:150], strand.plain[150:], strand.members, alpha=0.05, found=drawn, column=2
        ),
    }
    for scale, share in shares.items():
        one = found["loss"].finding.remaining[scale]
        numbers = [one.value, one.low, one.high, one.at_least, one.at_most, one.visibility, one.resolution]
        assert numbers == pytest.approx([*vars(share).values()])
        assert (one.scale, one.contrast, one.layer) == (scale, "loss", None)


def test_confidence_is_of_the_settings(build_world):
    given = make_cleared(build_world)
    wide, narrow = (
        audit(**given | {"settings": replace(FAST, confidence=confidence)}).metrics["loss"].remaining["original"]
        for confidence in (0.99, 0.8)
    )
    assert wide.low < narrow.low < narrow.value == wide.value < narrow.high < wide.high


def test_place_spread_and_tail_are_corrected_together(measured):
    evidence, found = measured
    rows, families, sides = [], [], []
    deciding = [name for name in found if OWN[name].decides and not OWN[name].knows_original]
    for number, name in enumerate(deciding):
        (strand,) = found[name].strands
        for part, values in strand.parts.items():
            rows.append(values)
            families.append(number)
            sides.append(int(part == "tail"))
    drawn = relabel(np.array(rows), 150, n_permutations=FAST.n_permutations, seed=evidence.draw_seed)
    raw, corrected = correct_families(drawn, families, sides)
    by_name = iter(np.minimum(1.0, 2.0 * corrected))  # the tangent is a second family of tests
    for name, p_value in zip(deciding, raw, strict=True):
        finding = found[name].finding
        assert finding.p_value == pytest.approx(p_value)
        for part in found[name].strands[0].parts:
            assert finding.parts[part].p_value == pytest.approx(next(by_name))


def test_scores_that_know_the_original_are_only_compared_above_zero(measured):
    _, found = measured
    (strand,) = found["tangent"].strands
    first, second = np.split(strand.parts["place"], [strand.n_first])
    statistic = ttest_ind(first, second, equal_var=False).statistic
    expected = t.sf(statistic, min(len(first), len(second)) - 1)
    finding = found["tangent"].finding
    assert finding.p_value == pytest.approx(expected)
    assert finding.place.p_value == pytest.approx(min(1.0, 2 * expected))


def test_only_scores_that_do_not_know_the_original_are_compared_in_spread_and_tail(measured):
    _, found = measured
    parts = {name: tuple(found[name].strands[0].parts) for name in found}
    assert parts["loss"] == ("place", "spread", "tail")
    assert parts["tangent"] == ("place",)
    assert parts["m2"] == parts["m4"] == parts["norm"] == ("place", "spread")
    tail = found["tangent"].finding.tail
    assert np.isnan([tail.effect, *tail.interval, tail.p_value]).all()


def test_effects_are_aucs_of_the_scores(measured):
    _, found = measured
    for one in found.values():
        (strand,) = one.strands
        assert one.finding.effect == measure_effect(strand.now[:150], strand.now[150:]).value
        assert one.finding.control.kind == "held-out"
        assert (one.finding.control.n_forget, one.finding.control.n_control) == (150, 300)
    before = found["loss"].strands[0].before
    assert found["loss"].finding.control.original_effect == measure_effect(before[:150], before[150:]).value
    assert found["loss"].finding.control.original_p_value <= 0.05 < found["m4"].finding.control.original_p_value


def test_half_remembered_and_half_pushed_beyond_is_seen_by_its_spread(build_world):
    given = make_cleared(build_world)
    mixed = build_world(0).model(gain=np.where(np.arange(150) % 2, 2.0, -2.0))
    report = audit(**given | {"unlearned": mixed})
    assert report.metrics["loss"].spread.p_value <= 0.05
    assert report.outputs.verdict == "residual"


def test_few_of_many_are_seen_by_the_tail(build_world):
    given = make_cleared(build_world)
    few = build_world(0).model(gain=np.where(np.arange(150) < 12, 6.0, -0.1))
    report = audit(**given | {"unlearned": few})
    assert report.metrics["loss"].tail.p_value <= 0.05 < report.metrics["loss"].place.p_value
    assert report.outputs.verdict == "residual"


def test_groups_count_once_each(build_world):
    world = build_world(0, sizes=(60, 120, 90))
    groups = {"forget": np.arange(60) // 5, "held_out": np.arange(90) // 5}
    evidence = gather_evidence(world.model(gain=0.0), groups=groups, settings=QUICK)
    (strand,) = measure_contrasts(evidence)["loss"].strands
    assert (strand.n_first, len(strand.now)) == (12, 30)
    own = strand.own["forget"]
    means = [own[evidence.groups["forget"] == name].mean() for name in range(12)]
    assert strand.now[:12] == pytest.approx(means)


def test_unlike_records_and_two_oracles_are_compared_by_what_training_runs_add(build_world):
    given = make_class(build_world, 0, 3, gain=1.0)
    evidence = replace(gather_evidence(**given), is_fair=False)
    found = measure_contrasts(evidence)["loss"]
    assert np.isnan(found.finding.spread.p_value)
    one = found.finding.remaining["original"]
    fair = measure_contrasts(replace(evidence, is_fair=True))["loss"].finding.remaining["original"]
    assert one.high - one.low > fair.high - fair.low
    assert one.low < 1.0 < one.high
    alone = measure_contrasts(replace(evidence, oracles=evidence.oracles[:1]))["loss"]
    assert not np.isnan(alone.finding.spread.p_value)  # nobody tells what runs add; a guard then blocks the verdict
