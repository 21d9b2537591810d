import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes, polar
from scipy.stats import ortho_group

from ruler.auditing.alignment import compare_through, fit_map, halve, judge_pairing
from ruler.core.errors import InputError


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pairing_similarity(rows, others, seed=0):
    keys = np.random.default_rng(seed).integers(0, 1 << 60, len(rows), dtype=np.uint64)
    found = judge_pairing(rows, others, "auto", halve(keys))
    return found.plain_similarity, found.aligned_similarity


def test_map_is_scipys_procrustes_of_unit_rows():
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, 50, 6))
    assert fit_map(source, target) == pytest.approx(orthogonal_procrustes(_unit(source), _unit(target))[0], abs=1e-9)


def test_a_rotation_is_found_and_judged_on_other_rows():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(200, 8))
    plain, aligned = pairing_similarity(rows, 3.0 * rows @ ortho_group.rvs(8, random_state=2), seed=0)
    assert abs(plain) < 0.5
    assert aligned == pytest.approx(1.0, abs=1e-9)


def test_unrelated_models_are_not_aligned_by_overfitting():
    rng = np.random.default_rng(3)
    _, aligned = pairing_similarity(rng.normal(size=(40, 30)), rng.normal(size=(40, 30)))
    assert aligned < 0.4


def test_a_wider_oracle_has_an_aligned_similarity_only():
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(60, 4))
    plain, aligned = pairing_similarity(rows, rows @ ortho_group.rvs(6, random_state=5)[:4])
    assert np.isnan(plain)
    assert aligned == pytest.approx(1.0, abs=1e-9)


def test_zero_rows_are_like_nothing():
    assert compare_through(np.zeros((1, 2)), np.ones((1, 2)), np.eye(2)).tolist() == [0.0]


def test_units_that_fire_in_no_fitted_row_are_not_turned_by_rounding():
    rng = np.random.default_rng(6)
    source, target = np.maximum(rng.normal(size=(2, 300, 20)), 0.0)
    source[:200, 12:] = target[:200, 14:] = 0.0
    fitted = np.arange(200)
    turn = fit_map(source, target, fitted)
    for order in (fitted[::-1], rng.permutation(fitted)):
        assert fit_map(source, target, order) == pytest.approx(turn, abs=1e-12)
    product = _unit(source[:200]).T @ _unit(target[:200])
    known = np.zeros((20, 20))
    known[:12, :14], _ = polar(product[:12, :14])
    assert turn == pytest.approx(known, abs=1e-12)
    cosines = (_unit(source) @ turn * _unit(target)).sum(1)
    assert compare_through(source, target, turn) == pytest.approx(cosines, abs=1e-12)


def test_halves_share_no_row_and_follow_content():
    keys = np.random.default_rng(7).integers(0, 1 << 60, 101, dtype=np.uint64)
    fitted, judged = halve(keys)
    assert sorted([*fitted, *judged]) == list(range(101))
    assert set(keys[fitted]) == set(keys[::-1][halve(keys[::-1])[0]])


def test_pairs_that_agree_as_they_are_need_no_map():
    rows = np.random.default_rng(8).normal(size=(40, 5))
    halves = halve(np.arange(40, dtype=np.uint64))
    plain = judge_pairing(rows, rows + 0.01, "auto", halves)
    assert (plain.is_paired, plain.is_aligned, plain.n_fitted) == (True, False, 0)
    turned = rows @ ortho_group.rvs(5, random_state=0)
    found = judge_pairing(rows, turned, "auto", halves)
    assert (found.is_paired, found.is_aligned, found.n_fitted) == (False, True, 20)
    assert not judge_pairing(rows, turned, "never", halves).is_aligned
    assert judge_pairing(rows, rows, "always", halves).is_aligned


def test_too_few_rows_cannot_be_aligned():
    rows = np.random.default_rng(9).normal(size=(3, 4))
    with pytest.raises(InputError, match="retain must have at least 4 rows to be aligned; got 3"):
        judge_pairing(rows, rows[:, ::-1], "always", (np.arange(1), np.arange(1, 3)))
