"""The rules of the verdict, each on a world in which the truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group

import ruler
from ruler.auditing import AuditSettings, GuardFinding, audit, audit_evidence, gather_evidence
from ruler.auditing.damage import linear_cka
from ruler.auditing.measure import measure_contrasts
from ruler.auditing.privacy import measure_privacy
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.core.errors import InputError
from ruler.core.types import Embeddings

FAST = AuditSettings(n_permutations=199)
DECIDING = ("m2", "m4", "norm", "loss")


def make_cleared(build_world, seed=0, **options):
    """Arguments of an audit that earns 'erased': nothing is left of what the original shows."""
    world = build_world(seed, **options)
    unlearned, oracle = world.model(gain=0.0), world.model(gain=0.0)
    return {"unlearned": unlearned, "oracle": oracle, "original": world.model(0.5, gain=1.0), "settings": FAST}


def strip(model, *names):
    """A model without its losses, or whatever else stands beside the rows."""
    return tuple(replace(part, **dict.fromkeys(names)) for part in model)


def effects(report):
    return {name: report.metrics[name].effect for name in DECIDING if name in report.metrics}


def count_flagged(report):
    return int((~report.records["finding"].isin([ALIKE, NOT_JUDGED])).sum())


# erased is earned


def test_nothing_left_of_what_the_original_shows_is_erased(build_world):
    report = audit(**make_cleared(build_world))
    assert report.verdict == "erased"
    assert report.needs == []
    assert {name: one.verdict for name, one in report.metrics.items()} == {
        **dict.fromkeys(("m1", "m3"), "descriptive"),
        **dict.fromkeys(DECIDING, "erased"),
    }
    assert all(report.metrics[name].equivalence_p_value <= 0.05 for name in DECIDING)
    loss = report.metrics["loss"]
    assert (loss.sensitivity.source, loss.sensitivity.is_seen) == ("original", True)
    assert [name for name in DECIDING if report.metrics[name].sensitivity.is_strongest] == ["loss"]
    assert loss.share_left_upper < 0.5


def test_without_an_oracle_nothing_is_erased(build_world):
    report = audit(**make_cleared(build_world) | {"oracle": None})
    assert sorted(report.metrics) == ["loss", "m4"]
    assert all(one.verdict == "erased" for one in report.metrics.values())
    assert report.verdict == "inconclusive"
    assert "Without an oracle no model is called erased." in report.reason
    assert report.needs[0].startswith("An oracle:")


def test_without_held_out_records_there_are_numbers_but_no_test(build_world):
    given = make_cleared(build_world)
    models = {name: model[:2] for name, model in given.items() if name != "settings"}
    report = audit(**models, settings=FAST)
    assert report.verdict == "inconclusive"
    assert "No held-out records were given" in report.reason
    assert report.needs[0].startswith("Held-out records: at least 300")
    for one in report.metrics.values():
        assert np.isfinite(one.value)
        assert np.isnan([one.p_value, one.adjusted_p_value, one.equivalence_p_value, one.effect]).all()
        assert (one.control, one.test) == ("none", "none")
        assert one.verdict in ("inconclusive", "descriptive")
    assert set(report.records["finding"]) == {NOT_JUDGED}
    assert report.privacy is None


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


def test_most_of_the_originals_contrast_must_be_shown_to_be_gone(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"settings": replace(FAST, share_limit=0.1)})
    assert report.verdict == "inconclusive"
    assert "may be left" in report.reason
    assert report.metrics["loss"].share_left_upper > 0.1
    assert any(need.startswith("About ") for need in report.needs)


def test_a_contrast_of_the_original_that_is_left_is_residual_even_within_the_margin(build_world):
    world = build_world(3, sizes=(1500, 300, 3000))
    original = world.model(gain=0.4)
    unlearned = tuple(
        Embeddings(rows.values, losses=rows.losses * (1 + 1e-3 * world.rng.normal(size=len(rows)))) for rows in original
    )
    report = audit(
        unlearned, oracle=world.model(gain=0.0), original=original, settings=replace(FAST, margin=0.35, n_plotted=50)
    )
    loss = report.metrics["loss"]
    assert loss.equivalence_p_value <= 0.05
    assert loss.verdict == report.verdict == "residual"
    assert loss.share_left == pytest.approx(1.0, abs=0.05)


def test_too_few_records_for_the_margin_are_inconclusive_and_say_how_many_would_do(build_world):
    given = make_cleared(build_world, sizes=(8, 400, 300))
    report = audit(**given)
    m2 = report.metrics["m2"]
    assert report.verdict == "inconclusive"
    assert m2.p_value > 0.05
    assert m2.minimum_detectable_effect > 0.2
    assert m2.n_needed > 8
    assert any("forget records with" in need for need in report.needs)


def test_no_model_with_flagged_records_is_erased(build_world):
    world = build_world(2, sizes=(150, 400, 800))
    memorised = np.where(np.arange(150) < 5, 3.0, 0.0)
    report = audit(
        world.model(memorised, gain=0.0),
        oracle=world.model(gain=0.0),
        original=world.model(0.5, gain=1.0),
        settings=FAST,
    )
    assert count_flagged(report) >= 5
    assert all(report.metrics[name].verdict == "erased" for name in DECIDING)
    assert report.verdict == "inconclusive"
    assert "stand out" in report.reason
    assert any("Another round of unlearning" in need for need in report.needs)


def test_no_model_with_flagged_groups_is_erased(build_world):
    # four people of fifty are remembered, by a little in each of their records: no single record stands out
    world = build_world(4, sizes=(200, 200, 4000))
    report = audit(
        world.model(np.where(np.arange(200) < 20, 0.8, 0.0), gain=0.0),
        oracle=world.model(gain=0.0),
        original=world.model(0.8, gain=1.0),
        groups={"forget": np.arange(200) // 4, "held_out": 1000 + np.arange(4000) // 4},
        settings=replace(FAST, margin=0.15),
    )
    assert count_flagged(report) == 0
    assert (~report.groups["finding"].isin([ALIKE, NOT_JUDGED])).sum() >= 3
    assert all(report.metrics[name].verdict == "erased" for name in DECIDING)
    assert report.verdict == "inconclusive"
    assert "alone or with their group" in report.reason


def test_an_untouched_model_is_never_erased(build_world):
    evidence = gather_evidence(**make_cleared(build_world))
    doubt = GuardFinding("identical_to_original", "warn", "Nothing has been unlearned.", "Check it.")
    assert audit_evidence(evidence).verdict == "erased"
    report = audit_evidence(evidence, extra_guards=[doubt])
    assert report.verdict == "inconclusive"
    assert report.reason.startswith("A model that was not changed cannot be cleared.")
    world = build_world(1)
    model = world.model()
    assert audit(model, oracle=world.model(), original=model, settings=FAST).verdict != "erased"


def test_a_failed_guard_makes_the_audit_invalid_and_a_blocking_one_inconclusive(build_world):
    evidence = gather_evidence(**make_cleared(build_world))
    doubt = GuardFinding("stability", "fail", "Embeddings changed between two calls.", "Use eval mode.")
    report = audit_evidence(evidence, extra_guards=[doubt], outputs={"unlearned": {"retain_accuracy": 0.9}})
    assert {report.verdict, *(report.metrics[name].verdict for name in DECIDING)} == {"invalid"}
    assert "Embeddings changed" in report.reason
    assert report.guards[0] is doubt
    assert report.outputs["unlearned"]["retain_accuracy"] == 0.9
    blocked = audit_evidence(evidence, extra_guards=[replace(doubt, severity="warn", blocks=True)])
    assert {blocked.verdict, *(blocked.metrics[name].verdict for name in DECIDING)} == {"inconclusive"}
    assert blocked.needs[0] == "Use eval mode."


# what is left is seen, whatever its form


def test_what_the_original_shows_and_is_left_is_residual(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"unlearned": build_world(0).model(0.5, gain=0.0)})
    assert report.verdict == report.metrics["m2"].verdict == "residual"
    assert "the original model's own contrast" in report.reason


def test_what_the_original_lacks_is_displaced(make_world):
    unlearned, oracle = make_world(seed=1, moved=0.8)
    original, _ = make_world(seed=1)
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    assert report.verdict == "displaced"
    assert report.metrics["m2"].share_left is None
    assert "new" in report.metrics["m2"].reason


def test_memory_that_only_the_loss_shows_is_seen(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"unlearned": build_world(0).model(0.0, gain=1.0)})
    assert report.verdict == "residual"
    assert [name for name in DECIDING if report.metrics[name].verdict == "residual"] == ["loss"]
    assert report.metrics["loss"].share_left == pytest.approx(1.0, abs=0.2)


def test_losses_are_compared_even_if_the_oracles_are_unknown(build_world):
    given = make_cleared(build_world)
    remembers = build_world(0).model(0.0, gain=1.0)
    report = audit(**given | {"unlearned": remembers, "oracle": strip(given["oracle"], "losses")})
    assert report.verdict == report.metrics["loss"].verdict == "residual"
    assert report.metrics["loss"].value == pytest.approx(remembers[0].losses.mean())
    assert report.records["loss_gap"].isna().all()


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


def test_longer_representations_are_seen(build_world):
    world = build_world(0)
    unlearned = world.model()
    unlearned[0][:] *= 1.3
    report = audit(unlearned, oracle=world.model(), original=world.model(0.5), settings=FAST)
    assert report.verdict == "displaced"
    assert [name for name in DECIDING[:3] if report.metrics[name].verdict != "erased"] == ["norm"]


def test_without_the_original_the_side_is_read(make_world):
    unlearned, _ = make_world(nearer=0.95)
    report = audit(unlearned, settings=FAST)
    assert list(report.metrics) == ["m4"]
    assert report.verdict == report.metrics["m4"].verdict == "residual"
    assert report.metrics["m4"].adjusted_p_value == report.metrics["m4"].p_value
    assert "reading of the side alone" in report.reason


def test_few_memorised_records_are_flagged_where_held_out_records_allow_it(build_world):
    for n_held_out, n_found in ((600, 5), (60, 0)):
        world = build_world(0, sizes=(60, 300, n_held_out))
        report = audit(
            world.model(np.where(np.arange(60) < 5, 2.0, 0.0), gain=0.0),
            oracle=world.model(gain=0.0),
            original=world.model(0.5, gain=1.0),
            settings=FAST,
        )
        is_flagged = ~report.records["finding"].isin([ALIKE, NOT_JUDGED])
        assert is_flagged[:5].sum() == n_found
        assert is_flagged[5:].sum() <= 1
        assert report.verdict != "erased"
    assert any("At least 240 held-out records" in need for need in report.needs)


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
    assert audit_evidence(evidence, outputs=right).verdict == "damaged"
    assert audit_evidence(evidence, outputs=right | {"unlearned": {"retain_accuracy": 0.88}}).verdict == "erased"


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


# forget sets as they are


def make_class(build_world, seed, n_oracles, **memory):
    """A forget set of one class, which lies apart in every model."""
    world = build_world(seed)
    world.base[:150, 0] += 1.0
    world.labels[:150] = 2
    oracles = [world.model(gain=0.0, labels=world.labels) for _ in range(n_oracles)]
    return {
        "unlearned": world.model(**{"gain": 0.0} | memory, labels=world.labels),
        "oracle": oracles if n_oracles > 1 else oracles[0],
        "original": world.model(0.5, gain=1.0, labels=world.labels),
        "settings": FAST,
    }


@pytest.mark.parametrize("memory", [{}, {"mark": 0.5, "gain": 1.0}])
def test_unfair_held_out_records_and_one_oracle_settle_nothing(build_world, memory):
    report = audit(**make_class(build_world, 0, 1, **memory))
    assert report.verdict == "inconclusive"
    assert "differ before any memory" in report.reason
    assert "100% labelled '2'" in report.needs[0]
    assert "match_labels=True" in report.needs[0]
    assert "5 oracles" in report.needs[0]
    assert set(report.records["finding"]) == {NOT_JUDGED}


def test_unfair_labels_settle_nothing_without_an_oracle(build_world):
    world = build_world(0)
    world.labels[:150] = 2
    world.hardness[:150] += 1.0
    report = audit(world.model(gain=0.0, labels=world.labels), settings=FAST)
    assert report.metrics["loss"].p_value <= 0.05
    assert report.verdict == "inconclusive"
    assert "match_labels=True" in report.needs[0]


def test_five_oracles_need_no_fair_held_out_records(build_world):
    clean = [audit(**make_class(build_world, seed, 5)) for seed in range(5)]
    assert {one.metrics["m2"].test for one in clean} == {"hybrid"}
    assert all(one.verdict in ("inconclusive", "erased") for one in clean)
    assert {guard.severity for one in clean for guard in one.guards if guard.name == "not_exchangeable"} == {"note"}
    assert audit(**make_class(build_world, 0, 5, mark=0.5)).verdict == "residual"
    assert audit(**make_class(build_world, 0, 5, gain=1.0)).verdict == "residual"


@pytest.mark.parametrize("by", ["labels", "strata"])
def test_matched_held_out_records_are_fair(build_world, by):
    world = build_world(2, sizes=(120, 300, 600))
    world.labels[:120] = np.where(world.rng.random(120) < 0.8, 0, world.labels[:120])
    world.base[:, 0] += 2.0 * world.labels
    names = {by: world.labels}
    models = {
        "unlearned": world.model(gain=0.0, **names),
        "oracle": world.model(gain=0.0, **names),
        "original": world.model(0.5, gain=1.0, **names),
    }
    if by == "labels":
        assert "not_exchangeable" in [guard.name for guard in audit(**models, settings=FAST).guards]
    evidence = gather_evidence(**models, settings=replace(FAST, match_labels=by == "labels"))
    shares = [
        np.unique(evidence.strata[side], return_counts=True)[1] / len(evidence.strata[side])
        for side in ("forget", "held_out")
    ]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)
    assert evidence.n_unmatched > 100
    report = audit_evidence(evidence)
    assert report.guards == []
    assert report.verdict in ("erased", "inconclusive")
    assert report.provenance["n_unmatched"] == evidence.n_unmatched


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


def test_match_labels_needs_labels(build_world):
    with pytest.raises(InputError, match="match_labels must"):
        audit(build_world(0).model(), settings=AuditSettings(match_labels=True))


def test_swapped_sides_are_noticed(build_world):
    given = make_cleared(build_world)
    swapped = {name: (model[1], model[0], model[2]) for name, model in given.items() if name != "settings"}
    report = audit(**swapped, settings=FAST)
    assert report.verdict == "invalid"
    assert report.guards[0].name == "swapped_sides"
    bare = {name: strip(model, "losses") for name, model in swapped.items()}
    assert "swapped_sides" in [guard.name for guard in audit(**bare, settings=FAST).guards]


# groups


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


def test_groups_too_few_for_the_level_settle_nothing(build_world):
    for n_forget, n_held_out, n_needed in ((1, 20, 39), (2, 5, 8)):
        world = build_world(0, sizes=(4 * n_forget, 200, 4 * n_held_out))
        world.marks += 30.0
        groups = np.arange(sum(world.sizes)) // 4
        report = audit(world.model(1.0, groups=groups), oracle=world.model(groups=groups), settings=FAST)
        (guard,) = [guard for guard in report.guards if guard.name == "unattainable_level"]
        assert f"at least {n_needed} held-out groups" in guard.cure
        assert report.verdict == "inconclusive"
        assert report.needs[0] == guard.cure


# one answer


def reorder(given, seed):
    """The same records in another order, in all models together."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(part)) for part in given["unlearned"]]

    def move(part, order):
        names = ("labels", "losses", "groups", "strata", *(() if part.ids.dtype.kind == "i" else ("ids",)))
        return Embeddings(part.values[order], **{n: v[order] for n in names if (v := getattr(part, n)) is not None})

    def move_model(model):
        return tuple(move(part, order) for part, order in zip(model, orders, strict=True))

    return {
        name: [move_model(one) for one in value]
        if isinstance(value, list)
        else move_model(value)
        if isinstance(value, tuple)
        else value
        for name, value in given.items()
    }


