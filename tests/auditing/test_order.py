"""Which rows an audit takes, and in what order, follows from their content."""

import math

import numpy as np
import pytest

from ruler.auditing.evidence import N_MEMBERS
from ruler.auditing.order import choose_members, draw_reference, hash_content, match_strata, order_rows
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import InputError
from ruler.metrics.paper import rank_within


def test_content_decides_whatever_the_dtype_and_layout():
    rows = np.random.default_rng(2).normal(size=(7, 3)).astype(np.float32)
    keys = hash_content(rows)
    assert np.array_equal(hash_content(np.asfortranarray(rows.astype(np.float64))), keys)
    assert np.array_equal(hash_content(rows[::-1]), keys[::-1])
    assert np.array_equal(hash_content(np.zeros((1, 2))), hash_content(-np.zeros((1, 2))))
    assert len(np.unique(hash_content(rows[:, ::-1]))) == 7
    assert not np.intersect1d(hash_content(rows[:, ::-1]), keys).size


def test_small_whole_numbers_do_not_collide():
    grid = np.stack(np.meshgrid(*[np.arange(6.0)] * 4), axis=-1).reshape(-1, 4)
    assert len(np.unique(hash_content(grid))) == len(grid)


def test_keys_of_rows_are_those_of_earlier_versions():
    """The order of the records, and with it every random draw, follows from them."""
    assert hash_content(np.array([[1.0, -2.0], [0.5, 3.0]])).tolist() == [10234146174298526822, 2114998541726668355]


def test_the_bound_holds_as_often_as_it_says():
    rng = np.random.default_rng(0)
    retain, forget = rng.normal(size=2000), rng.normal(0.3, size=50)
    exact = rank_within(forget, retain).mean()
    keys = rng.permutation(2000).astype(np.uint64)
    bound = math.sqrt(math.log(2 / 0.05) / 400)
    drawn = [draw_reference(keys, AuditSettings(n_reference=200, seed=seed)) for seed in range(400)]
    errors = np.array([abs(rank_within(forget, retain[rows]).mean() - exact) for rows in drawn])
    assert (errors > bound).mean() <= 0.05
    assert errors.max() > bound / 4  # a bound that says something


def test_rows_of_one_content_are_told_apart_by_group_and_then_by_id():
    keys = np.array([5, 5, 5, 1], dtype=np.uint64)
    ids, groups = np.array(["d", "c", "b", "a"]), np.array(["y", "x", "y", "x"])
    assert order_rows(keys, ids, groups).tolist() == [3, 1, 2, 0]
    assert order_rows(keys, ids, None).tolist() == [3, 2, 1, 0]


def test_another_order_of_the_rows_gives_the_same_records():
    rng = np.random.default_rng(0)
    keys, ids = rng.integers(0, 4, 30).astype(np.uint64), np.array([f"record {row}" for row in range(30)])
    turn = rng.permutation(30)
    assert np.array_equal(ids[order_rows(keys, ids, None)], ids[turn][order_rows(keys[turn], ids[turn], None)])


def test_strata_stand_in_the_forget_sets_proportions_in_the_given_order():
    strata = {"forget": np.array(["a", "b", "b"]), "held_out": np.array(["b", "a", "c", "b", "a", "b", "b"])}
    kept = match_strata(strata, {}, np.array([6, 5, 4, 3, 2, 1, 0]))
    assert kept.tolist() == [6, 5, 4, 3, 1, 0]  # two of a to four of b; c is not asked for
    assert match_strata(strata, {}, np.array([3, 1, 0])).tolist() == [3, 1, 0]


def test_groups_are_matched_whole():
    strata = {"forget": np.array(["a", "b"]), "held_out": np.array(["a", "a", "b", "b", "b"])}
    groups = {"held_out": np.array([1, 1, 2, 3, 3])}
    assert match_strata(strata, groups, np.arange(5)).tolist() == [0, 1, 2]  # one group each


@pytest.mark.parametrize(
    ("held_out", "groups", "message"),
    [
        (["b", "b"], {}, "held_out must hold records of every stratum of the forget set; got none of 'a'"),
        (["a", "b"], {"held_out": np.array(["x", "x"])}, "strata must be one per group; got several in held_out group"),
    ],
)
def test_strata_that_cannot_be_matched_are_refused(held_out, groups, message):
    with pytest.raises(InputError, match=message):
        match_strata({"forget": np.array(["a"]), "held_out": np.array(held_out)}, groups, np.arange(2))


def test_known_members_are_the_first_by_content():
    keys = np.arange(N_MEMBERS + 5, dtype=np.uint64)[::-1].copy()
    assert choose_members(keys, None).tolist() == list(range(5, N_MEMBERS + 5))
    assert choose_members(keys[:3], np.zeros(3, dtype=np.int64)).tolist() == [0, 1, 2]


def test_a_group_of_known_members_stays_whole_even_if_it_is_too_large():
    n = N_MEMBERS + 10
    keys, groups = np.arange(n, dtype=np.uint64), np.repeat([1, 0], [N_MEMBERS + 4, 6])
    assert choose_members(keys, groups).tolist() == list(range(N_MEMBERS + 4))


def test_a_reference_follows_from_content_and_seed_and_not_from_the_order():
    keys = np.random.default_rng(0).permutation(500).astype(np.uint64)
    settings = AuditSettings(n_reference=100, seed=3)
    drawn, turned = draw_reference(keys, settings), draw_reference(keys[::-1].copy(), settings)
    assert sorted(keys[drawn]) == sorted(keys[::-1][turned])
    assert draw_reference(keys[:100], settings) is None


def test_the_first_group_in_several_strata_is_named():
    strata = {"forget": np.array(["a"]), "held_out": np.array(["a", "a", "a", "b"])}
    with pytest.raises(InputError, match=r"got several in held_out group .*'y'"):
        match_strata(strata, {"held_out": np.array(["x", "x", "y", "y"])}, np.arange(4))
