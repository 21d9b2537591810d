"""Each guard fires on its planted fault, and all of them are silent on sound evidence."""

import re

import numpy as np
import pytest

from ruler.auditing.gather import gather_evidence
from ruler.auditing.guards import GUARDS, run_guards
from ruler.auditing.guards.models import check_retain_accuracy, check_stability
from ruler.auditing.settings import AuditSettings
from ruler.core.types import Embeddings

N_FORGET, N_RETAIN, N_HELD_OUT, WIDTH = 40, 300, 80, 16


def cut(rows, sizes=(N_FORGET, N_RETAIN, N_HELD_OUT)):
    """Forget, retain and held-out rows, one after the other."""
    return tuple(np.split(rows, np.cumsum(sizes))[: len(sizes)])


def make_models(rng, inputs, *, width=WIDTH, noise=0.05):
    """Three seed-paired ReLU layers over the same inputs, of which two are a little further on."""
    weights = rng.normal(size=(inputs.shape[1], width))
    bias = rng.normal(size=width)
    steps = {"unlearned": noise, "oracle": noise, "original": noise}
    return {
        name: np.maximum(inputs @ (weights + step * rng.normal(size=weights.shape)) + bias + 1.0, 0.0)
        for name, step in steps.items()
    }


@pytest.fixture
def models(random):
    rows = make_models(random, random.normal(size=(N_FORGET + N_RETAIN + N_HELD_OUT, 10)))
    return {name: cut(value) for name, value in rows.items()}


def guards_of(models, **options):
    return run_guards(gather_evidence(models.pop("unlearned"), **models, **options))


def names_of(models, **options):
    return [(finding.name, finding.severity) for finding in guards_of(models, **options)]


def test_sound_evidence_gives_no_finding(models):
    assert guards_of(models) == []


SOUND_KINDS = ("gaussian", "relu", "discrete", "grouped", "placebo", "few", "wide", "one_model", "float32", "named")


