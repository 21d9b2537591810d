import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from tests.metrics.peers.answers import draw_answers

from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.metrics.peers.activation_distance import activation_distance
from ruler.metrics.peers.completeness import completeness
from ruler.metrics.peers.js_divergence import js_divergence
from ruler.metrics.peers.zrf import zrf

ONE, TWO = draw_answers(seed=0), draw_answers(seed=1)


def test_equals_scipy_and_is_symmetric():
    expected = jensenshannon(softmax(ONE.logits, axis=1), softmax(TWO.logits, axis=1), base=2, axis=1) ** 2
    np.testing.assert_allclose(js_divergence(ONE, TWO).records, expected, atol=1e-12)
    np.testing.assert_allclose(zrf(ONE, TWO).records, 1 - expected, atol=1e-12)
    np.testing.assert_allclose(js_divergence(TWO, ONE).records, expected, atol=1e-12)


def test_classes_that_nobody_expects_change_nothing():
    """Public code that averages over classes makes answers look more alike the more classes there are."""
    wide = [
        Predictions(np.pad(one.logits, ((0, 0), (0, 96)), constant_values=-900.0), one.labels) for one in (ONE, TWO)
    ]
    assert js_divergence(*wide).value == pytest.approx(js_divergence(ONE, TWO).value)


def test_activation_distance_and_completeness():
    p, q = softmax(ONE.logits, axis=1), softmax(TWO.logits, axis=1)
    np.testing.assert_allclose(activation_distance(ONE, TWO).records, np.sqrt(((p - q) ** 2).sum(axis=1)))
    assert completeness(ONE, TWO).value == np.mean(p.argmax(axis=1) == q.argmax(axis=1))
    assert completeness(ONE, ONE).value == 1
    assert activation_distance(ONE, ONE).value == 0


@pytest.mark.parametrize("compare", [js_divergence, zrf, activation_distance, completeness])
def test_records_must_line_up(compare):
    with pytest.raises(InputError, match="must have the same shape"):
        compare(ONE, draw_answers(n=29))
