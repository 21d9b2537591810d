import math

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.metrics.peers.cka import cka, cka_debiased, linear_cka

RNG = np.random.default_rng(0)
ROWS, OTHERS = RNG.normal(size=(30, 6)), RNG.normal(size=(30, 4))


def test_by_the_formula_of_features():
    a, b = ROWS - ROWS.mean(axis=0), OTHERS - OTHERS.mean(axis=0)
    expected = np.linalg.norm(b.T @ a) ** 2 / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))
    assert linear_cka(ROWS, OTHERS) == pytest.approx(expected)


def test_debiased_averages_over_distinct_records():
    """Song's estimator is the U-statistic over ordered quadruples of distinct records."""
    a, b = ROWS[:6], OTHERS[:6]

    def hsic(first, second):
        total, count = 0.0, 0
        for i, j, q, r in np.ndindex(6, 6, 6, 6):
            if len({i, j, q, r}) == 4:
                total += first[i, j] * (second[i, j] + second[q, r] - 2 * second[i, q])
                count += 1
        return total / count

    left, right = a @ a.T, b @ b.T
    expected = hsic(left, right) / math.sqrt(hsic(left, left) * hsic(right, right))
    assert linear_cka(a, b, debiased=True) == pytest.approx(expected)


@pytest.mark.parametrize("debiased", [False, True])
def test_rotation_shift_scale_and_order_change_nothing(debiased):
    turn, order = np.linalg.qr(RNG.normal(size=(6, 6)))[0], RNG.permutation(30)
    expected = linear_cka(ROWS, OTHERS, debiased=debiased)
    assert linear_cka(3 * ROWS @ turn + 5, OTHERS, debiased=debiased) == pytest.approx(expected)
    assert linear_cka(ROWS[order], OTHERS[order], debiased=debiased) == pytest.approx(expected)
    assert linear_cka(ROWS, ROWS @ turn, debiased=debiased) == pytest.approx(1)


def test_wide_unrelated_rows_look_alike_unless_debiased():
    wide = [RNG.normal(size=(20, 800)) for _ in range(2)]
    assert linear_cka(*wide) > 0.9
    assert abs(linear_cka(*wide, debiased=True)) < 0.3


def test_records_that_do_not_line_up_are_seen():
    """A shuffling loader in one model destroys it."""
    states = {"a": ROWS, "b": OTHERS}
    shuffled = {name: rows[RNG.permutation(30)] for name, rows in states.items()}
    assert cka(states, states).value == pytest.approx(1)
    assert cka_debiased(states, shuffled).value < 0.5


def test_what_cannot_be_compared():
    flat = {"a": np.ones((5, 2))}
    assert "same states" in cka(flat, flat).reason
    for pair in ((ROWS, np.ones_like(ROWS)), (np.ones_like(ROWS), ROWS)):
        assert math.isnan(linear_cka(*pair))
    with pytest.raises(InputError, match="same layers"):
        cka({"a": ROWS}, {"b": ROWS})
    with pytest.raises(InputError, match="same records"):
        linear_cka(ROWS, OTHERS[:9])
    with pytest.raises(InputError, match="at least 4 records"):
        linear_cka(ROWS[:3], OTHERS[:3], debiased=True)