@pytest.mark.parametrize("kind", ["plain", "unpaired", "duplicates", "groups", "hybrid", "labels", "reference"])
def test_the_order_of_the_records_changes_no_bit(build_world, kind):
    world = build_world(7, sizes=(60, 120, 90))
    n = sum(world.sizes)
    if kind == "duplicates":  # identical rows whose losses differ, as in tables of whole numbers
        world.base[:] = world.rng.integers(0, 2, size=world.base.shape)
        world.marks[:], world.noise = 1.0, 0.0
    beside = {"labels": world.labels}
    if kind != "duplicates":
        beside["ids"] = np.array([f"r{row}" for row in range(n)])
    if kind == "groups":
        beside["groups"] = np.arange(n) // 3
    n_oracles = 5 if kind == "hybrid" else 1
    given = {
        "unlearned": world.model(0.1, gain=0.1, **beside),
        "oracle": [world.model(gain=0.0, **beside) for _ in range(n_oracles)],
        "original": world.model(0.5, gain=1.0, **beside),
        "settings": replace(FAST, match_labels=kind == "labels", n_reference=100 if kind == "reference" else None),
    }
    if kind == "unpaired":
        turn = ortho_group.rvs(6, random_state=0)
        given["oracle"] = [tuple(replace(part, values=part.values @ turn) for part in given["oracle"][0])]
    plain = audit(**given)
    for seed in range(2):
        moved = audit(**reorder(given, seed))
        assert repr(moved.metrics) == repr(plain.metrics)
        assert (moved.verdict, moved.reason, moved.needs) == (plain.verdict, plain.reason, plain.needs)
        assert (moved.guards, moved.privacy, moved.damage) == (plain.guards, plain.privacy, plain.damage)
        name = "loss" if kind == "duplicates" else "id"
        tables = [
            one.records.drop(columns=[] if name == "id" else ["id", "nearest_retain"]).set_index(name).sort_index()
            for one in (plain, moved)
        ]
        assert tables[0].equals(tables[1])
        if kind == "groups":
            tables = [one.groups.set_index("group").sort_index() for one in (plain, moved)]
            assert tables[0].equals(tables[1])


