import numpy as np
import pytest
from tests.metrics.peers.answers import answer_rightly

from ruler.core.types import Predictions
from ruler.metrics.outputs import membership_inference
from ruler.metrics.peers.aus import aus
from ruler.metrics.peers.nomus import nomus
from ruler.metrics.peers.tug_of_war import tug_of_war


def test_product_of_accuracies_that_agree():
    own = [answer_rightly(n_right, 10) for n_right in (9, 8, 7)]
    oracle = [answer_rightly(n_right, 10) for n_right in (4, 10, 7)]
    assert tug_of_war(*own, *oracle).value == pytest.approx((1 - 0.5) * (1 - 0.2) * 1)
    assert tug_of_war(*oracle, *own).value == pytest.approx(0.4)


def test_accuracy_kept_and_alike():
    found = aus(answer_rightly(9, 10), answer_rightly(7, 10), answer_rightly(8, 10))
    assert found.value == pytest.approx((1 - 0.1) / (1 + 0.2))


def test_accuracy_and_membership():
    forget, held_out = answer_rightly(10, 10), answer_rightly(6, 10)
    attack = membership_inference(forget, held_out)
    assert nomus(forget, held_out).value == pytest.approx(0.5 * 0.6 + 0.5 * (1 - 2 * abs(attack - 0.5)))
    assert nomus(forget, held_out, weight=1.0).value == pytest.approx(0.6)
    margins = np.arange(10.0)
    known, other = (
        Predictions(np.column_stack([margins + gain, np.zeros(10)]), np.zeros(10, dtype=np.int64)) for gain in (4, 1)
    )
    attack = membership_inference(known, other)
    assert 0.55 < attack < 0.9
    assert nomus(known, other, weight=0.2).value == pytest.approx(0.2 + 0.8 * (1 - 2 * (attack - 0.5)))
