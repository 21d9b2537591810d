"""Whether a model still works."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import make_cleared

from ruler.auditing import AuditSettings, audit, audit_evidence, gather_evidence
from ruler.auditing.damage import conclude_damage, judge_damage, linear_cka
from ruler.core.types import Embeddings


def test_a_destroyed_model_is_damaged_and_a_clean_one_is_not(build_world):
    given = make_cleared(build_world)
    rng = np.random.default_rng(99)
    noise = tuple(Embeddings(rng.normal(size=part.shape), losses=part.losses) for part in given["unlearned"])
    report = audit(**given | {"unlearned": noise})
    assert report.verdict == "damaged"
    assert report.damage.similarity < 0.3
    assert not audit(**given).damage.is_damaged
    # accuracy tells where representations do not
    evidence = gather_evidence(
        **given | {"unlearned": tuple(replace(part, labels=np.arange(len(part)) % 2) for part in given["unlearned"])}
    )
    right = {"oracle": {"retain_accuracy": 0.9}, "unlearned": {"retain_accuracy": 0.55}}
    assert audit_evidence(evidence, answers=right).verdict == "damaged"
    assert audit_evidence(evidence, answers=right | {"unlearned": {"retain_accuracy": 0.88}}).verdict != "damaged"


def test_linear_cka_is_its_kernel_form_and_knows_neither_axes_nor_scale():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 5))
    second = np.hstack([first[:, :3] + rng.normal(size=(40, 3)), rng.normal(size=(40, 4))])
    centre = np.eye(40) - 1 / 40
    one, other = (centre @ rows @ rows.T @ centre for rows in (first, second))
    expected = (one * other).sum() / np.sqrt((one * one).sum() * (other * other).sum())
    assert linear_cka(first, second) == pytest.approx(expected)
    turned = 3.0 * second @ ortho_group.rvs(7, random_state=0) + 2.0
    assert linear_cka(first, turned) == pytest.approx(expected)
    assert linear_cka(first, np.ones((40, 2))) == 0.0


@pytest.mark.parametrize(
    ("similarity", "skill", "lost", "is_damaged"),
    [
        (0.7, math.nan, math.nan, False),  # at the least similarity
        (0.69, math.nan, math.nan, True),
        (0.69, 0.79, 0.1, True),
        (0.69, 0.8, 0.1, False),  # a model that answers well works, wherever its representations lie
        (0.9, 0.5, 0.3, False),
        (0.9, 0.49, 0.05, True),
        (0.9, 0.49, 0.049, False),  # hardly any accuracy was lost
        (math.nan, 0.49, 0.3, True),
    ],
)
def test_damage_begins_beyond_the_limits(similarity, skill, lost, is_damaged):
    found = conclude_damage(similarity, skill, lost, AuditSettings(least_similarity=0.7))
    assert found.is_damaged == is_damaged
    assert found.reason.startswith("The model no longer works" if is_damaged else "The model still works")


def test_the_reason_for_damage_tells_what_is_known():
    settings = AuditSettings(least_similarity=0.7)
    assert conclude_damage(0.9, 0.75, 0.1, settings).reason == (
        "The model still works: linear CKA of retain records to the oracle 0.90, "
        "75% of the oracle's skill on them left."
    )
    assert conclude_damage(0.2, -0.5, 0.4, settings).reason == (
        "The model no longer works: retain records no longer lie as they do in the oracle (linear CKA 0.20, at least "
        "0.7 expected) and 0% of the oracle's skill on retain records is left."
    )
    assert "CKA" not in conclude_damage(math.nan, 0.75, 0.1, settings).reason
    assert "skill" not in conclude_damage(0.9, math.nan, math.nan, settings).reason


def test_skill_is_accuracy_beyond_the_most_frequent_label():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    labels = np.split(np.repeat([0, 1], 30), [10, 50])  # of the 40 retain records 20 each
    labels[1][:8] = 1  # 28 of 40 retain records
    model = tuple(Embeddings(part, labels=own) for part, own in zip(np.split(rows, [10, 50]), labels, strict=True))
    evidence = gather_evidence(model)
    right = {"unlearned": {"retain_accuracy": 0.8}, "original": {"retain_accuracy": 0.9}}
    found = judge_damage(evidence, right)
    assert (found.skill, found.lost) == pytest.approx((0.5, 0.1))
    better = judge_damage(evidence, right | {"oracle": {"retain_accuracy": 1.0}})  # rather than the original
    assert (better.skill, better.lost) == pytest.approx((1 / 3, 0.2))
    assert judge_damage(evidence, {"unlearned": {"retain_accuracy": 0.8}}) is None
    assert judge_damage(evidence, {"original": {"retain_accuracy": 0.8}}) is None
    assert judge_damage(evidence, right | {"original": {"retain_accuracy": 0.71}}) is None  # hardly beats it


def test_a_reference_that_just_beats_chance_shows_skill():
    rows = np.split(np.random.default_rng(0).normal(size=(30, 3)), [10, 20])
    evidence = gather_evidence(tuple(rows))  # no labels: chance is 0
    right = {"unlearned": {"retain_accuracy": 0.01}, "original": {"retain_accuracy": 0.02}}
    assert judge_damage(evidence, right).skill == pytest.approx(0.5)


def test_skill_is_read_from_losses_where_no_accuracy_is_known():
    rng = np.random.default_rng(0)
    rows, labels = np.split(rng.normal(size=(60, 3)), [10, 50]), np.split(np.arange(60) % 2, [10, 50])
    even = [np.full(len(part), math.log(2)) for part in rows]  # half of the probability is not enough
    sure = [np.full(len(part), 0.1) for part in rows]
    half = [np.where(np.arange(len(part)) < 0.75 * len(part), 0.1, 3.0) for part in rows]

    def embed(losses, noise):
        return tuple(
            Embeddings(part + noise * rng.normal(size=part.shape), labels=own, losses=loss)
            for part, own, loss in zip(rows, labels, losses, strict=True)
        )

    for losses, skill, lost in ((half, 0.5, 0.25), (even, -1.0, 1.0), (sure, 1.0, 0.0)):
        found = judge_damage(gather_evidence(embed(losses, 0.01), oracle=embed(sure, 0.01)), {})
        assert (found.skill, found.lost) == pytest.approx((skill, lost))
        alone = judge_damage(gather_evidence(embed(losses, 0.01), original=embed(sure, 0.01)), {})
        assert (alone.skill, alone.lost) == pytest.approx((skill, lost))


def test_linear_cka_is_at_most_one_whatever_the_rounding():
    found = []
    for seed in range(100):
        rows = np.random.default_rng(seed).normal(size=(9, 3))
        found += [linear_cka(rows, 3.0 * rows[:, ::-1]), linear_cka(rows, rows)]
    assert max(found) == 1.0
    assert min(found) == pytest.approx(1.0)


def test_linear_cka_takes_rows_of_any_size():
    rows = np.random.default_rng(0).normal(size=(9, 3))
    for scale in (1e-120, 1e120):
        assert linear_cka(scale * rows, rows) == linear_cka(rows, scale * rows) == pytest.approx(1.0)


@pytest.mark.parametrize(("n_labels", "is_known"), [(20, True), (21, False)])
def test_more_than_twenty_labels_are_numbers_rather_than_classes(n_labels, is_known):
    rng = np.random.default_rng(0)
    parts = np.split(rng.normal(size=(160, 3)), [20, 120])

    def embed(right):
        return tuple(
            Embeddings(
                part + 0.01 * rng.normal(size=part.shape),
                labels=np.arange(len(part)) % n_labels,
                losses=np.where(np.arange(len(part)) < right * len(part), 0.1, 3.0),
            )
            for part in parts
        )

    found = judge_damage(gather_evidence(embed(0.5), oracle=embed(1.0)), {})
    chance = 5 / 100
    assert (found.skill, found.lost) == pytest.approx(
        ((0.5 - chance) / (1 - chance), 0.5) if is_known else (math.nan, math.nan), nan_ok=True
    )