def test_records_are_listed_in_the_order_given(build_world):
    world = build_world(0)
    names = np.array([f"r{row}" for row in range(sum(world.sizes))])
    model = world.model(gain=0.0, ids=names)
    report = audit(model, oracle=world.model(gain=0.0), settings=FAST)
    assert report.records["id"].tolist() == names[:150].tolist()
    assert report.records["loss"].to_numpy() == pytest.approx(model[0].losses)


def test_the_seed_changes_no_verdict_near_alpha(build_world):
    world = build_world(338, sizes=(60, 100, 120))
    unlearned, oracle = world.model(gain=0.25), world.model(gain=0.0)
    reports = [audit(unlearned, oracle=oracle, settings=AuditSettings(seed=seed)) for seed in range(5)]
    p_values = [min(one.metrics[name].adjusted_p_value for name in DECIDING) for one in reports]
    assert 0.03 < min(p_values) <= max(p_values) < 0.07
    assert len({one.verdict for one in reports}) == 1


def test_the_same_evidence_gives_the_same_report(build_world):
    first, second = (audit(**make_cleared(build_world)) for _ in range(2))
    assert repr(first.metrics) == repr(second.metrics)
    assert first.records.equals(second.records)


def test_scale_and_rotation_of_all_models_change_nothing(build_world):
    given = make_cleared(build_world)
    turn = 7.0 * ortho_group.rvs(6, random_state=1)

    def move(model):
        return tuple(replace(part, values=part.values @ turn) for part in model)

    plain = audit(**given)
    turned = audit(**{name: move(value) if isinstance(value, tuple) else value for name, value in given.items()})
    assert turned.verdict == plain.verdict
    assert effects(turned) == pytest.approx(effects(plain), abs=1e-9)
    assert turned.damage.similarity == pytest.approx(plain.damage.similarity, abs=0.05)
    for name in DECIDING:  # other rows draw other labellings
        assert turned.metrics[name].p_value == pytest.approx(plain.metrics[name].p_value, abs=0.1)


