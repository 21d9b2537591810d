"""Place and spread of a score, in single records and in groups, and how often chance alone raises an alarm."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata, t
from tests.auditing.cases import DECIDING, FAST

from ruler.auditing import AuditSettings, audit, gather_evidence
from ruler.auditing.measure import measure_contrasts
from ruler.auditing.strands import Strand, rank_units, two_sided
from ruler.core.types import Embeddings
from ruler.stats import compare_families, measure_effect
from ruler.stats.equivalence import divide


def test_marks_in_both_directions_are_seen(build_world):
    world = build_world(0)
    gains = np.where(np.arange(150) % 2, 1.2, -0.9)
    report = audit(
        world.model(gain=gains), oracle=world.model(gain=0.0), original=world.model(gain=gains), settings=FAST
    )
    loss = report.metrics["loss"]
    assert abs(loss.effect - 0.5) < 0.1
    assert loss.spread > 0.7
    assert report.verdict == loss.verdict == "residual"
    assert "scatter more" in loss.reason


def test_labels_move_within_strata_only():
    # the score follows the stratum, and the strata's mix is matched: nothing is left to see
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(30):
        strata = [np.repeat([0, 1], sizes) for sizes in ((30, 10), (20, 20), (90, 60))]
        models = tuple(
            Embeddings(
                rng.normal(size=(len(one), 3)), strata=one, losses=np.exp(3.0 * one + 0.1 * rng.normal(size=len(one)))
            )
            for one in strata
        )
        found = measure_contrasts(gather_evidence(models, settings=FAST))
        alarms += found["loss"].p_value <= 0.05
    assert alarms <= 5


def test_groups_count_once_by_their_means():
    rng = np.random.default_rng(5)
    base = np.repeat(rng.normal(size=(160, 6)), 5, axis=0)
    offset = np.repeat(rng.normal(size=(160, 6)), 5, axis=0)
    cut = [150, 550]
    unlearned, oracle = np.split(base + 0.3 * offset, cut), np.split(base, cut)
    names = np.split(np.repeat(np.arange(160), 5), cut)
    groups = dict(zip(("forget", "retain", "held_out"), names, strict=True))
    grouped = audit(tuple(unlearned), oracle=tuple(oracle), groups=groups, settings=FAST).metrics["m2"]
    single = audit(tuple(unlearned), oracle=tuple(oracle), settings=FAST).metrics["m2"]
    assert (grouped.n_forget, grouped.n_control) == (30, 50)
    assert grouped.minimum_detectable_effect > 1.5 * single.minimum_detectable_effect


def test_unequal_groups_of_alike_records_raise_no_alarms():
    # intra-class correlation 0.3; records taken for independent would alarm in most of these
    sizes = [np.array([200, 5, 5]), np.full(20, 5), np.full(30, 10)]
    starts = np.cumsum([0, *map(len, sizes)])
    names = [np.repeat(start + np.arange(len(n)), n) for start, n in zip(starts, sizes, strict=False)]
    alarms = {True: 0, False: 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        losses = [
            np.exp(np.sqrt(0.3) * np.repeat(rng.normal(size=len(n)), n) + np.sqrt(0.7) * rng.normal(size=n.sum()))
            for n in sizes
        ]
        rows = [rng.normal(size=(n.sum(), 3)) for n in sizes]
        for is_named in (True, False) if seed < 15 else (True,):
            model = tuple(
                Embeddings(row, losses=loss, groups=name if is_named else None)
                for row, loss, name in zip(rows, losses, names, strict=True)
            )
            found = measure_contrasts(gather_evidence(model, settings=replace(FAST, n_permutations=99)))
            alarms[is_named] += found["loss"].adjusted_p_value <= 0.05
    assert alarms[True] <= 7
    assert alarms[False] >= 5


@pytest.mark.parametrize(
    ("n_per_forget", "n_per_held_out", "are_named"), [(10, 2, True), (2, 8, True), (5, 1, False), (1, 1, False)]
)
def test_groups_of_other_sizes_are_no_contrast(build_world, n_per_forget, n_per_held_out, are_named):
    # means of ten records scatter less than means of two, and skewed scores move with the size
    alarms = 0
    for seed in range(12):
        world = build_world(seed, sizes=(30 * n_per_forget, 100, 50 * n_per_held_out))
        groups = {"forget": np.arange(world.sizes[0]) // n_per_forget}
        if are_named:
            groups["held_out"] = 1000 + np.arange(world.sizes[2]) // n_per_held_out
        evidence = gather_evidence(
            world.model(gain=0.0),
            oracle=world.model(gain=0.0),
            groups=groups,
            settings=replace(FAST, n_permutations=99),
        )
        alarms += (
            min(one.adjusted_p_value for one in measure_contrasts(evidence).values() if one.contrast.decides) <= 0.05
        )
    assert alarms <= 3


def test_the_seed_changes_no_verdict_near_alpha(build_world):
    world = build_world(338, sizes=(60, 100, 120))
    unlearned, oracle = world.model(gain=0.25), world.model(gain=0.0)
    reports = [audit(unlearned, oracle=oracle, settings=AuditSettings(seed=seed)) for seed in (0, 1)]
    p_values = [min(one.metrics[name].adjusted_p_value for name in DECIDING) for one in reports]
    assert 0.03 < min(p_values) <= max(p_values) < 0.07
    assert len({one.verdict for one in reports}) == 1


def test_a_record_stands_for_its_score_unless_the_spread_is_asked_for():
    scores = {"forget": np.array([3.0, 1.0]), "held_out": np.array([2.0, 9.0, 5.0])}
    assert [part.tolist() for part in rank_units({}, scores)] == [[3.0, 1.0], [2.0, 9.0, 5.0]]
    spread = rank_units({}, scores, is_spread=True)  # from the median of all, 3
    assert [part.tolist() for part in spread] == [[0.0, 2.0], [1.0, 6.0, 2.0]]


def test_a_group_stands_for_the_mean_rank_of_its_records():
    scores = {"forget": np.array([1.0, 4.0]), "held_out": np.array([2.0, 3.0])}
    groups = {"forget": np.array(["a", "a"])}  # each record of it weighs a half
    forget, held_out = rank_units(groups, scores)
    assert held_out.tolist() == [1.0, 2.0]  # half a record below, and half of themselves
    assert forget.tolist() == [(0.25 + 2.75) / 2]
    forget, held_out = rank_units(groups, scores, is_spread=True)  # 2 is the middle record: 1, 2, 0 and 1 from it
    assert held_out.tolist() == [0.5, 1.75]
    assert forget.tolist() == [(1.75 + 2.75) / 2]


def test_the_spread_of_groups_is_taken_from_the_record_in_the_middle():
    scores = {"forget": np.array([1.0, 10.0]), "held_out": np.arange(2.0, 10.0)}
    _, held_out = rank_units({"forget": np.array(["a", "a"])}, scores, is_spread=True)
    assert held_out.argmin() == 3  # 4.5 of the weight of 9 lie at most half a record from the score 5


def test_without_a_standard_error_nothing_is_significant():
    assert two_sided(measure_effect([1.0], [2.0, 3.0])) == 1.0
    assert two_sided(measure_effect([1.0, 2.0], [1.0, 2.0])) == 1.0
    one = measure_effect([1.0, 5.0, 6.0], [2.0, 3.0, 4.0, 4.5])
    assert two_sided(one) == pytest.approx(2 * t.sf(abs(one.statistic), one.freedom))


def test_p_values_are_counted_by_labellings_or_compared_with_several_oracles(build_world):
    world = build_world(0, sizes=(3, 20, 4))  # 35 labellings
    evidence = gather_evidence(world.model(), oracle=world.model(), settings=FAST)
    found = measure_contrasts(evidence)["m4"]
    assert found.test == "permutation"
    assert 35 * found.p_value == pytest.approx(round(35 * found.p_value))
    world = build_world(0, sizes=(12, 40, 20))
    evidence = gather_evidence(world.model(), oracle=[world.model() for _ in range(5)], settings=FAST)
    assert measure_contrasts(evidence)["m4"].test == "permutation"  # fair held-out records need no comparison with each
    found = measure_contrasts(replace(evidence, is_fair=False))["m4"]
    assert found.test == "hybrid"
    least = min(two_sided(strand.effect) for strand in found.strands)
    assert found.p_value == pytest.approx(min(1.0, len(found.strands) * least))


@pytest.mark.parametrize("size", [1, 2])
def test_labellings_stay_within_strata_of_records_or_groups(size):
    rng = np.random.default_rng(1)
    owners = [np.arange(n) // size for n in (16, 40, 32)]
    strata = [own % 2 for own in owners]  # one per group
    rows = [rng.normal(size=(len(one), 3)) + 2.0 * one[:, None] for one in strata]
    model = tuple(
        Embeddings(part, strata=one, groups=own if size > 1 else None)
        for part, one, own in zip(rows, strata, owners, strict=True)
    )
    evidence = gather_evidence(model, settings=FAST)
    found = measure_contrasts(evidence)["m4"]
    codes = []
    for side in ("forget", "held_out"):
        units = evidence.groups[side] if size > 1 else np.arange(len(evidence.strata[side]))
        codes += [evidence.strata[side][units == unit][0] for unit in np.unique(units)]
    options = {"n_permutations": 199, "seed": evidence.draw_seed, "alpha": 0.05}
    scores, n_first = np.array([strand.now for strand in found.strands]), 16 // size
    expected = compare_families(scores, n_first, [0, 0], strata=np.array(codes), **options)
    assert found.p_value == expected.p_values[0]
    assert found.p_value != compare_families(scores, n_first, [0, 0], **options).p_values[0]


def test_the_share_left_allows_for_retraining():
    """Mean rank differences to the oracles, the covariance of records, and how far oracles differ among themselves."""
    rng = np.random.default_rng(0)
    now, before, *oracles = rng.normal(size=(8, 17)) + np.array([0.5, 2.0, *[0.0] * 6])[:, None] * (np.arange(17) < 5)
    ranks = np.array([rankdata(row) / 17 for row in (now, before, *oracles)])
    moved = ranks[:2] - ranks[2:].mean(axis=0)
    distances = [row[:5].mean() - row[5:].mean() for row in (*moved, *ranks[2:])]
    covariance = np.cov(moved[:, :5]) / 5 + np.cov(moved[:, 5:]) / 12
    covariance += np.var(distances[2:], ddof=1) * (np.eye(2) + 1 / 6)
    found = Strand("x", "place", 5, now, before, np.array(oracles)).share(0.05)
    expected = divide(*distances[:2], covariance, freedom=5, alpha=0.05)
    assert (found.value, *found.interval, found.upper) == pytest.approx(
        (expected.value, *expected.interval, expected.upper)
    )
