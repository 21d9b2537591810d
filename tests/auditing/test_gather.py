from dataclasses import replace

import numpy as np
import pytest

from ruler.auditing import AuditSettings, gather_evidence
from ruler.core.errors import InputError
from ruler.core.types import Embeddings

ROWS = np.random.default_rng(0).normal(size=(30, 3))
SOUND = (ROWS[:5], ROWS[5:20], ROWS[20:])


@pytest.mark.parametrize("wrong", [ROWS, (ROWS,), (ROWS, ROWS, ROWS, ROWS), (ROWS, None)])
def test_a_model_is_a_tuple_of_two_or_three_sides(wrong):
    with pytest.raises(InputError, match=r"unlearned must be a tuple \(forget, retain\) or"):
        gather_evidence(wrong)


def test_faults_name_model_and_side():
    broken = ROWS[20:].copy()
    broken[3, 0] = np.nan
    with pytest.raises(InputError, match="oracle held_out must be finite; got NaN or inf in 1 rows"):
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
    with pytest.raises(InputError, match=r"groups of forget must be one a record, shape \(5,\); got shape \(4,\)"):
        gather_evidence(SOUND, groups=["a"] * 4)
    with pytest.raises(InputError, match="ids must be keyed by forget, retain, held_out; got 'test'"):
        gather_evidence(SOUND, ids={"test": range(5)})


def test_ids_come_from_the_argument_then_from_the_embeddings_then_from_the_rows():
    named = (Embeddings(ROWS[:5], ids=list("abcde")), ROWS[5:20], ROWS[20:])
    evidence = gather_evidence(named)
    assert evidence.ids["forget"].tolist() == list("abcde")
    assert evidence.ids["retain"].tolist() == list(range(15))
    assert evidence.claimed_ids["unlearned"]["forget"].tolist() == list("abcde")
    assert gather_evidence(named, ids=list("vwxyz")).ids["forget"].tolist() == list("vwxyz")


def test_mixed_labels_become_text():
    assert gather_evidence(SOUND, groups=["a", 1, "a", None, 2]).groups["forget"].tolist() == [
        "a",
        "1",
        "a",
        "None",
        "2",
    ]


def test_nearest_retain_leaves_a_retain_record_itself_out():
    nearest = gather_evidence(SOUND).nearest["unlearned"]
    assert (nearest["retain"].index[:, 0] != np.arange(15)).all()
    assert sorted(nearest) == ["forget", "held_out", "retain"]


def test_alignment_by_request():
    evidence = gather_evidence(SOUND, oracle=SOUND, settings=AuditSettings(align="always"))
    assert evidence.pairing.is_paired
    assert evidence.pairing.is_aligned
    assert len(evidence.oracle_scores["unlearned"].retain_rows) == 8
    assert gather_evidence(SOUND, oracle=SOUND).aligned_scores == {}