# layers


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
    m2 = report.metrics["m2"]
    assert report.verdict == m2.verdict == "residual"
    assert m2.layer == "second"
    assert "at second" in m2.reason
    assert [one.layer for one in m2.layers] == ["first", "second", "last"]
    assert m2.layers[1].effect < 0.3 < 0.4 < m2.layers[0].effect
    assert report.metrics["loss"].layer is None
    assert report.provenance["layers"] == ["first", "second", "last"]


def test_memory_at_an_earlier_layer_alone_is_never_erased(build_world):
    given = make_layers(build_world, (0.5, 0.0, 0.0))
    assert audit(**given, settings=FAST).verdict == "residual"
    last = {name: tuple(part["last"] for part in model) for name, model in given.items()}
    assert audit(**last, settings=FAST).verdict != "residual"


# odd but lawful input


@pytest.mark.parametrize("n_oracles", [1, 6])
@pytest.mark.parametrize("sizes", [(1, 30, 60), (2, 30, 2), (60, 30, 1), (4, 4, 4)])
def test_tiny_samples_are_answered(build_world, sizes, n_oracles):
    world = build_world(0, sizes=sizes)
    report = audit(
        world.model(3.0, gain=1.0),
        oracle=[world.model(gain=0.0) for _ in range(n_oracles)],
        original=world.model(3.0, gain=1.0),
        settings=replace(FAST, n_permutations=99),
    )
    assert report.verdict != "erased"
    assert report.to_dict()["verdict"] == report.verdict


