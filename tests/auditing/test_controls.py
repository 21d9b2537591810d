"""Known members as a control."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from tests.auditing.cases import FAST

from ruler.auditing import audit, gather_evidence
from ruler.auditing.controls import are_other_records, cross_fit, match_members
from ruler.auditing.measure import measure_contrasts
from ruler.core.types import Embeddings


def measure_loss(unlearned, **options):
    evidence = gather_evidence(unlearned, settings=FAST, **options)
    evidence = replace(evidence, has_comparable_members=not are_other_records(evidence))
    return measure_contrasts(evidence)["loss"]


def test_known_members_stand_in_for_the_original(build_world):
    world = build_world(0)
    found = measure_loss(world.model(gain=1.0), oracle=world.model(gain=0.0)).finding.remaining
    assert list(found) == ["members"]
    assert found["members"].value == pytest.approx(1.0, abs=0.15)
    bare = tuple(part.values for part in world.model(gain=0.0))
    assert all(not one.remaining for one in audit(bare, settings=FAST).metrics.values())


def test_members_of_another_population_are_no_scale(build_world):
    world = build_world(0)
    world.base[150:550, 0] += 3.0  # retain records lie apart, in every model
    evidence = gather_evidence(world.model(gain=0.0), oracle=world.model(gain=0.0), settings=FAST)
    assert are_other_records(evidence)
    found = measure_loss(world.model(gain=0.0), oracle=world.model(gain=0.0), original=world.model(0.5, gain=1.0))
    assert list(found.finding.remaining) == ["original"]
    assert not are_other_records(gather_evidence(world.model(gain=0.0), settings=FAST))  # no neutral model to tell


def test_without_held_out_records_there_is_nothing_to_compare_members_with(build_world):
    world = build_world(0)
    given = {"unlearned": world.model(gain=0.0)[:2], "oracle": world.model(gain=0.0)[:2]}
    assert not are_other_records(gather_evidence(**given))
    assert audit(**given, settings=FAST).verdict == "inconclusive"


def test_records_are_classified_by_ten_components_in_five_folds(random):
    rows = random.normal(size=(90, 15)) * np.arange(1, 16)
    rows[:30, 14] += 20.0
    reduced = PCA(10, svd_solver="full").fit_transform(rows)
    reduced /= reduced.std(axis=0)
    is_first, folds = np.arange(90) < 30, np.concatenate([np.arange(30), np.arange(60)]) % 5
    expected = np.empty(90)
    for fold in range(5):
        fitted = LogisticRegression(max_iter=1000).fit(reduced[folds != fold], is_first[folds != fold])
        expected[folds == fold] = fitted.decision_function(reduced[folds == fold])
    assert cross_fit(rows, 30) == pytest.approx(expected)
    units = np.concatenate([np.arange(30) // 2, np.arange(60) // 2])
    assert cross_fit(rows, 30, units) != pytest.approx(expected)


def test_nothing_is_told_of_rows_that_do_not_vary_or_of_a_side_that_is_in_one_fold(random):
    assert (cross_fit(np.ones((20, 3)), 8) == 0).all()
    one_fold = cross_fit(random.normal(size=(20, 3)), 1)  # without its only record the first set cannot be learned
    assert one_fold[0] == one_fold[1] == 0.0
    assert (one_fold[2:5] != 0).all()
    few = cross_fit(random.normal(size=(4, 3)), 2)  # two folds hold records, three hold none
    assert np.isfinite(few).all()


def test_directions_that_do_not_vary_count_for_nothing(random):
    rows = random.normal(size=(60, 3)) + 3.0 * (np.arange(60) < 20)[:, None]
    flat = np.hstack([rows, rows[:, :1] * 1e-13])
    assert cross_fit(flat, 20) == pytest.approx(cross_fit(rows, 20), rel=1e-5)


def test_known_members_have_the_held_out_records_mix_of_labels(build_world):
    # the loss is lower for label 0: only a like mix of labels makes retain and held-out records comparable
    world = build_world(0, sizes=(60, 400, 100))
    world.labels[:] = 1
    world.labels[60:260] = 0  # half of the retain records
    world.labels[-25:] = 0  # a quarter of the held-out records
    losses = np.exp(0.1 * world.rng.normal(size=560)) + 5.0 * world.labels

    def embed():
        parts = zip(world.model(), world.cut(losses), world.cut(world.labels), strict=True)
        return tuple(Embeddings(rows, losses=loss, labels=label) for rows, loss, label in parts)

    unlearned = embed()
    (strand,) = measure_loss(unlearned).strands
    held_out = strand.plain[60:]
    assert strand.members.mean() == pytest.approx(held_out.mean(), abs=0.1)
    bare = tuple(replace(part, labels=None) for part in unlearned)
    assert measure_loss(bare).strands[0].members.mean() > held_out.mean() + 0.3
    missing = tuple(replace(part, labels=part.labels + (2 if side == 2 else 0)) for side, part in enumerate(unlearned))
    assert measure_loss(missing).strands[0].members is None  # no retain record has a held-out label


def test_one_member_of_a_label_is_enough(build_world):
    world = build_world(0, sizes=(30, 100, 40))
    parts = [replace(part, labels=np.ones(len(part), dtype=int)) for part in world.model(gain=0.0)]
    evidence = gather_evidence(tuple(parts), settings=FAST)
    parts[1].labels[evidence.ids["retain"][evidence.main.members[0]]] = 0
    parts[2].labels[0] = 0
    again = gather_evidence(tuple(parts), settings=FAST)
    chosen = match_members(again, np.arange(len(again.main.members)))
    labels = again.labels["retain"][again.main.members[chosen]]
    assert np.bincount(labels).tolist() == [1, 39]
