"""What is measured of a model at one layer."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import FAST, QUICK, ROWS, SOUND

from ruler.auditing import AuditSettings, audit, gather_evidence
from ruler.core.errors import InputError
from ruler.core.types import Embeddings


def test_an_oracle_with_other_axes_is_aligned(make_world):
    unlearned, oracle = make_world(seed=1)
    turn = ortho_group.rvs(6, random_state=0)
    turned = tuple(rows @ turn for rows in oracle)
    report = audit(unlearned, oracle=turned, settings=FAST)
    plain = audit(unlearned, oracle=oracle, settings=FAST)
    assert report.pairing.is_aligned
    assert not plain.pairing.is_aligned
    assert report.metrics["m1"].value == pytest.approx(plain.metrics["m1"].value, abs=0.01)
    assert report.metrics["m2"].plain_value is not None
    assert report.metrics["m2"].aligned_value == pytest.approx(report.metrics["m2"].value)
    assert report.metrics["m2"].effect == pytest.approx(plain.metrics["m2"].effect, abs=0.02)


def test_losses_count_without_those_of_an_oracle_but_not_in_a_test_against_each_of_five():
    full = tuple(Embeddings(rows, losses=np.ones(len(rows))) for rows in SOUND)
    assert gather_evidence(full, oracle=SOUND).has_losses
    unfair = replace(gather_evidence(full, oracle=[full] * 4 + [SOUND]), is_fair=False)
    assert unfair.is_hybrid
    assert not unfair.has_losses
    assert replace(unfair, is_fair=True).has_losses
    assert not gather_evidence(SOUND, oracle=full).has_losses


def test_nearest_retain_leaves_a_retain_record_itself_out():
    nearest = gather_evidence(SOUND).main.nearest
    assert (nearest["retain"].index[:, 0] != np.arange(15)).all()
    assert sorted(nearest) == ["forget", "held_out", "retain"]


def test_known_members_meet_strangers_only():
    retain = np.repeat(np.random.default_rng(3).normal(size=(20, 3)), 3, axis=0) + 1e-6 * np.arange(60)[:, None]
    groups = {"retain": np.repeat(np.arange(20), 3)}
    alone = gather_evidence((ROWS[:5], retain, ROWS[20:])).main.find_nearest_in_other_groups()
    apart = gather_evidence((ROWS[:5], retain, ROWS[20:]), groups=groups).main
    found = apart.find_nearest_in_other_groups()
    assert (alone > 0.999999).all()
    rows, owners = apart.rows["retain"], apart.retain_groups
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = np.where(owners[:, None] == owners[None, :], -2.0, unit @ unit.T)
    assert found == pytest.approx(similarity.max(axis=1)[apart.members])


def test_strangers_of_huge_groups_are_found():
    retain = np.random.default_rng(4).normal(size=(700, 3))
    groups = {"retain": (np.arange(700) >= 600).astype(int)}
    model = gather_evidence((ROWS[:5], retain, ROWS[20:]), groups=groups).main
    unit = model.rows["retain"] / np.linalg.norm(model.rows["retain"], axis=1, keepdims=True)
    other = model.retain_groups[:, None] != model.retain_groups[None, :]
    expected = np.where(other, unit @ unit.T, -2.0).max(axis=1)[model.members]
    assert model.find_nearest_in_other_groups() == pytest.approx(expected)


def test_alignment_by_request():
    evidence = gather_evidence(SOUND, oracle=SOUND, settings=AuditSettings(align="always"))
    model, oracle = evidence.main, evidence.main_oracles[0]
    assert evidence.pairing.is_paired
    assert evidence.pairing.is_aligned
    assert len(model.compare(oracle, is_aligned=True)["retain"]) == len(model.halves[1]) == 8
    assert len(model.compare(oracle, is_aligned=False)["retain"]) == 15
    assert not gather_evidence(SOUND, oracle=SOUND).pairing.is_aligned


def test_several_oracles_and_layers_keep_their_names():
    layers = tuple({"first": rows, "last": rows[:, :2]} for rows in SOUND)
    evidence = gather_evidence(layers, oracle=[layers, layers])
    assert evidence.layers == ("first", "last")
    assert evidence.main.rows["forget"].shape == (5, 2)
    assert len(evidence.oracles) == 2
    assert list(evidence.models) == ["unlearned", "oracle", "oracle 2"]
    with pytest.raises(InputError, match="oracle must have the layers of the unlearned model, first, last; got last"):
        gather_evidence(layers, oracle=tuple({"last": part["last"]} for part in layers))
    with pytest.raises(InputError, match="unlearned must have the same layers on every side"):
        gather_evidence((layers[0], {"last": SOUND[1]}))


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
