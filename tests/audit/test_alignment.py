import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group

from ruler.audit.alignment import compare_through, fit_map, halve, pairing_similarity
from ruler.core.errors import InputError


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


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


def test_halves_share_no_row():
    fitted, judged = halve(101, seed=7)
    assert sorted([*fitted, *judged]) == list(range(101))


def test_too_few_rows_cannot_be_halved():
    with pytest.raises(InputError, match="retain must have at least 4 rows to be aligned; got 3"):
        halve(3, seed=0)
