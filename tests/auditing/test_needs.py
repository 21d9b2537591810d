"""What would settle an inconclusive verdict, the most useful first."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from tests.auditing.measured import SEEN, SETTINGS, N, measure

from ruler.auditing.findings import GuardFinding
from ruler.auditing.gather import gather_evidence
from ruler.auditing.needs import list_needs


@pytest.fixture
def evidence():
    rows = np.random.default_rng(0).normal(size=(60, 3))
    model, oracle = (tuple(np.split(rows + 0.01 * shift, [10, 30])) for shift in (0, 1))
    return gather_evidence(model, oracle=oracle, original=model)


def test_needs_come_in_the_order_of_their_use(evidence):
    bare = replace(evidence, oracles=[], original=None, ids={"forget": np.arange(10), "retain": np.arange(20)})
    needs = list_needs(bare, {}, [], 0)
    assert [need.split(":")[0] for need in needs] == ["Held-out records", "An oracle"]
    assert "at least 100" in needs[0]
    doubt = GuardFinding("unfair", "warn", "Unfair.", "Be fair.", blocks=True)
    assert list_needs(evidence, SEEN, [doubt], 0)[0] == "Be fair."
    assert "Another round of unlearning" in " ".join(list_needs(evidence, SEEN, [], 2))


def test_needs_say_how_many_records_would_do(evidence):
    # 10 forget against 30 held-out records, one contrast that decides: the margin and the spread, two tests
    found = {"m2": measure(0.5)}
    effect = found["m2"].place.effect
    each = math.sqrt(SETTINGS.power)
    target = SETTINGS.margin / (norm.ppf(1 - SETTINGS.alpha) + norm.ppf((1 + each) / 2))
    n = math.ceil(N * (effect.null_spread / target) ** 2)
    (need,) = [need for need in list_needs(evidence, found, [], 0) if need.startswith("About")]
    assert need.startswith(f"About {n:,} forget records with {3 * n:,} held-out ones (now 10 with 30)")
    enough = replace(evidence, ids=evidence.ids | {"forget": np.arange(n)})
    assert not any(need.startswith("About") for need in list_needs(enough, found, [], 0))
    short = replace(evidence, ids=evidence.ids | {"forget": np.arange(n - 1)})
    assert any(need.startswith("About") for need in list_needs(short, found, [], 0))


def test_needs_count_what_the_share_left_asks_for(evidence):
    found = measure(0.52, 0.56, seen=0.001)
    effect = found.place.effect
    reach = (norm.ppf(1 - SETTINGS.alpha) + norm.ppf(SETTINGS.power)) * effect.error
    allowed = SETTINGS.share_limit * abs(found.sensitivity.effect - 0.5)
    n = math.ceil(N * (reach * math.hypot(1, SETTINGS.share_limit) / allowed) ** 2)
    (need,) = [need for need in list_needs(evidence, {"m2": found}, [], 0) if need.startswith("About")]
    assert need.startswith(f"About {n:,} forget records")
    weaker = replace(found, sensitivity=replace(found.sensitivity, is_strongest=False))
    (less,) = [need for need in list_needs(evidence, {"m2": weaker}, [], 0) if need.startswith("About")]
    assert less != need


@pytest.mark.parametrize(("n_held_out", "is_short"), [(38, True), (39, False)])
def test_five_memorised_records_need_held_out_records_to_be_found(evidence, n_held_out, is_short):
    # 5 alpha (m + 1) against 10 forget records: 9.75 is short of them, 10 is not
    changed = replace(evidence, ids=evidence.ids | {"held_out": np.arange(n_held_out)})
    needs = list_needs(changed, SEEN, [], 0)
    assert ("At least 40 held-out records, to find as few as five memorised records one by one." in needs) == is_short


def test_an_unchanged_model_needs_the_unlearned_one(evidence):
    untouched = GuardFinding("identical_to_original", "warn", "The same.", "Check.")
    need = "The unlearned model: the one that was given is the original."
    assert need in list_needs(evidence, SEEN, [untouched], 0)
    assert need not in list_needs(evidence, SEEN, [], 0)


def test_blindness_needs_losses_layers_records_and_the_original(evidence):
    blind = {"m2": replace(SEEN["m2"], sensitivity=replace(SEEN["m2"].sensitivity, is_seen=False))}
    losses, layers = "Losses of all records", "Other layers"
    original, more = "The original model", "More records: with these, no trace of training"

    def begin(given, found=blind):
        needs = list_needs(given, found, [], 0)
        return [word for word in (original, losses, layers, more) if any(need.startswith(word) for need in needs)]

    assert begin(evidence) == [losses, layers, more]
    assert begin(replace(evidence, original=None)) == [original, losses, layers, more]
    assert begin(replace(evidence, original=None), SEEN) == []
    left = {"m2": measure(0.52, 0.56, seen=0.001)}
    assert begin(replace(evidence, original=None), left) == [original]
    assert begin(evidence, left) == []


def test_a_test_against_oracles_needs_more_of_them_rather_than_records(evidence):
    hybrid = {name: replace(one, test="hybrid") for name, one in SEEN.items()}
    one_alone = {"m2": replace(SEEN["m2"], test="hybrid"), "m4": SEEN["m4"]}
    for found in (hybrid, one_alone):
        needs = list_needs(evidence, found, [], 0)
        assert any(need.startswith("More oracles (now 1)") for need in needs)
        assert not any(need.startswith("About") for need in needs)
    assert not any(need.startswith("More oracles") for need in list_needs(evidence, SEEN, [], 0))
