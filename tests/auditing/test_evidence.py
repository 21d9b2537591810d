"""What is measured of a model at one layer."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import FAST, QUICK, SOUND

from ruler.auditing import AuditSettings, audit, gather_evidence
from ruler.core.arithmetic import norm_rows
from ruler.core.errors import InputError
from ruler.core.types import Embeddings
from ruler.neighbors import find_neighbors


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


def test_losses_count_without_those_of_an_oracle():
    full = tuple(Embeddings(rows, losses=np.ones(len(rows))) for rows in SOUND)
    assert gather_evidence(full, oracle=SOUND).has_losses
    assert not gather_evidence(SOUND, oracle=full).has_losses


@pytest.mark.parametrize(("n_oracles", "freedom"), [(0, None), (1, None), (2, 1.0), (5, 4.0)])
def test_runs_have_an_error_of_their_own_where_two_oracles_tell_it_and_records_are_unlike(n_oracles, freedom):
    evidence = gather_evidence(SOUND, oracle=[SOUND] * n_oracles or None)
    assert evidence.run_freedom is None
    assert replace(evidence, is_fair=False).run_freedom == freedom


def test_what_was_given_decides_what_can_be_measured():
    labelled = tuple(Embeddings(rows, losses=np.ones(len(rows)), labels=np.arange(len(rows)) % 2) for rows in SOUND)
    assert not gather_evidence(SOUND).has(("oracle",))
    assert not gather_evidence(SOUND).has(("classes",))
    evidence = gather_evidence(labelled, oracle=SOUND, original=SOUND)
    assert evidence.has(("oracle", "original", "losses", "classes"))
    assert not evidence.has(("oracle", "relearned"))
    assert evidence.has(())


def test_a_neutral_model_is_the_first_oracle_or_the_first_reference_with_rows():
    other = tuple(2.0 * rows for rows in SOUND)
    losses = tuple(np.ones(len(rows)) for rows in SOUND)
    assert gather_evidence(SOUND).neutral is None
    assert gather_evidence(SOUND, reference=losses).neutral is None
    by_reference = gather_evidence(SOUND, reference=[losses, other])
    assert by_reference.neutral is by_reference.references[1][""]
    assert list(by_reference.models) == ["unlearned", "reference 2"]
    evidence = gather_evidence(SOUND, oracle=[SOUND, other], reference=other)
    assert evidence.neutral is evidence.main_oracles[0]
    assert list(evidence.models) == ["unlearned", "oracle", "oracle 2", "reference"]


def test_nearest_retain_leaves_a_retain_record_itself_out():
    nearest = gather_evidence(SOUND).main.nearest
    assert (nearest["retain"].index[:, 0] != np.arange(15)).all()
    assert sorted(nearest) == ["forget", "held_out", "retain"]


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


@pytest.mark.parametrize("n_reference", [None, 100])
def test_retain_rows_are_prepared_once_for_all_that_are_looked_up_among_them(n_reference):
    asked = []

    def search(queries, base, **options):
        asked.append((len(queries), queries is base))
        return find_neighbors(queries, base, **options)

    model = tuple(np.split(np.random.default_rng(5).normal(size=(165, 3)), [5, 155]))
    settings = AuditSettings(n_reference=n_reference)
    evidence = gather_evidence(model, oracle=model, settings=settings, search=search)
    found, others = evidence.main.nearest, evidence.main_oracles[0].nearest
    once = [(115, False)] if n_reference else [(15, False), (150, True)]
    assert asked == [*once, (15, False)]
    retain = evidence.main.rows["retain"]
    for side in ("forget", "held_out"):
        alone = find_neighbors(evidence.main.rows[side], retain)
        for one in (found, others):
            np.testing.assert_array_equal(one[side].similarity, alone.similarity)
            np.testing.assert_array_equal(one[side].index, alone.index)
    assert sorted(others) == ["forget", "held_out"]


def test_norms_belong_to_the_rows_as_they_are_ordered():
    model = gather_evidence(SOUND, oracle=tuple(2 * rows for rows in SOUND)).main_oracles[0]
    for side, rows in model.rows.items():
        np.testing.assert_array_equal(model.norms[side], norm_rows(rows))


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
