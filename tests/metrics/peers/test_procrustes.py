import numpy as np
import pytest
from scipy.spatial import procrustes as scipy_procrustes

from ruler.core.errors import InputError
from ruler.metrics.peers.neighbor_overlap import neighbor_overlap
from ruler.metrics.peers.procrustes import procrustes, procrustes_distance

RNG = np.random.default_rng(0)
ROWS, OTHERS = RNG.normal(size=(25, 5)), RNG.normal(size=(25, 5))


def test_agrees_with_scipy():
    disparity = scipy_procrustes(ROWS, OTHERS)[2]  # with the best scale as well: 1 - s^2, where ours is 2 - 2 s
    assert 1 - (1 - procrustes_distance(ROWS, OTHERS) / 2) ** 2 == pytest.approx(disparity)


def test_rotation_shift_and_scale_change_nothing():
    turn = np.linalg.qr(RNG.normal(size=(5, 5)))[0]
    expected = procrustes_distance(ROWS, OTHERS)
    assert procrustes_distance(2 * ROWS @ turn - 7, OTHERS) == pytest.approx(expected)
    assert procrustes_distance(ROWS, ROWS @ turn) == pytest.approx(0, abs=1e-12)
    assert procrustes_distance(ROWS, np.pad(OTHERS, ((0, 0), (0, 3)))) == pytest.approx(expected)


def test_what_cannot_be_compared():
    assert "same states" in procrustes({"a": np.ones((3, 2))}, {"a": ROWS[:3]}).reason
    with pytest.raises(InputError, match="same records"):
        procrustes_distance(ROWS, OTHERS[:4])


def test_neighbors_are_those_of_a_plain_search():
    forget, oracle_forget = ROWS[:6], OTHERS[:6]
    retain, oracle_retain = ROWS[6:], OTHERS[6:]

    def nearest(queries, base):
        unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, base)]
        return [set(row[:4]) for row in np.argsort(-(unit[0] @ unit[1].T), axis=1)]

    pairs = zip(nearest(forget, retain), nearest(oracle_forget, oracle_retain), strict=True)
    expected = [len(own & other) / 4 for own, other in pairs]
    found = neighbor_overlap({"a": forget}, {"a": retain}, {"a": oracle_forget}, {"a": oracle_retain}, k=4)
    assert found.records.tolist() == expected
    assert found.layers == {"a": pytest.approx(np.mean(expected))}
    whole = neighbor_overlap({"a": forget}, {"a": retain}, {"a": oracle_forget}, {"a": oracle_retain}, k=99)
    assert whole.value == 1  # all retain records are neighbours
    with pytest.raises(InputError, match="records must be the same in both models"):
        neighbor_overlap({"a": forget}, {"a": retain}, {"a": oracle_forget[:-1]}, {"a": oracle_retain})
    with pytest.raises(InputError, match="same layers"):
        neighbor_overlap({"a": forget}, {"b": retain}, {"a": oracle_forget}, {"a": oracle_retain})