@pytest.mark.parametrize(
    "kind", ["one column", "positive column", "zeros", "constant", "binary", "tiny", "huge", "ties"]
)
def test_degenerate_rows_are_answered_and_never_erased(kind):
    rng = np.random.default_rng(1)
    base = rng.normal(size=(200, 1 if "column" in kind else 5))
    change = {
        "one column": lambda rows: rows,
        "positive column": lambda rows: np.abs(rows) + 0.1,
        "zeros": lambda rows: 0.0 * rows,
        "constant": lambda rows: 0.0 * rows + 1.0,
        "binary": lambda rows: (rows > 0) * 1.0,
        "tiny": lambda rows: 1e-120 * rows,
        "huge": lambda rows: 1e120 * rows,
        "ties": lambda rows: np.round(rows),
    }[kind]
    models = [tuple(np.split(change(base + 0.1 * rng.normal(size=base.shape)), [40, 120])) for _ in range(3)]
    report = audit(models[0], oracle=models[1], original=models[2], settings=replace(FAST, n_permutations=99))
    assert report.verdict != "erased"
    if kind in ("tiny", "huge"):
        assert report.damage.similarity > 0.9
    assert report.to_dict()["verdict"] == report.verdict


# for privacy engineers


def test_epsilon_proves_nothing_where_nothing_leaks_and_something_where_all_does(build_world):
    settings = replace(FAST, n_permutations=99)
    found = []
    for seed in range(30):
        world = build_world(seed, sizes=(60, 80, 120))
        evidence = gather_evidence(world.model(gain=0.0), oracle=world.model(gain=0.0), settings=settings)
        found.append(measure_privacy(evidence, measure_contrasts(evidence)).epsilon)
    assert np.mean(np.array(found) == 0) >= 0.9
    world = build_world(0)
    evidence = gather_evidence(world.model(3.0, gain=5.0), oracle=world.model(gain=0.0), settings=settings)
    leak = measure_privacy(evidence, measure_contrasts(evidence))
    assert leak.epsilon > 0.5
    assert leak.true_positive_rate > 0.3
    assert leak.true_positive_interval[0] < leak.true_positive_rate < leak.true_positive_interval[1]