def make_sound(kind, seed):
    """Arguments of an audit without a fault, of this kind."""
    rng = np.random.default_rng([SOUND_KINDS.index(kind), seed])
    sizes = (30, 60, 100) if kind == "few" else (N_FORGET, N_RETAIN, N_HELD_OUT)
    if kind == "discrete":
        levels = rng.integers(2, 5)
        inputs = rng.integers(0, levels, size=(sum(sizes), 4)).astype(float)
    else:
        inputs = rng.normal(size=(sum(sizes), 10))
    if kind == "grouped":
        inputs = np.repeat(inputs[::2], 2, axis=0) + 0.1 * rng.normal(size=inputs.shape)
    if kind == "gaussian":
        base = rng.normal(size=(sum(sizes), WIDTH))
        rows = {m: base + 0.1 * rng.normal(size=base.shape) for m in ("unlearned", "oracle", "original")}
    else:
        rows = make_models(rng, inputs, width=96 if kind == "wide" else WIDTH)
    if kind == "float32":
        rows = {name: value.astype(np.float32) for name, value in rows.items()}
    models = {name: cut(value, sizes) for name, value in rows.items()}
    options = {}
    if kind == "placebo":
        models = {name: sides[:2] for name, sides in models.items()}
    if kind == "one_model":
        models = {"unlearned": models["unlearned"]}
    if kind == "grouped":
        labels = cut(np.arange(sum(sizes)) // 2 * 7)
        options["groups"] = dict(zip(("forget", "retain", "held_out"), labels, strict=True))
        options["settings"] = AuditSettings(margin=0.15)
    if kind == "named":
        names = cut(rng.permutation(sum(sizes)), sizes)
        models = {m: tuple(map(Embeddings, sides, names)) for m, sides in models.items()}
    return models, options


@pytest.mark.parametrize("kind", SOUND_KINDS)
def test_all_guards_are_silent_on_sound_inputs(kind):
    for seed in range(10):  # ten kinds, a hundred inputs
        models, options = make_sound(kind, seed)
        assert guards_of(models, **options) == []


def test_ids_in_another_order_fail(models):
    names = np.array([f"record {row}" for row in range(N_FORGET)])
    order = np.arange(N_FORGET)
    order[[3, 5]] = [5, 3]
    for model, ids in (("unlearned", names), ("oracle", names[order])):
        forget, *others = models[model]
        models[model] = (Embeddings(forget, ids), *others)
    (finding,) = guards_of(models)
    assert (finding.name, finding.severity) == ("ids_differ", "fail")
    assert "unlearned and oracle hold different forget records: 2 of 40 ids differ" in finding.message
    assert "row 3: 'record 3' and 'record 5'" in finding.message
    assert "Sort both by id" in finding.cure


def test_row_numbers_are_no_names_but_their_order_is_one(models):
    forget, *others = models["oracle"]
    models["unlearned"] = (Embeddings(models["unlearned"][0]), *models["unlearned"][1:])
    named = {**models, "oracle": (Embeddings(forget, [f"a{row}" for row in range(N_FORGET)]), *others)}
    shuffled = {**models, "oracle": (Embeddings(forget, np.roll(np.arange(N_FORGET), 1)), *others)}
    assert names_of(named) == []
    assert names_of(shuffled) == [("ids_differ", "fail")]


@pytest.mark.parametrize(("first", "second"), [("forget", "retain"), ("forget", "held_out"), ("retain", "held_out")])
def test_an_id_on_two_sides_fails(models, first, second):
    sizes = {"forget": N_FORGET, "retain": N_RETAIN, "held_out": N_HELD_OUT}
    ids = {side: np.array([f"{side} {row}" for row in range(n)]) for side, n in sizes.items()}
    ids[second][7] = ids[first][0]
    (finding,) = guards_of(models, ids=ids)
    assert (finding.name, finding.severity) == ("shared_ids", "fail")
    assert f"1 ids are both {first} and {second.replace('_', '-')} records: '{first} 0'" in finding.message


@pytest.mark.parametrize(("first", "second"), [("int64", "uint64"), ("int64", "float64"), ("uint32", "int64")])
def test_numbers_of_another_type_are_the_same_ids(models, first, second):
    ids = {
        "forget": np.arange(5000, 5000 + N_FORGET, dtype=first),
        "retain": np.arange(9000, 9000 + N_RETAIN, dtype=second),
    }
    ids["retain"][3] = 5001
    assert ("shared_ids", "fail") in names_of(models, ids=ids)


def test_large_numbers_that_round_alike_are_different_ids(models):
    first, second = 2**62 + np.arange(N_FORGET), 2**62 + 1000 + np.arange(N_RETAIN)
    assert names_of(models, ids={"forget": first, "retain": second.astype(np.uint64)}) == []


def test_row_numbers_on_two_sides_share_nothing(models):
    assert names_of(models, ids=np.arange(100, 100 + N_FORGET)) == []


def test_repeated_ids_warn(models):
    ids = np.arange(1000, 1000 + N_FORGET)
    ids[:3] = 1003
    (finding,) = guards_of(models, ids=ids)
    assert (finding.name, finding.severity) == ("repeated_ids", "warn")
    assert "1003 names 4" in finding.message


def test_hostile_ids_are_cut_in_messages(models):
    ids = {
        "forget": np.array([f"{row}" + "x" * 10_000 for row in range(N_FORGET)]),
        "held_out": np.array(["0" + "x" * 10_000] * N_HELD_OUT),
    }
    assert all(len(finding.message) < 300 for finding in guards_of(models, ids=ids))


@pytest.mark.parametrize(("first", "second"), [("forget", "retain"), ("forget", "held_out"), ("retain", "held_out")])
def test_a_group_on_two_sides_fails(models, first, second):
    sizes = {"forget": N_FORGET, "retain": N_RETAIN, "held_out": N_HELD_OUT}
    groups = {side: np.array([f"{side} {row}" for row in range(n)]) for side, n in sizes.items()}
    groups[second][:2] = groups[first][0]
    (finding,) = guards_of(models, groups=groups)
    assert (finding.name, finding.severity) == ("shared_groups", "fail")
    assert "whole groups" in finding.cure


def test_a_model_that_was_not_unlearned_warns_and_stays_valid(models):
    models["unlearned"] = tuple(rows.copy() for rows in models["original"])
    assert names_of(models) == [("identical_to_original", "warn")]


def test_a_model_that_is_the_oracle_warns(models):
    models["unlearned"] = tuple(2.0 * rows for rows in models["oracle"])
    assert names_of(models) == [("identical_to_oracle", "warn")]


def test_an_oracle_that_is_the_original_fails(models):
    models["oracle"] = models["original"]
    assert names_of(models) == [("oracle_is_original", "fail")]


def test_models_that_agree_on_retain_records_alone_are_not_the_same(models):
    models["unlearned"] = (models["unlearned"][0], models["original"][1], models["unlearned"][2])
    assert names_of(models) == []


def test_other_norms_or_losses_make_another_model(models):
    longer = {**models, "unlearned": (1.3 * models["oracle"][0], *models["oracle"][1:])}
    assert "identical_to_oracle" not in [name for name, _ in names_of(longer)]
    head = {
        name: tuple(Embeddings(rows, losses=np.full(len(rows), loss)) for rows in models["oracle"])
        for name, loss in (("unlearned", 0.1), ("oracle", 0.7))
    }
    assert "identical_to_oracle" not in [name for name, _ in names_of(head)]


def test_all_zero_rows_do_not_hide_sameness(models):
    for name in ("unlearned", "original"):
        models[name] = tuple(rows.copy() for rows in models["original"])
        models[name][0][0] = 0.0
    assert ("identical_to_original", "warn") in names_of(models)


@pytest.mark.parametrize("align", ["auto", "never"])
def test_an_oracle_from_another_seed_warns(models, random, align):
    turn = np.linalg.qr(random.normal(size=(WIDTH, WIDTH)))[0]
    models["oracle"] = tuple(rows @ turn for rows in models["oracle"])
    (finding,) = guards_of(models, settings=AuditSettings(align=align))
    assert (finding.name, finding.severity) == ("unpaired_oracle", "warn")
    assert ("the aligned M1 to M3 are used" in finding.message) == (align == "auto")


def test_an_oracle_of_another_width_warns(models):
    models["oracle"] = tuple(np.hstack([rows, np.zeros((len(rows), 3))]) for rows in models["oracle"])
    (finding,) = guards_of(models)
    assert (finding.name, finding.severity) == ("unpaired_oracle", "warn")
    assert "another width" in finding.message


@pytest.mark.parametrize(("n_copied", "severity"), [(1, "warn"), (10, "warn"), (35, "fail")])
def test_forget_records_in_the_retain_set(models, n_copied, severity):
    for forget, retain, _ in models.values():
        retain[:n_copied] = forget[:n_copied]
    finding, *_ = guards_of(models, ids=np.arange(500, 500 + N_FORGET))
    assert (finding.name, finding.severity) == ("duplicates", severity)
    assert f"{n_copied} of 40 forget records are identical" in finding.message
    assert "the first is 500" in finding.message


def test_nearly_identical_forget_records_warn(models, random):
    for forget, retain, _ in models.values():
        retain[:5] = forget[:5] * (1 + 1e-5 * random.normal(size=(5, WIDTH)))
    assert names_of(models) == [("near_duplicates", "warn")]


def test_rows_that_fell_together_in_one_model_are_no_duplicates(models):
    forget, retain, _ = models["unlearned"]
    retain[:5] = forget[:5]
    assert names_of(models) == []


def test_copies_beyond_those_of_a_discrete_table_warn(random):
    inputs = random.integers(0, 4, size=(N_FORGET + N_RETAIN + N_HELD_OUT, 6)).astype(float)
    models = {name: cut(rows) for name, rows in make_models(random, inputs).items()}
    assert names_of(dict(models)) == []
    for forget, retain, _ in models.values():
        retain[:20] = forget[:20]
    (finding,) = [finding for finding in guards_of(models) if finding.name == "duplicates"]
    assert "among retain records" in finding.message


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("n_copied", "severity"), [(2, "warn"), (30, "fail")])
def test_held_out_records_that_were_trained_on(models, side, n_copied, severity):
    for sides in models.values():
        sides[2][:n_copied] = sides[side][:n_copied]
    (finding,) = [finding for finding in guards_of(models) if finding.name == "held_out_overlap"]
    assert finding.severity == severity
    assert (
        f"{n_copied} of 80 held-out records are identical to a {('forget', 'retain')[side]} record" in finding.message
    )


