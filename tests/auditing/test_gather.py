"""From what a user gives to checked evidence."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.cases import FAST, QUICK, ROWS, SOUND

from ruler.auditing import AuditSettings, audit, audit_evidence, gather_evidence
from ruler.core.errors import FileFormatError, InputError
from ruler.core.stacked import StackedRows
from ruler.core.types import Embeddings


@pytest.mark.parametrize("wrong", [ROWS, (ROWS,), (ROWS, ROWS, ROWS, ROWS), (ROWS, None)])
def test_a_model_is_a_tuple_of_two_or_three_sides(wrong):
    with pytest.raises(InputError, match=r"unlearned must be a tuple \(forget, retain\) or"):
        gather_evidence(wrong)


def test_faults_name_model_and_side():
    broken = ROWS[20:].copy()
    broken[3, 0] = np.nan
    with pytest.raises(InputError, match=r"oracle held_out must be finite; .* in 1 rows, the first is row 3"):
        gather_evidence(SOUND, oracle=(*SOUND[:2], broken))


def test_sides_of_a_model_share_a_width():
    with pytest.raises(InputError, match="unlearned forget and unlearned retain must have the same number of columns"):
        gather_evidence((ROWS[:5], ROWS[5:, :2]))


def test_models_share_their_records():
    with pytest.raises(InputError, match="unlearned retain and original retain must have the same shape"):
        gather_evidence(SOUND, original=(ROWS[:5], ROWS[5:19], ROWS[20:]))


def name_rows(**what):
    return tuple(Embeddings(np.random.default_rng(seed).normal(size=(9, 3)), **what) for seed in range(2))


def test_sides_of_a_model_share_a_layer_where_it_is_known():
    forget, retain = name_rows(layer="fc:input")
    gather_evidence((forget, retain.values))
    gather_evidence((forget, retain), oracle=name_rows(layer="module.fc:input"))
    with pytest.raises(
        InputError, match=r"unlearned forget and unlearned retain .* same layer; got 'fc:input' and 'c'"
    ):
        gather_evidence((forget, replace(retain, layer="c")))
    with pytest.raises(InputError, match=r"oracle forget and oracle retain .* same layer; got 'fc:input' and 'c'"):
        gather_evidence((forget, retain), oracle=(forget, replace(retain, layer="c")))


def test_sides_of_a_model_share_their_columns_and_models_their_order():
    forget, retain = name_rows(columns=("a", "b", "c"))
    gather_evidence((forget, retain), oracle=name_rows(columns=("u", "v", "w")))
    with pytest.raises(InputError, match=r"unlearned forget and unlearned retain .* got 'b' and 'c' in place 1"):
        gather_evidence((forget, replace(retain, columns=("a", "c", "b"))))
    with pytest.raises(InputError, match=r"unlearned forget and oracle forget .* got 'a' and 'c' in place 0"):
        gather_evidence((forget, retain), oracle=name_rows(columns=("c", "b", "a")))
    with pytest.raises(InputError, match=r"unlearned retain and oracle forget .* got 'a' and 'c' in place 0"):
        gather_evidence((replace(forget, columns=None), retain), oracle=name_rows(columns=("c", "b", "a")))


def test_another_width_needs_an_oracle_to_align():
    wide = tuple(np.hstack([rows, rows]) for rows in SOUND)
    with pytest.raises(InputError, match="unlearned forget and oracle forget must have the same shape"):
        gather_evidence(SOUND, oracle=wide, settings=AuditSettings(align="never"))
    assert gather_evidence(SOUND, oracle=wide).pairing.is_aligned


@pytest.mark.parametrize("swapped", [True, False])
def test_held_out_goes_for_all_models_or_none(swapped):
    first, second = (SOUND, SOUND[:2]) if swapped else (SOUND[:2], SOUND)
    with pytest.raises(InputError, match="held_out must be given for every model or for none"):
        gather_evidence(first, oracle=second)


def test_one_retain_row_is_too_few():
    with pytest.raises(InputError, match="unlearned retain must have at least 2 rows; got 1"):
        gather_evidence((ROWS[:5], ROWS[5:6]))


def test_groups_and_ids_fit_their_side():
    with pytest.raises(InputError, match=r"groups of forget must be one per record, shape \(5,\); got shape \(4,\)"):
        gather_evidence(SOUND, groups=["a"] * 4)
    with pytest.raises(InputError, match="ids must be keyed by forget, retain, held_out; got 'test'"):
        gather_evidence(SOUND, ids={"test": range(5)})


def test_ids_come_from_the_argument_then_from_the_embeddings_then_from_the_rows():
    named = (Embeddings(ROWS[:5], ids=list("abcde")), ROWS[5:20], ROWS[20:])
    evidence = gather_evidence(named)
    assert evidence.ids["forget"].tolist() == np.array(list("abcde"))[evidence.order].tolist()
    assert sorted(evidence.ids["retain"]) == list(range(15))
    assert evidence.claimed_ids["unlearned"]["forget"].tolist() == list("abcde")
    assert evidence.named == {"forget"}
    other = gather_evidence(named, ids=list("vwxyz"))
    assert other.ids["forget"].tolist() == np.array(list("vwxyz"))[other.order].tolist()


def test_mixed_labels_become_text():
    evidence = gather_evidence(SOUND, groups=["a", 1, "a", 1.5, 2])
    given = evidence.groups["forget"][np.argsort(evidence.order)]
    assert given.tolist() == ["a", "1", "a", "1.5", "2"]


def test_records_stand_in_an_order_of_their_content():
    rng = np.random.default_rng(1)
    beside = {"labels": np.arange(5), "groups": np.arange(5), "strata": np.zeros(5)}
    first = gather_evidence((Embeddings(ROWS[:5], **beside), *map(Embeddings, SOUND[1:])))
    turn = rng.permutation(5)
    moved = {name: values[turn] for name, values in beside.items()}
    second = gather_evidence((Embeddings(ROWS[:5][turn], **moved), *map(Embeddings, SOUND[1:])))
    assert np.array_equal(first.main.rows["forget"], second.main.rows["forget"])
    for name in ("labels", "groups"):
        assert np.array_equal(getattr(first, name)["forget"], getattr(second, name)["forget"])
    assert np.array_equal(first.main.rows["forget"], ROWS[:5][first.order])
    assert np.array_equal(first.groups["forget"], first.order)


@pytest.mark.parametrize("kind", ["array", "columns first", "mapped", "stacked"])
def test_rows_are_put_in_order_whatever_holds_them(kind, tmp_path):
    rows = np.random.default_rng(5).normal(size=(900, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    held = {
        "array": rows,
        "columns first": np.asfortranarray(rows),
        "mapped": np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "stacked": StackedRows(np.array_split(rows, 3)),
    }[kind]
    evidence = gather_evidence((ROWS[:5, :1].repeat(4, axis=1), held))
    ordered = evidence.main.rows["retain"]
    np.testing.assert_array_equal(ordered, rows[evidence.ids["retain"]])
    assert not np.array_equal(ordered, rows)
    assert type(ordered) is np.ndarray


@pytest.mark.parametrize("kind", ["columns first", "part of wider rows"])
def test_rows_that_are_not_plain_are_put_in_order_without_a_second_copy(kind):
    rows = np.random.default_rng(5).normal(size=(3000, 1000))
    held = np.asfortranarray(rows) if kind == "columns first" else np.repeat(rows, 2, axis=1)[:, ::2]
    tracemalloc.start()
    try:
        evidence = gather_evidence((rows[:5], held))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(evidence.main.rows["retain"], rows[evidence.ids["retain"]])
    assert peak - kept < 0.8 * rows.nbytes


def test_losses_are_given_for_every_side_or_for_none():
    full = tuple(Embeddings(rows, losses=np.ones(len(rows))) for rows in SOUND)
    assert gather_evidence(full).has_losses
    assert gather_evidence(full, oracle=full).has_losses
    with pytest.raises(
        InputError, match=r"losses of unlearned must .* got them for forget, held_out but not for retain"
    ):
        gather_evidence((full[0], SOUND[1], full[2]))
    with pytest.raises(InputError, match="losses of oracle must be given for every side or for none"):
        gather_evidence(full, oracle=(full[0], *SOUND[1:]))


def test_strata_are_matched_in_the_forget_sets_proportions():
    strata = [np.repeat([0, 1], (4, 1)), np.zeros(15), np.repeat([0, 1, 2], (4, 4, 2))]
    model = tuple(Embeddings(rows, strata=one) for rows, one in zip(SOUND, strata, strict=True))
    evidence = gather_evidence(model)
    assert sorted(evidence.strata["held_out"]) == [0, 0, 0, 0, 1]
    assert evidence.n_unmatched == 5
    assert len(evidence.ids["held_out"]) == len(evidence.main.rows["held_out"]) == 5
    with pytest.raises(InputError, match=r"held_out must hold records of every stratum .* got none of (np.int64\()?1"):
        gather_evidence((*model[:2], replace(model[2], strata=np.zeros(10))))


def test_strata_go_by_whole_groups():
    strata = [np.repeat([0, 1], (3, 2)), np.zeros(15), np.repeat([0, 1], 5)]
    groups = {"forget": np.array([0, 0, 0, 1, 1]), "held_out": np.repeat(np.arange(10, 15), 2)}
    model = tuple(Embeddings(rows, strata=one) for rows, one in zip(SOUND, strata, strict=True))
    with pytest.raises(InputError, match="strata must be one per group; got several in held_out group"):
        gather_evidence(model, groups=groups)
    matched = (*model[:2], replace(model[2], strata=np.repeat([0, 1, 0, 1, 0], 2)))
    assert set(np.unique(gather_evidence(matched, groups=groups).groups["held_out"], return_counts=True)[1]) == {2}


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


def test_match_labels_needs_labels(build_world):
    with pytest.raises(InputError, match="match_labels must"):
        audit(build_world(0).model(), settings=AuditSettings(match_labels=True))


def shard(model, n_shards=7):
    """The same model with its retain records in shards."""
    return model[0], StackedRows(np.array_split(model[1], n_shards)), *model[2:]


def assert_same(one, other):
    assert (one.verdict, one.reason, one.guards) == (other.verdict, other.reason, other.guards)
    assert repr(one.metrics) == repr(other.metrics)
    assert one.records.equals(other.records)
    assert one.provenance["arrays"] == other.provenance["arrays"]


@pytest.mark.parametrize("has_held_out", [True, False])
def test_shards_give_the_report_of_the_joined_array(make_world, has_held_out):
    model, oracle = (world[: 2 + has_held_out] for world in make_world(nearer=0.3))
    model = (*model[:1], np.concatenate([model[1], model[1][:9]]), *model[2:])  # identical rows in different shards
    oracle = (*oracle[:1], np.concatenate([oracle[1], oracle[1][:9]]), *oracle[2:])
    whole = audit(model, oracle=oracle, original=model, settings=QUICK)
    assert_same(audit(shard(model), oracle=shard(oracle, 3), original=shard(model, 2), settings=QUICK), whole)


def test_shards_are_aligned_as_the_joined_array_is(make_world):
    model, oracle = make_world()
    turned = tuple(rows[:, ::-1] for rows in oracle)
    found = audit(shard(model), oracle=shard(turned), settings=QUICK)
    assert found.pairing.is_aligned
    assert_same(found, audit(model, oracle=turned, settings=QUICK))


def test_as_many_as_there_are_is_all_of_them(make_world):
    model, _ = make_world()
    assert gather_evidence(model, settings=replace(QUICK, n_reference=400)).main.reference is None


@pytest.mark.parametrize("size", [1, 7])
def test_known_members_are_at_most_two_thousand_in_whole_groups(size):
    rng = np.random.default_rng(0)
    forget, retain, held_out = np.split(rng.normal(size=(2340, 2)), [10, 2330])
    groups = None if size == 1 else {"retain": np.arange(2320) // size}
    evidence = gather_evidence((forget, retain, held_out), groups=groups)
    members = evidence.main.members
    assert len(members) == 2000 // size * size
    if size > 1:
        assert (np.unique(evidence.groups["retain"][members], return_counts=True)[1] == size).all()


# references

LOSSES = tuple(np.linspace(0.1, 2.0, len(rows)) for rows in SOUND)


def test_a_reference_may_be_a_model_losses_or_a_list_of_both():
    wide = tuple(np.hstack([rows, rows]) for rows in SOUND)  # a smaller or larger model
    model = tuple(Embeddings(rows, losses=losses) for rows, losses in zip(wide, LOSSES, strict=True))
    for reference, n, n_with_rows in ((model, 1, 1), (LOSSES, 1, 0), ([LOSSES, model], 2, 1), (None, 0, 0)):
        evidence = gather_evidence(SOUND, reference=reference)
        assert len(evidence.references) == n
        assert sum(bool(one[""].rows) for one in evidence.references) == n_with_rows
        for one in evidence.references:
            assert one[""].losses["forget"].tolist() == LOSSES[0][evidence.order].tolist()
    by_side = dict(zip(("forget", "retain", "held_out"), LOSSES, strict=True))
    assert gather_evidence(SOUND, reference=by_side).references[0][""].losses.keys() == by_side.keys()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (LOSSES[:2], r"losses of reference must be one per held_out record, shape \(10,\); got None"),
        ((LOSSES[0][:4], *LOSSES[1:]), r"losses of reference must be one per forget record, shape \(5,\); got \(4,\)"),
        ([LOSSES, (*LOSSES[:2], LOSSES[2] * np.nan)], "losses of reference 2 held_out must be finite"),
        (SOUND[:2], "held_out must be given for every model or for none; got it for unlearned but not for reference"),
        (tuple(rows[:3] for rows in SOUND), "unlearned forget and reference forget must have the same shape"),
        (ROWS, r"reference must be a tuple \(forget, retain\) or"),
    ],
)
def test_a_reference_must_be_of_the_same_records(reference, message):
    with pytest.raises(InputError, match=message):
        gather_evidence(SOUND, reference=reference)


def test_a_references_losses_have_a_part_in_the_order_of_the_records():
    twins = tuple(np.zeros((len(rows), 2)) + 1.0 for rows in SOUND)  # rows that nothing else tells apart
    first, second = (
        gather_evidence(twins, reference=LOSSES),
        gather_evidence(twins, reference=tuple(one[::-1] for one in LOSSES)),
    )
    found = [one.references[0][""].losses["forget"].tolist() for one in (first, second)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("labels", "is_class"),
    [
        (["ab", "ab" * 8, "ab" * 5], True),
        (["ac", "ab" * 8, "ab" * 5], False),  # a class that no retain record has
        ([[0.1, 0.2], np.arange(15) / 7, np.arange(10) / 7], False),  # numbers
        (["aa", "a" * 15, "a" * 10], False),
    ],
)
def test_labels_are_classes_if_retain_records_know_them(labels, is_class):
    sides = [SOUND[0][:2], SOUND[1], SOUND[2]]
    parts = tuple(
        Embeddings(rows, labels=np.array(list(own))[: len(rows)]) for rows, own in zip(sides, labels, strict=True)
    )
    evidence = gather_evidence(parts)
    assert (evidence.main.classes is not None) == is_class
    if is_class:
        names = np.array(["a", "b"])
        for side, codes in evidence.main.classes.items():
            assert names[codes].tolist() == evidence.labels[side].tolist()


def test_a_reference_may_be_a_folder_of_losses(tmp_path):
    rng = np.random.default_rng(0)
    sides = {"forget": 12, "retain": 40, "held_out": 30}
    losses = {side: rng.exponential(size=n) for side, n in sides.items()}
    for side, values in losses.items():
        np.save(tmp_path / f"{side}_losses.npy", values)
    unlearned = tuple(Embeddings(rng.normal(size=(n, 3)), losses=losses[side]) for side, n in sides.items())
    by_folder, by_arrays = (gather_evidence(unlearned, reference=given) for given in (tmp_path, tuple(losses.values())))
    for side in sides:
        one, other = (evidence.references[0][""].losses[side] for evidence in (by_folder, by_arrays))
        assert one.tolist() == other.tolist()
    np.save(tmp_path / "retain_losses.npy", np.array(["a"] * 40))
    with pytest.raises(FileFormatError, match="must hold numbers"):
        gather_evidence(unlearned, reference=tmp_path)
