"""The rules of the verdict, each on a world in which the truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import DECIDING, FAST, make_class, make_cleared, strip

import ruler
from ruler.auditing import GuardFinding, audit, audit_evidence, gather_evidence
from ruler.auditing.findings import Given
from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.rule import list_capable
from ruler.core.types import Embeddings


def count_flagged(report):
    return int((~report.records["finding"].isin([ALIKE, NOT_JUDGED])).sum())


# erased is earned


def test_nothing_left_of_what_the_original_shows_is_erased(build_world):
    report = audit(**make_cleared(build_world))
    assert (report.verdict, report.outputs.verdict, report.layers.verdict) == ("erased",) * 3
    assert report.needs == []
    assert {name: one.verdict for name, one in report.metrics.items()} == {
        **dict.fromkeys(("m1", "m3"), "descriptive"),
        **dict.fromkeys(("loss", "tangent"), "erased"),
        **dict.fromkeys(("m2", "m4", "norm"), "inconclusive"),  # they can accuse and do not
    }
    assert set(report.metrics["loss"].remaining) == {"original", "members"}
    for name in ("loss", "tangent"):
        capable = list_capable(report.metrics[name], 0.2)
        assert capable
        assert all(one.is_within(0.2) for one in capable)
    assert report.remaining in (report.outputs.remaining, report.layers.remaining)
    assert report.remaining.at_most < 0.2
    assert report.given == Given(oracle=1, original=True, held_out=True, losses=True)


def test_without_an_oracle_layers_are_not_judged(build_world):
    # many records: the loss alone must show the limit
    world = build_world(3, sizes=(600, 300, 900))
    given = {"unlearned": world.model(gain=0.0), "original": world.model(0.5, gain=1.5)}
    report = audit(**given, settings=FAST)
    assert sorted(report.metrics) == ["loss", "m4"]
    assert report.outputs.verdict == "erased"
    assert report.layers.verdict == report.verdict == "inconclusive"
    assert report.layers.remaining is None
    assert any(need.startswith("An oracle") for need in report.needs)
    narrower = audit(**given, settings=replace(FAST, scope="outputs"))
    assert narrower.verdict == "erased"
    assert narrower.remaining == narrower.outputs.remaining


def test_without_the_original_known_members_are_the_scale(build_world):
    world = build_world(1, sizes=(300, 600, 600))
    report = audit(world.model(gain=0.0), oracle=world.model(gain=0.0), settings=FAST)
    assert set(report.metrics["loss"].remaining) == {"members"}
    assert report.outputs.verdict == "erased"
    knows = audit(world.model(gain=1.0), oracle=world.model(gain=0.0), settings=FAST)
    assert knows.outputs.verdict == "residual"
    assert knows.outputs.remaining.value == pytest.approx(1.0, abs=0.2)


def test_a_wider_limit_clears_what_a_narrow_one_leaves_open(build_world):
    given = make_cleared(build_world)
    verdicts = [
        audit(**given | {"settings": replace(FAST, limit=limit, limit_chosen_by="me")}).verdict
        for limit in (0.02, 0.2, 0.6)
    ]
    assert verdicts == ["inconclusive", "erased", "erased"]


def test_what_both_scales_show_must_be_small(build_world):
    # an original whose answers are louder than training makes them shrinks its own scale, not that of the members
    world = build_world(2, sizes=(300, 600, 600))
    unlearned, oracle = world.model(gain=0.5), world.model(gain=0.0)
    loud = tuple(replace(part, losses=part.losses / 1e3) for part in world.model(0.5, gain=1.0)[:1])
    original = (*loud, *world.model(0.5, gain=1.0)[1:])
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    found = report.metrics["loss"].remaining
    assert found["original"].high < 0.5 < found["members"].high
    assert report.verdict == "residual"


def test_no_model_with_flagged_records_is_erased(build_world):
    world = build_world(2, sizes=(150, 400, 1600))
    memorised = np.where(np.arange(150) < 5, 3.0, 0.0)
    report = audit(
        world.model(memorised, gain=0.0),
        oracle=world.model(gain=0.0),
        original=world.model(0.5, gain=1.0),
        settings=replace(FAST, limit=0.4),
    )
    assert count_flagged(report) >= 4
    assert report.outputs.verdict == report.layers.verdict == "erased"
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
        settings=replace(FAST, limit=0.5),
    )
    assert count_flagged(report) == 0
    assert (~report.groups["finding"].isin([ALIKE, NOT_JUDGED])).sum() >= 3
    assert report.verdict != "erased"
    assert (report.groups["verdict"][:5] == "residual").sum() >= 3


def test_an_untouched_model_is_never_erased(build_world):
    evidence = gather_evidence(**make_cleared(build_world))
    doubt = GuardFinding("identical_to_original", "warn", "Nothing has been unlearned.", "Check it.")
    assert audit_evidence(evidence).verdict == "erased"
    report = audit_evidence(evidence, extra_guards=[doubt])
    assert report.verdict == "inconclusive"
    assert "nothing was unlearned" in report.reason
    world = build_world(1)
    model = world.model()
    assert audit(model, oracle=world.model(), original=model, settings=FAST).verdict != "erased"


def test_a_failed_guard_makes_the_audit_invalid_and_a_blocking_one_inconclusive(build_world):
    evidence = gather_evidence(**make_cleared(build_world))
    doubt = GuardFinding("stability", "fail", "Embeddings changed between two calls.", "Use eval mode.")
    report = audit_evidence(evidence, extra_guards=[doubt], answers={"unlearned": {"retain_accuracy": 0.9}})
    assert {report.verdict, *(report.metrics[name].verdict for name in DECIDING)} == {"invalid"}
    assert report.guards[0] is doubt
    assert report.answers["unlearned"]["retain_accuracy"] == 0.9
    assert (report.outputs.verdict, report.layers.verdict) == ("invalid", "invalid")
    blocked = audit_evidence(evidence, extra_guards=[replace(doubt, severity="warn", blocks=True)])
    assert {blocked.verdict, *(blocked.metrics[name].verdict for name in DECIDING)} == {"inconclusive"}
    assert blocked.needs[0] == "Use eval mode."


# what is left is seen, whatever its form


def test_what_the_original_shows_and_is_left_is_residual(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"unlearned": build_world(0).model(0.5, gain=0.0)})
    assert report.verdict == report.metrics["m2"].verdict == report.metrics["tangent"].verdict == "residual"
    assert (report.outputs.verdict, report.layers.verdict) == ("erased", "residual")
    assert report.remaining == report.layers.remaining
    assert report.remaining.value == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("memory", [{}, {"mark": 0.5, "gain": 1.0}])
def test_unfair_held_out_records_and_one_oracle_settle_nothing(build_world, memory):
    report = audit(**make_class(build_world, 0, 1, **memory))
    assert report.verdict == "inconclusive"
    assert "not_exchangeable" in [guard.name for guard in report.guards]
    assert "100% labelled '2'" in report.needs[0]
    assert "match_labels=True" in report.needs[0]
    assert "several oracles" in report.needs[0]
    assert "control='same-rule'" in report.needs[0]
    assert set(report.records["finding"]) == {NOT_JUDGED}


def test_of_unlike_records_the_same_rule_makes_a_fair_comparison(build_world):
    # forget and held-out records are of one class, which lies apart from the others in every model
    verdicts = set()
    for memory in ({}, {"mark": 0.5, "gain": 1.0}):
        given = make_class(build_world, 0, 1, **memory)
        held_out = {name: value for name, value in given.items() if name != "settings"}
        report = audit(**held_out, settings=replace(FAST, control="same-rule"))
        assert not any(guard.blocks for guard in report.guards)
        verdicts.add(report.verdict)
    assert "residual" in verdicts


def test_two_oracles_measure_their_own_chance(build_world):
    clean = [audit(**make_class(build_world, seed, 2)) for seed in range(20)]
    assert sum(one.verdict in ("residual", "displaced") for one in clean) <= 3
    for one in clean:
        assert np.isnan(one.metrics["loss"].spread.p_value)  # places only
        assert {guard.severity for guard in one.guards if guard.name == "not_exchangeable"} == {"note"}
        assert set(one.records["finding"]) == {NOT_JUDGED}
    assert audit(**make_class(build_world, 0, 5, gain=1.0)).outputs.verdict == "residual"


def test_a_reference_takes_the_place_of_an_oracle_for_what_the_model_says(build_world):
    # the base checkpoint: another model, whose losses follow the same records
    world = build_world(5, sizes=(200, 400, 300))
    world.hardness *= 3.0
    base = world.cut(world.lose())
    unlearned, original = world.model(gain=0.0), world.model(0.5, gain=1.0)
    alone = audit(unlearned, original=original, settings=FAST)
    helped = audit(unlearned, original=original, reference=base, settings=FAST)
    widths = [one.metrics["loss"].remaining["original"] for one in (alone, helped)]
    assert widths[1].high - widths[1].low < 0.6 * (widths[0].high - widths[0].low)
    assert helped.outputs.verdict == "erased"
    assert helped.given.reference == 1
    assert helped.layers.verdict == "inconclusive"  # of it only losses are known


def test_unfair_labels_settle_nothing_without_an_oracle(build_world):
    world = build_world(0)
    world.labels[:150] = 2
    world.hardness[:150] += 1.0
    report = audit(world.model(gain=0.0, labels=world.labels), settings=FAST)
    assert report.metrics["loss"].p_value <= 0.05
    assert report.verdict == "inconclusive"
    assert "match_labels=True" in report.needs[0]


def test_swapped_sides_are_noticed(build_world):
    given = make_cleared(build_world)
    swapped = {name: (model[1], model[0], model[2]) for name, model in given.items() if name != "settings"}
    report = audit(**swapped, settings=FAST)
    assert report.verdict == "invalid"
    assert report.guards[0].name == "swapped_sides"
    bare = {name: strip(model, "losses") for name, model in swapped.items()}
    assert "swapped_sides" in [guard.name for guard in audit(**bare, settings=FAST).guards]


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


@pytest.mark.parametrize(
    "kind", ["plain", "unpaired", "duplicates", "groups", "oracles", "labels", "sampled", "reference"]
)
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
    n_oracles = 3 if kind == "oracles" else 1
    given = {
        "unlearned": world.model(0.1, gain=0.1, **beside),
        "oracle": [world.model(gain=0.0, **beside) for _ in range(n_oracles)],
        "original": world.model(0.5, gain=1.0, **beside),
        "settings": replace(FAST, match_labels=kind == "labels", n_reference=100 if kind == "sampled" else None),
    }
    if kind == "unpaired":
        turn = ortho_group.rvs(6, random_state=0)
        given["oracle"] = [tuple(replace(part, values=part.values @ turn) for part in given["oracle"][0])]
    if kind == "reference":
        given["reference"] = [world.model(gain=0.0, **beside), world.model(gain=0.0, **beside)]
    plain = audit(**given)
    for seed in range(2):
        moved = audit(**reorder(given, seed))
        assert (repr(moved.outputs), repr(moved.layers)) == (repr(plain.outputs), repr(plain.layers))
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


def test_the_same_evidence_gives_the_same_report(build_world):
    first, second = (audit(**make_cleared(build_world)) for _ in range(2))
    assert repr(first.metrics) == repr(second.metrics)
    assert first.records.equals(second.records)


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


def test_the_room_answers_as_the_function(make_world):
    unlearned, oracle = make_world()
    assert ruler.audit(unlearned, oracle=oracle, settings=FAST).verdict == "inconclusive"


def test_provenance_tells_arrays_apart(make_world):
    unlearned, oracle = make_world()
    arrays = audit(unlearned, oracle=oracle, settings=FAST).provenance["arrays"]
    assert arrays["unlearned"]["forget"]["shape"] == [150, 6]
    assert arrays["unlearned"]["forget"]["sha256"] != arrays["oracle"]["forget"]["sha256"]
