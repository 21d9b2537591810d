"""Whether held-out records are a fair comparison for the forget records."""

import numpy as np
import pytest
from tests.auditing.guards.cases import (
    N_FORGET,
    N_HELD_OUT,
    N_RETAIN,
    WIDTH,
    cut,
    guards_of,
    shift,
)

from ruler.auditing.settings import AuditSettings


def find_unfair(models, **options):
    return [finding for finding in guards_of(models, **options) if finding.name == "not_exchangeable"]


def test_forget_records_that_lie_apart_in_the_oracle_block_the_verdict(models):
    (finding,) = find_unfair(shift(models, 2.0))
    assert finding.blocks
    assert "differ before any memory" in finding.message
    assert "one oracle can neither clear nor accuse" in finding.message
    assert "drawn as the forget records were" in finding.cure
    assert "several oracles from several seeds" in finding.cure
    assert "control='same-rule'" in finding.cure


def test_memory_of_the_unlearned_model_alone_is_no_unfairness(models):
    models["unlearned"] = shift({"unlearned": models["unlearned"]}, 5.0)["unlearned"]
    assert find_unfair(models) == []


def repeat_oracle(models, n, random):
    """As many oracles, each a little off the one that was given."""
    parts = models["oracle"]
    return [tuple(part.values + 0.01 * random.normal(size=part.shape) for part in parts) for _ in range(n)]


def test_two_oracles_turn_it_into_a_note(models, random):
    moved = shift(models, 2.0)
    (finding,) = find_unfair(moved | {"oracle": repeat_oracle(moved, 2, random)})
    assert (finding.severity, finding.blocks) == ("note", False)
    assert "the error of 2 oracles allows for it" in finding.message
    (finding,) = find_unfair(moved | {"oracle": repeat_oracle(moved, 1, random)})
    assert finding.blocks


@pytest.mark.parametrize("n_oracles", [1, 2])
def test_a_declared_rule_turns_it_into_a_note(models, random, n_oracles):
    moved = shift(models, 2.0)
    settings = AuditSettings(control="same-rule")
    (finding,) = find_unfair(moved | {"oracle": repeat_oracle(moved, n_oracles, random)}, settings=settings)
    assert (finding.severity, finding.blocks) == ("note", False)
    assert "declared to be chosen by the same rule" in finding.message
    assert "oracles allows" not in finding.message


def test_a_reference_tells_unlike_records_where_no_oracle_is_given(models):
    moved = shift(models, 2.0)
    (finding,) = find_unfair({"unlearned": moved["unlearned"], "reference": moved["oracle"]})
    assert finding.blocks
    assert "this audit can neither clear nor accuse" in finding.message
    assert find_unfair({"unlearned": moved["unlearned"]}) == []  # nobody can tell memory from choice


def test_with_several_oracles_less_doubt_is_enough_since_it_only_chooses_the_error():
    def count(n_oracles):
        found = [find_unfair(models(seed, n_oracles)) for seed in range(20)]
        return sum(bool(one) for one in found)

    def models(seed, n_oracles):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=(N_FORGET + N_RETAIN + N_HELD_OUT, WIDTH))
        base[:N_FORGET] += 0.2
        given = [cut(base + 0.1 * rng.normal(size=base.shape)) for _ in range(1 + n_oracles)]
        return {"unlearned": given[0], "oracle": given[1:]}

    with_one, with_two = count(1), count(2)
    assert with_one < with_two < 20


def test_another_mix_of_labels_is_named(models):
    labels = [np.repeat([0, 1], (36, 4)), np.arange(N_RETAIN) % 2, np.arange(N_HELD_OUT) % 2]
    (finding,) = find_unfair(shift(models, 0.0, labels=labels))
    assert "by their labels" in finding.message
    assert "90% labelled '0'" in finding.cure
    assert "match_labels=True" in finding.cure
    assert find_unfair(shift(models, 0.0, labels=[np.arange(len(one)) % 2 for one in labels])) == []


