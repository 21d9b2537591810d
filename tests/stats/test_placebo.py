import numpy as np
import pytest

from ruler.neighbors import find_neighbors
from ruler.stats.placebo import nearest_outside


def find_by_hand(rows):
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
    found = nearest_outside(find_neighbors(rows, rows, k=k, exclude_self=True), in_set, find_by_hand(rows))
    assert found == pytest.approx(find_by_hand(rows)(np.arange(60), in_set), abs=1e-9)


def test_only_rows_whose_neighbours_are_all_in_the_set_are_searched_again():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 3))
    in_set = np.arange(60) < 30
    graph = find_neighbors(rows, rows, k=2, exclude_self=True)
    asked = []
    nearest_outside(graph, in_set, lambda missed, labels: asked.extend(missed) or np.zeros(len(missed)))
    assert asked == np.flatnonzero(in_set[graph.index].all(axis=1)).tolist()