@pytest.mark.parametrize("model", ["unlearned", "oracle", "original"])
def test_one_direction_is_a_collapse(models, model, random):
    models[model] = tuple(1.0 + 1e-4 * random.normal(size=rows.shape) for rows in models[model])
    found = [finding for finding in guards_of(models) if finding.name == "collapsed"]
    # beside an oracle, an unlearned model that collapsed is damaged, and the evidence is sound
    assert [finding.severity for finding in found] == ["warn" if model == "unlearned" else "fail"]
    assert f"one direction in the {model} model: their effective rank is 1.0000." in found[0].message


def test_two_opposite_classes_are_a_doubt_not_a_collapse(models, random):
    models["unlearned"] = tuple(
        random.choice([-1.0, 1.0], size=(len(rows), 1)) + 1e-4 * random.normal(size=rows.shape)
        for rows in models["unlearned"]
    )
    (finding,) = [finding for finding in guards_of(models) if finding.name == "collapsed"]
    assert finding.severity == "warn"
    assert "lie on one line, in two opposite directions, in the unlearned model" in finding.message


@pytest.mark.parametrize(("share", "severity"), [(0.6, "warn"), (0.95, "fail")])
@pytest.mark.parametrize(("value", "what"), [(0.0, "all-zero rows"), (3.0, "one and the same row")])
def test_heaps_of_equal_rows_are_a_collapse(models, share, severity, value, what):
    models["unlearned"][1][: int(share * N_RETAIN)] = value
    (finding,) = [f for f in guards_of({"unlearned": models["unlearned"]}) if f.name == "collapsed"]
    assert finding.severity == severity
    assert f"{share:.0%} of the retain records are {what} in the unlearned model" in finding.message