def test_other_losses_lengths_and_features_are_named(models, random):
    sizes = (N_FORGET, N_RETAIN, N_HELD_OUT)
    losses = [random.random(n) + (1.0 if side == 0 else 0.0) for side, n in enumerate(sizes)]
    (finding,) = find_unfair(shift(models, 0.0, losses=losses))
    assert "their losses" in finding.message
    longer = {name: (3.0 * sides[0], *sides[1:]) for name, sides in models.items()}
    (finding,) = find_unfair(longer)
    assert "the length of their representations" in finding.message
    features = [random.normal(size=(n, 3)) + (2.0 if side == 0 else 0.0) for side, n in enumerate(sizes)]
    (finding,) = find_unfair(shift(models, 0.0, features=features))
    assert "their input features" in finding.message


def test_people_who_were_not_named_are_suspected():
    rng = np.random.default_rng(3)
    people = [np.repeat(rng.normal(size=(n // 5, WIDTH)), 5, axis=0) for n in (N_FORGET, N_RETAIN, N_HELD_OUT)]
    base = np.concatenate(people)
    models = {name: cut(base + 0.3 * rng.normal(size=base.shape)) for name in ("unlearned", "oracle")}
    (finding,) = find_unfair(dict(models))
    assert "how they cluster" in finding.message
    labels = np.split(np.arange(len(base)) // 5, np.cumsum([N_FORGET, N_RETAIN]))
    groups = dict(zip(("forget", "retain", "held_out"), labels, strict=True))
    assert find_unfair(models, groups=groups) == []


def test_fair_held_out_records_are_rarely_doubted(random):
    n_doubted = 0
    for _ in range(40):
        base = random.normal(size=(N_FORGET + 60 + N_HELD_OUT, 6))
        models = {
            name: cut(base + 0.1 * random.normal(size=base.shape), (N_FORGET, 60, N_HELD_OUT))
            for name in ("unlearned", "oracle")
        }
        n_doubted += bool(find_unfair(models))
    assert n_doubted <= 3


def test_the_seed_of_the_audit_does_not_decide_what_is_fair(models):
    moved = shift(models, 0.6)
    found = [find_unfair(dict(moved), settings=AuditSettings(seed=seed)) for seed in range(4)]
    assert all(one == found[0] for one in found)


def test_labels_that_are_numbers_rather_than_classes_are_not_compared(models):
    # 40 labels of 120 forget and held-out records: fewer than five each
    labels = [np.arange(N_FORGET) % 20, np.arange(N_RETAIN) % 40, 20 + np.arange(N_HELD_OUT) % 20]
    assert find_unfair(shift(models, 0.0, labels=labels)) == []
    fewer = [np.arange(N_FORGET) % 12, np.arange(N_RETAIN) % 24, 12 + np.arange(N_HELD_OUT) % 12]
    (finding,) = find_unfair(shift(models, 0.0, labels=fewer))  # 24 labels, five each
    assert "their labels" in finding.message


def test_the_three_most_frequent_labels_are_advised(models):
    labels = [np.repeat(np.arange(5), (4, 16, 2, 10, 8)), np.arange(N_RETAIN) % 5, np.zeros(N_HELD_OUT, dtype=int)]
    (finding,) = find_unfair(shift(models, 0.0, labels=labels))
    assert "(40% labelled '1', 25% labelled '3', 20% labelled '4'; match_labels" in finding.cure


def test_five_records_are_the_fewest_whose_clusters_are_told():
    rng = np.random.default_rng(0)
    for n_forget, is_told in ((5, True), (4, False)):
        sizes = (n_forget, N_RETAIN, N_HELD_OUT)
        base = rng.normal(size=(sum(sizes), WIDTH))
        base[:n_forget] = 10 * rng.normal(size=WIDTH) + 0.01 * rng.normal(size=(n_forget, WIDTH))
        models = {name: cut(base + 0.001 * rng.normal(size=base.shape), sizes) for name in ("unlearned", "oracle")}
        (finding,) = find_unfair(models)
        assert ("how they cluster" in finding.message) == is_told
