import numpy as np
import pytest

from ruler.metrics.percentile_rank import percentile_rank
from ruler.neighbors import find_neighbors
from ruler.stats.placebo import choose_depth, compare_with_placebos, nearest_outside
from ruler.stats.units import find_units


def _graph(rows, k):
    return find_neighbors(rows, rows, k=k, exclude_self=True)


def _fallback(rows):
    def find(missed, in_set):
        gallery = np.flatnonzero(~in_set)
        similarity = (rows[missed] @ rows[gallery].T) / np.linalg.norm(rows[missed], axis=1)[:, None]
        similarity /= np.linalg.norm(rows[gallery], axis=1)
        similarity[missed[:, None] == gallery[None, :]] = -2
        return similarity.max(axis=1)

    return find


@pytest.mark.parametrize("k", [1, 3, 40])
def test_nearest_outside_is_the_brute_force_answer_at_any_depth(k):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    in_set = rng.random(60) < 0.5
    found = nearest_outside(_graph(rows, k), in_set, _fallback(rows))
    assert found == pytest.approx(_fallback(rows)(np.arange(60), in_set), abs=1e-9)


def test_effect_is_m4_with_ties_halved():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(80, 4))
    found = compare_with_placebos(
        _graph(rows, 20), find_units(15, 65), find_nearest=_fallback(rows), n_placebos=99, seed=0
    )
    assert found.effect == pytest.approx(percentile_rank(rows[:15], rows[15:]).mean(), abs=1e-12)
    assert found.null_effect == pytest.approx(0.5, abs=0.03)


def test_placebos_hold_their_level_on_duplicated_rows_and_find_a_planted_contrast():
    rng = np.random.default_rng(2)
    alarms = []
    for _ in range(40):
        rows = rng.integers(0, 3, size=(120, 4)) + 0.5
        found = compare_with_placebos(
            _graph(rows, 12), find_units(20, 100), find_nearest=_fallback(rows), n_placebos=99
        )
        alarms.append(found.p_value <= 0.05)
    assert np.mean(alarms) <= 0.15
    rows = rng.normal(size=(120, 8))
    rows[:20] = rows[20:40] + 0.01 * rng.normal(size=(20, 8))
    planted = compare_with_placebos(_graph(rows, 12), find_units(20, 100), find_nearest=_fallback(rows), n_placebos=199)
    assert planted.p_value <= 0.05


def test_groups_take_the_role_whole():
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.normal(size=(30, 4)), 4, axis=0) + 0.01 * rng.normal(size=(120, 4))
    groups = np.repeat(np.arange(30), 4)
    units = find_units(20, 100, groups[:20], groups[20:])
    found = compare_with_placebos(_graph(rows, 16), units, find_nearest=_fallback(rows), n_placebos=199)
    # a group that leaves takes its own neighbours along, placebos as well: far from 1/2, but no contrast
    assert found.effect < 0.2
    assert found.null_effect < 0.2
    assert found.p_value > 0.05


def test_depth_covers_groups_and_never_passes_the_rows():
    assert choose_depth(1000, 21000, largest_group=43) == choose_depth(1000, 21000) + 42
    assert choose_depth(5, 8) == 7
