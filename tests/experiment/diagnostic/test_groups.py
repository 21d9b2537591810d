"""Whole groups in the forget role are ranked as M4's definition says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ruler.experiment.diagnostic import groups as module
from ruler.experiment.diagnostic.groups import (
    compare_with_placebos,
    draw_sets,
    find_group_neighbors,
    find_p_value,
    rank_set,
)
from ruler.metrics import m4


@given(seed=st.integers(0, 10_000), n_groups=st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_a_set_ranks_as_m4_of_it_against_all_others(seed: int, n_groups: int) -> None:
    rng = np.random.default_rng(seed)
    rows, owners = rng.normal(size=(40, 5)), np.arange(40) % (n_groups + 1)
    is_chosen = owners < n_groups // 2 + 1
    around = find_group_neighbors(rows, owners)
    assert rank_set(around, is_chosen) == pytest.approx(m4(rows[is_chosen], rows[~is_chosen]), abs=1e-12)


@pytest.mark.parametrize("most_paired", [0, 60])
def test_a_group_that_fills_all_known_neighbours_is_searched_again(
    monkeypatch: pytest.MonkeyPatch, most_paired: int
) -> None:
    monkeypatch.setattr(module, "_NEIGHBOURS", 3)
    monkeypatch.setattr(module, "_MOST_PAIRED", most_paired)
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(30, 4)) + 9, rng.normal(size=(30, 4))])
    is_chosen = np.arange(60) < 30
    found = rank_set(find_group_neighbors(rows, is_chosen), is_chosen)
    assert found == pytest.approx(m4(rows[:30], rows[30:]), abs=1e-12)


def test_sets_take_whole_groups_and_about_as_many_records() -> None:
    owners = np.repeat(np.arange(20), np.arange(1, 21))
    for chosen in draw_sets(owners, 30):
        assert not set(owners[chosen]) & set(owners[~chosen])
        assert 30 <= chosen.sum() < 30 + 20


def test_pairs_are_pairs_whatever_they_hold() -> None:
    owners = np.repeat(np.arange(20), np.arange(1, 21))
    pairs = [tuple(np.unique(owners[chosen])) for chosen in draw_sets(owners, 30, n_groups=2)]
    assert {len(pair) for pair in pairs} == {2}
    assert len(set(pairs)) > 100  # of 190
    assert next(draw_sets(np.array([1, 1, 2]), 30, n_groups=2)).sum() < 3  # something stays for the gallery


def test_an_ordinary_set_is_ordinary_and_a_strange_one_is_found() -> None:
    rng = np.random.default_rng(1)
    rows, owners = rng.normal(size=(400, 6)), np.repeat(np.arange(40), 10)
    around = find_group_neighbors(rows, owners)
    ordinary = compare_with_placebos(rank_set(around, owners == 3), around, 10, n_groups=1)
    assert ordinary["m4_placebo_low"] <= 0.5 <= ordinary["m4_placebo_high"]
    assert ordinary["m4_placebo_p"] > 0.05
    assert compare_with_placebos(1.0, around, 10, n_groups=1)["m4_placebo_p"] == pytest.approx(1 / 41)


@given(st.lists(st.integers(0, 40), min_size=3, max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_p_value_is_small_no_more_often_than_it_says(values: list[int]) -> None:
    pool = np.array(values, dtype=float)
    p_values = np.array([find_p_value(value, np.delete(pool, place)) for place, value in enumerate(pool)])
    for level in p_values:
        assert (p_values <= level).mean() <= level + 1e-9
