"""Audits of folders of shards, and M4 ranked among a sample of the retain records."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ruler.auditing import AuditSettings, audit, gather_evidence
from ruler.auditing.gather import draw_reference
from ruler.core.errors import InputError
from ruler.core.stacked import StackedRows
from ruler.metrics.paper import rank_within

QUICK = AuditSettings(n_permutations=99)


def shard(model, n_shards=7):
    """The same model with its retain records in shards."""
    return model[0], StackedRows(np.array_split(model[1], n_shards)), *model[2:]


def assert_same(one, other):
    assert (one.verdict, one.reason, one.guards) == (other.verdict, other.reason, other.guards)
    assert repr(one.metrics) == repr(other.metrics)
    assert one.records.equals(other.records)
    assert one.provenance["arrays"] == other.provenance["arrays"]


@pytest.mark.parametrize("has_held_out", [True, False])
def test_shards_give_the_report_of_the_joined_array(make_world, has_held_out):
    model, oracle = (world[: 2 + has_held_out] for world in make_world(nearer=0.3))
    model = (*model[:1], np.concatenate([model[1], model[1][:9]]), *model[2:])  # identical rows in different shards
    oracle = (*oracle[:1], np.concatenate([oracle[1], oracle[1][:9]]), *oracle[2:])
    whole = audit(model, oracle=oracle, original=model, settings=QUICK)
    assert_same(audit(shard(model), oracle=shard(oracle, 3), original=shard(model, 2), settings=QUICK), whole)


def test_shards_are_aligned_as_the_joined_array_is(make_world):
    model, oracle = make_world()
    turned = tuple(rows[:, ::-1] for rows in oracle)
    found = audit(shard(model), oracle=shard(turned), settings=QUICK)
    assert found.pairing.is_aligned
    assert_same(found, audit(model, oracle=turned, settings=QUICK))


def test_a_sample_of_the_reference_is_the_exact_one_restricted(make_world):
    model, _ = make_world()
    retain = np.concatenate([model[1], model[1][:50], np.zeros((3, 6))])  # with twins and all-zero rows
    model = (model[0], retain, model[2])
    exact = gather_evidence(model).main.nearest
    sampled = gather_evidence(model, settings=replace(QUICK, n_reference=300)).main
    found, rows = sampled.nearest, sampled.reference
    np.testing.assert_array_equal(found["retain"].similarity, exact["retain"].similarity[rows])
    np.testing.assert_array_equal(found["retain"].index, exact["retain"].index[rows])
    for side in ("forget", "held_out"):
        np.testing.assert_array_equal(found[side].similarity, exact[side].similarity)


def test_the_report_bounds_what_the_sample_does_to_m4(make_world):
    model, _ = make_world()
    settings = replace(QUICK, n_reference=200)
    report, exact = audit(model, settings=settings), audit(model, settings=QUICK)
    m4 = report.metrics["m4"]
    assert m4.reference_error == pytest.approx(math.sqrt(math.log(2 / 0.05) / 400))
    assert f"200 retain records drawn at random: M4 is within {m4.reference_error:.4f}" in m4.reason
    assert exact.metrics["m4"].reference_error is None
    assert 0 < abs(m4.value - exact.metrics["m4"].value) <= m4.reference_error
    assert (m4.p_value, m4.effect, m4.verdict) == (
        exact.metrics["m4"].p_value,
        exact.metrics["m4"].effect,
        exact.metrics["m4"].verdict,
    )


def test_the_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    retain, forget = rng.normal(size=2000), rng.normal(0.3, size=50)
    exact = rank_within(forget, retain).mean()
    keys = rng.permutation(2000).astype(np.uint64)
    bound = math.sqrt(math.log(2 / 0.05) / 400)
    drawn = [draw_reference(keys, AuditSettings(n_reference=200, seed=seed)) for seed in range(400)]
    errors = np.array([abs(rank_within(forget, retain[rows]).mean() - exact) for rows in drawn])
    assert (errors > bound).mean() <= 0.05
    assert errors.max() > bound / 4  # a bound that says something


def test_as_many_as_there_are_is_all_of_them(make_world):
    model, _ = make_world()
    assert gather_evidence(model, settings=replace(QUICK, n_reference=400)).main.reference is None


def test_identical_rows_are_confirmed_in_the_sample_itself(make_world):
    model, _ = make_world()
    retain = np.concatenate([model[1], model[1]])
    twins = (np.concatenate([model[0], retain[:20]]), retain, model[2])
    report = audit(twins, settings=replace(QUICK, n_reference=150))
    assert not [guard for guard in report.guards if guard.name == "duplicates"]  # half of them is no more than usual


def test_a_sample_is_not_too_small():
    with pytest.raises(InputError, match="n_reference must be a whole number of at least 100; got 99"):
        AuditSettings(n_reference=99)


def test_a_sample_serves_without_held_out_records_too(make_world):
    model, _ = make_world()
    report = audit(model[:2], settings=replace(QUICK, n_reference=100))
    assert report.metrics["m4"].reference_error is not None
    assert report.verdict == "inconclusive"


def test_the_summary_states_the_bound(make_world):
    model, _ = make_world()
    text = " ".join(str(audit(model, settings=replace(QUICK, n_reference=200))).split())
    assert (
        "M4 was computed with 200 retain records drawn at random. Its value is within 0.0960 of that with all" in text
    )
    assert "drawn at random" not in str(audit(model, settings=QUICK))
