"""A contrast must have been seen where there was something to see."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from tests.auditing.cases import DECIDING, FAST, make_cleared, strip

from ruler.auditing import audit, gather_evidence
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.controls import cross_fit
from ruler.auditing.measure import measure_contrasts
from ruler.core.types import Embeddings
from ruler.stats.auc import measure_effect
from ruler.stats.equivalence import divide


def test_what_could_not_be_seen_before_cannot_be_shown_to_be_gone(build_world):
    world = build_world(0)
    unlearned, oracle, original = (world.model(gain=0.0) for _ in range(3))
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    assert all(report.metrics[name].verdict == "erased" for name in DECIDING)
    assert report.verdict == "inconclusive"
    assert report.reason.startswith("Nothing could be seen before unlearning either")
    assert any("Other layers" in need for need in report.needs)


def test_known_members_stand_in_for_the_original(build_world):
    given = make_cleared(build_world) | {"original": None}
    report = audit(**given)
    assert report.verdict == "erased"
    assert {name for name in DECIDING if report.metrics[name].sensitivity.is_seen} == {"loss"}
    assert report.metrics["loss"].sensitivity.source == "known members"
    # without losses nothing tells retain from held-out records: blind, and nothing is cleared
    blind = audit(**given | {name: strip(given[name], "losses") for name in ("unlearned", "oracle")})
    assert all(blind.metrics[name].verdict == "erased" for name in ("m2", "m4", "norm"))
    assert blind.verdict == "inconclusive"
    assert "none can clear it" in blind.reason
    assert any(need.startswith("The original model") for need in blind.needs)
    assert any(need.startswith("Losses of all records") for need in blind.needs)


def test_what_is_left_is_a_share_of_the_known_members_contrast(build_world):
    given = make_cleared(build_world) | {"original": None}
    found, evidence = audit(**given).metrics["loss"], gather_evidence(**given)
    (model,), contrast = evidence.unlearned.values(), CONTRASTS["loss"]
    oracles = [next(iter(oracle.values())) for oracle in evidence.oracles]
    scores, known = dict(contrast.score(model, oracles)), dict(contrast.score_members(model, oracles))
    now = measure_effect(scores["forget"], scores["held_out"])
    members = measure_effect(known["retain"], known["held_out"])
    variances = np.diag([now.standard_error**2, members.standard_error**2])
    distances = abs(now.value - 0.5), abs(members.value - 0.5)
    share = divide(*distances, variances, freedom=now.freedom, alpha=FAST.alpha)
    assert found.sensitivity.effect == pytest.approx(members.value)
    assert (found.share_left, found.share_left_upper) == pytest.approx((share.value, share.upper))


def test_most_of_the_originals_contrast_must_be_shown_to_be_gone(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"settings": replace(FAST, share_limit=0.1)})
    assert report.verdict == "inconclusive"
    assert "may be left" in report.reason
    assert report.metrics["loss"].share_left_upper > 0.1
    assert any(need.startswith("About ") for need in report.needs)


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

    unlearned, oracle = embed(), embed()
    matched = measure_contrasts(gather_evidence(unlearned, oracle=oracle, settings=FAST))["loss"].sensitivity
    assert matched.source == "known members"
    assert matched.effect == pytest.approx(0.5, abs=0.06)
    missing = tuple(replace(part, labels=part.labels + (2 if side == 2 else 0)) for side, part in enumerate(unlearned))
    found = measure_contrasts(gather_evidence(missing, oracle=oracle, settings=FAST))["loss"]
    assert found.sensitivity is None  # no retain record has a held-out label


def test_one_member_of_a_label_is_enough(build_world):
    world = build_world(0, sizes=(30, 100, 40))
    parts = [Embeddings(rows, labels=np.ones(len(rows), dtype=int)) for rows in world.model()]
    evidence = gather_evidence(tuple(parts), settings=FAST)
    parts[1].labels[evidence.ids["retain"][evidence.main.members[0]]] = 0
    parts[2].labels[0] = 0
    again = gather_evidence(tuple(parts), settings=FAST)
    assert (again.labels["retain"][again.main.members] == 0).sum() == 1
    assert measure_contrasts(again)["m4"].sensitivity.source == "known members"


@pytest.mark.parametrize(("n_labels", "is_compared"), [(20, False), (21, True)])
def test_members_are_matched_by_up_to_twenty_labels(build_world, n_labels, is_compared):
    """A held-out label that no member has leaves nothing to compare, unless labels are numbers rather than classes."""
    world = build_world(0, sizes=(30, 120, 100))
    labels = [np.arange(len(rows)) % (n_labels - (side < 2)) for side, rows in enumerate(world.model())]
    model = tuple(Embeddings(rows, labels=own) for rows, own in zip(world.model(), labels, strict=True))
    sensitivity = measure_contrasts(gather_evidence(model, settings=FAST))["m4"].sensitivity
    assert (sensitivity is not None) == is_compared
