"""Friedman and Nemenyi against Demsar's worked example (JMLR 7, 2006, tables 5 and 6) and closed forms."""

import math

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.stats.ranks import Ranking, rank_within_blocks

DEMSAR = [  # AUC of C4.5, C4.5+m, C4.5+cf, C4.5+m+cf on 14 datasets
    (0.763, 0.768, 0.771, 0.798), (0.599, 0.591, 0.590, 0.569), (0.954, 0.971, 0.968, 0.967),
    (0.628, 0.661, 0.654, 0.657), (0.882, 0.888, 0.886, 0.898), (0.936, 0.931, 0.916, 0.931),
    (0.661, 0.668, 0.609, 0.685), (0.583, 0.583, 0.563, 0.625), (0.775, 0.838, 0.866, 0.875),
    (1.000, 1.000, 1.000, 1.000), (0.940, 0.962, 0.965, 0.962), (0.619, 0.666, 0.614, 0.669),
    (0.972, 0.981, 0.9751, 0.975), (0.957, 0.978, 0.946, 0.970),
]  # fmt: skip


def test_the_published_example() -> None:
    found = rank_within_blocks(-np.array(DEMSAR))
    assert found.ranks.round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    assert found.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    # his chi-square of 9.28 lacks the correction for ties, which can only raise it
    assert 0.01 < found.p_value < 0.026


@pytest.mark.parametrize(("k", "q"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_published_critical_values(k: int, q: float) -> None:
    found = rank_within_blocks(np.random.default_rng(0).normal(size=(6, k)))
    assert found.critical_difference == pytest.approx(q * math.sqrt(k * (k + 1) / 36), abs=2e-3)


def test_groups_are_the_largest_sets_without_a_difference() -> None:
    ranks = np.array([4.0, 1.0, 2.0, 3.0, 9.0])
    assert Ranking(ranks, 5, 0.01, 2.0).list_groups() == [(1, 2, 3), (2, 3, 0)]
    assert Ranking(ranks, 5, 0.01, 20.0).list_groups() == [(1, 2, 3, 0, 4)]
    assert Ranking(ranks, 5, 0.01, 0.5).list_groups() == []
    assert Ranking(ranks, 1, math.nan, math.nan).list_groups() == []


def test_the_order_of_blocks_changes_nothing_and_that_of_methods_only_theirs() -> None:
    table = np.random.default_rng(1).normal(size=(7, 5))
    whole, turned = rank_within_blocks(table), rank_within_blocks(table[::-1, ::-1])
    assert turned.ranks.tolist() == whole.ranks[::-1].tolist()
    assert turned.p_value == pytest.approx(whole.p_value)


def test_what_cannot_be_told_is_no_number_and_ties_are_no_difference() -> None:
    assert math.isnan(rank_within_blocks([[1.0, 2.0]]).p_value)
    assert rank_within_blocks(np.ones((4, 3))).p_value == 1.0
    with pytest.raises(InputError, match="without NaN"):
        rank_within_blocks([[1.0, math.nan, 2.0]])
