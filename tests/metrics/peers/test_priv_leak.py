import math

import pytest
from tests.metrics.peers.readings import draw_reading, make_reading

from ruler.metrics.peers.priv_leak import priv_leak


def test_share_by_which_the_auc_rises():
    member, stranger = make_reading([[-1.0], [-3.0]]), make_reading([[-2.0], [-4.0]])  # AUC 3/4
    same = make_reading([[-1.0], [-2.0]])  # AUC 1/2
    assert priv_leak(member, stranger, same, same).value == pytest.approx(0.5)
    assert priv_leak(same, same, member, stranger).value == pytest.approx(-1 / 3)


def test_0_where_the_oracle_is_as_the_model_and_nan_without_an_auc():
    forget, held_out = draw_reading(seed=1), draw_reading(seed=2)
    assert priv_leak(forget, held_out, forget, held_out).value == 0
    low, high = make_reading([[-9.0]]), make_reading([[-1.0]])
    found = priv_leak(forget, held_out, low, high)
    assert math.isnan(found.value)
    assert "its AUC is 0" in found.reason