# what else a report holds


def test_values_are_the_papers_numbers_and_nulls_are_the_controls(make_world):
    unlearned, oracle = make_world(moved=0.3)
    original, _ = make_world(seed=0, moved=0.9)
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    expected = ruler.all_metrics(unlearned[0], unlearned[1], oracle[0], oracle[1], original[0])
    assert {name: report.metrics[name].value for name in expected} == pytest.approx(expected)
    held_out = ruler.all_metrics(unlearned[2], unlearned[1], oracle[2], oracle[1], original[2])
    assert {name: report.metrics[name].null for name in expected} == pytest.approx(held_out)
    for name in expected:
        one = report.metrics[name]
        assert one.difference == pytest.approx(one.value - one.null)
        assert one.interval[0] < one.value < one.interval[1]
        assert one.difference_interval[0] < one.difference < one.difference_interval[1]
        assert one.effect_interval[0] < one.effect <= one.effect_interval[1]


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


def test_an_oracle_of_another_width_is_audited_aligned(make_world):
    unlearned, oracle = make_world()
    wide = tuple(rows @ ortho_group.rvs(9, random_state=0)[:6] for rows in oracle)
    report = audit(unlearned, oracle=wide, settings=FAST)
    assert report.pairing.is_aligned
    assert np.isnan(report.metrics["m1"].plain_value)
    assert report.metrics["m1"].value > 0.9


def test_the_room_answers_as_the_function(make_world):
    unlearned, oracle = make_world()
    assert ruler.audit(unlearned, oracle=oracle, settings=FAST).verdict == "inconclusive"


def test_provenance_tells_arrays_apart(make_world):
    unlearned, oracle = make_world()
    arrays = audit(unlearned, oracle=oracle, settings=FAST).provenance["arrays"]
    assert arrays["unlearned"]["forget"]["shape"] == [150, 6]
    assert arrays["unlearned"]["forget"]["sha256"] != arrays["oracle"]["forget"]["sha256"]


def test_distributions_are_thinned_for_plots_and_hold_curves(build_world):
    given = make_cleared(build_world)
    found = audit(**given | {"settings": replace(FAST, n_plotted=50)}).distributions
    assert set(found.scores) == set(found.roc) == set(DECIDING)
    assert {side: len(rows) for side, rows in found.scores["m4"].items()} == dict.fromkeys(
        ("forget", "retain", "held_out"), 50
    )
    assert found.rank_counts["forget"].sum() == 150
    for false, true in found.roc.values():
        assert (np.diff(false) >= 0).all()
        assert (np.diff(true) >= 0).all()
        assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
