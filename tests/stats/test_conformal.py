import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.stats.conformal import conformal_p_values


def test_p_values_are_valid_for_exchangeable_records():
    rng = np.random.default_rng(0)
    p_values = np.concatenate([conformal_p_values(rng.normal(size=20), rng.normal(size=99)) for _ in range(200)])
    assert np.mean(p_values <= 0.1) == pytest.approx(0.1, abs=0.02)
    assert p_values.min() >= 0.02 - 1e-12


def test_both_tails_stand_out():
    control = np.linspace(0, 1, 99)
    assert conformal_p_values([-1.0, 2.0, 0.5], control).round(3).tolist() == [0.02, 0.02, 1.0]


def test_the_low_tail_alone_has_twice_the_resolution():
    control = np.linspace(0, 1, 99)
    assert conformal_p_values([-1.0, 2.0], control, tail="low").tolist() == [0.01, 1.0]


def test_ties_count_on_both_sides():
    assert conformal_p_values([1.0], np.ones(9)).tolist() == [1.0]


def test_control_must_not_be_empty():
    with pytest.raises(InputError, match="control must be one-dimensional with at least one value"):
        conformal_p_values([1.0], [])