@pytest.mark.parametrize(("n_forget", "severity"), [(2, "warn"), (10, "warn"), (20, "note")])
def test_a_forget_set_that_is_too_small_is_named(models, n_forget, severity):
    small = {name: (sides[0][:n_forget], *sides[1:]) for name, sides in models.items()}
    (finding,) = guards_of(small)
    assert (finding.name, finding.severity) == ("too_few_records", severity)
    assert f"{n_forget} forget records against 80 held-out ones are too few to show erasure" in finding.message
    assert "at least 32 forget records against as many control records as now" in finding.cure


@pytest.mark.parametrize("margin", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("n_held_out", [10, 40, 80])
def test_the_advised_number_is_enough(models, margin, n_held_out):
    models = {name: (sides[0][:3], sides[1], sides[2][:n_held_out]) for name, sides in models.items()}
    settings = AuditSettings(margin=margin)
    (finding,) = guards_of(models, settings=settings)
    n_needed = int(re.search(r"at least (\d+)", finding.cure)[1])
    n_control = n_held_out if finding.cure.count("as now") else n_needed
    spread = np.sqrt((n_needed + n_control + 1) / (12 * n_needed * n_control))
    assert 1.645 * spread == pytest.approx(margin, rel=0.1)
    assert 1.6448 * spread <= margin


def test_a_margin_decides_what_is_too_small(models):
    assert names_of(dict(models), settings=AuditSettings(margin=0.03)) == [("too_few_records", "note")]
    assert names_of(models, settings=AuditSettings(margin=0.2)) == []


def test_few_groups_are_few_however_many_records(models):
    (finding,) = guards_of(models, groups=np.arange(N_FORGET) // 20)
    assert (finding.name, finding.severity) == ("too_few_records", "warn")
    assert "2 forget groups against 80 held-out ones" in finding.message


def test_the_gravest_finding_comes_first(models):
    models["oracle"] = models["original"]
    small = {name: (sides[0][:5], *sides[1:]) for name, sides in models.items()}
    assert [severity for _, severity in names_of(small)] == ["fail", "warn"]


def test_every_guard_of_the_table_is_run(models):
    evidence = gather_evidence(models["unlearned"])
    assert len(GUARDS) == len(set(GUARDS)) == 14
    assert all(list(guard(evidence)) == [] for guard in GUARDS)


# are held-out records fair?


def find_unfair(models, **options):
    return [finding for finding in guards_of(models, **options) if finding.name == "not_exchangeable"]


def shift(models, amount, **beside):
    """Forget records that lie apart in every model, as those of a class do."""
    moved = {}
    for name, sides in models.items():
        rows = [side.copy() for side in sides]
        rows[0][:, 0] += amount * rows[0][:, 0].std()
        moved[name] = tuple(
            Embeddings(row, **{key: value[side] for key, value in beside.items()}) for side, row in enumerate(rows)
        )
    return moved


def test_forget_records_that_lie_apart_in_the_oracle_block_the_verdict(models):
    (finding,) = find_unfair(shift(models, 2.0))
    assert finding.blocks
    assert "differ before any memory" in finding.message
    assert "one oracle can neither clear nor accuse" in finding.message
    assert "drawn as the forget records were" in finding.cure
    assert "5 oracles" in finding.cure


def test_memory_of_the_unlearned_model_alone_is_no_unfairness(models):
    models["unlearned"] = shift({"unlearned": models["unlearned"]}, 5.0)["unlearned"]
    assert find_unfair(models) == []


def test_five_oracles_turn_it_into_a_note(models, random):
    moved = shift(models, 2.0)
    oracle = [tuple(part.values + 0.01 * random.normal(size=part.shape) for part in moved["oracle"]) for _ in range(5)]
    (finding,) = find_unfair(moved | {"oracle": oracle})
    assert (finding.severity, finding.blocks) == ("note", False)
    assert "the test against 5 oracles allows for it" in finding.message
    (finding,) = find_unfair(moved | {"oracle": oracle[:4]})
    assert finding.blocks


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


# swapped sides


def test_more_to_forget_than_to_keep_warns(models):
    swapped = {name: (sides[1], sides[0], sides[2]) for name, sides in models.items()}
    found = {finding.name: finding for finding in guards_of(swapped)}
    assert found["swapped_sides"].severity == "warn"
    assert "more forget records (300) than retain records (40)" in found["swapped_sides"].message


def test_an_oracle_that_knows_the_forget_records_and_not_the_retain_records_fails(models, random):
    losses = [random.random(n) for n in (N_FORGET, N_RETAIN, N_HELD_OUT)]
    losses[1] *= 0.1  # what the oracle was trained on
    known = shift(models, 0.0, losses=losses)
    assert [finding.name for finding in guards_of(dict(known))] == []
    swapped = {name: (sides[1], sides[0], sides[2]) for name, sides in known.items()}
    assert ("swapped_sides", "fail") in names_of(swapped)


# levels that no test can reach


@pytest.mark.parametrize(("n_forget", "n_held_out", "n_needed"), [(1, 20, 39), (2, 5, 8), (3, 3, 5)])
def test_too_few_units_for_the_level_block_the_verdict(models, n_forget, n_held_out, n_needed):
    few = {name: (sides[0][:n_forget], sides[1], sides[2][:n_held_out]) for name, sides in models.items()}
    (finding,) = [finding for finding in guards_of(few) if finding.name == "unattainable_level"]
    assert finding.blocks
    assert f"Give at least {n_needed} held-out records." == finding.cure
    enough = {name: (sides[0][:n_forget], sides[1], sides[2][:n_needed]) for name, sides in models.items()}
    assert "unattainable_level" not in [finding.name for finding in guards_of(enough)]


def test_a_level_beyond_reach_asks_for_more_to_forget(models):
    few = {name: (sides[0][:1], *sides[1:]) for name, sides in models.items()}
    found = guards_of(few, settings=AuditSettings(alpha=1e-6))
    assert "Give more forget records." in [finding.cure for finding in found]


def test_embeddings_that_change_between_calls_fail(random):
    rows = random.normal(size=(20, 4)).astype(np.float32)
    again = rows.copy()
    again[3] += 1e-3
    (finding,) = check_stability(rows, again, "oracle")
    assert (finding.name, finding.severity) == ("unstable_embeddings", "fail")
    assert "1 of 20 forget records differ" in finding.message
    for seed in range(100):
        sound = np.random.default_rng(seed).normal(size=(20, 4)).astype(np.float32)
        assert list(check_stability(sound, sound * (1 + 1e-7), "oracle")) == []


@pytest.mark.parametrize("reference", ["oracle", "original"])
def test_lost_retain_accuracy_warns(reference):
    outputs = {"unlearned": {"retain_accuracy": 0.80}, reference: {"retain_accuracy": 0.97}}
    (finding,) = check_retain_accuracy(outputs, 400)
    assert (finding.name, finding.severity) == ("retain_accuracy_lost", "warn")
    assert f"80.0% of the retain records, the {reference} on 97.0%" in finding.message


def test_accuracy_within_chance_is_not_lost(random):
    assert list(check_retain_accuracy({"unlearned": {"retain_accuracy": 0.1}}, 400)) == []
    for _ in range(100):
        accuracy = random.uniform(0.6, 0.99)
        drawn = {name: {"retain_accuracy": random.binomial(400, accuracy) / 400} for name in ("unlearned", "oracle")}
        assert list(check_retain_accuracy(drawn, 400)) == []
