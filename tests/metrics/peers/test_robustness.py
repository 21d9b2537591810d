import math

import pytest
from scipy.stats import hmean

from ruler.core.errors import InputError
from ruler.metrics.peers.robustness import harmonic_mean, quantization_robustness, relearning_robustness


@pytest.mark.parametrize(
    ("oracle", "unlearned", "expected"),
    [((0.1, 0.2), (0.1, 0.5), 0.25), ((0.1, 0.6), (0.1, 0.2), 1.0), ((0.1, 0.2), (0.3, 0.2), 1.0)],
)
def test_relearning(oracle, unlearned, expected):
    assert relearning_robustness(*oracle, *unlearned) == pytest.approx(expected)


def test_relearning_that_teaches_the_oracle_nothing_shows_nothing():
    assert math.isnan(relearning_robustness(0.2, 0.2, 0.1, 0.5))
    assert math.isnan(relearning_robustness(0.2, math.nan, 0.1, 0.5))
    assert math.isnan(relearning_robustness(0.2, math.inf, math.inf, 0.5))


def test_quantization():
    assert quantization_robustness(0.5, 0.2) == pytest.approx(0.4)
    assert quantization_robustness(0.2, 0.5) == 1
    assert math.isnan(quantization_robustness(0.0, 0.5))
    with pytest.raises(InputError, match="at least 0"):
        quantization_robustness(-1.0, -0.5)


def test_harmonic_mean():
    assert harmonic_mean([0.2, 0.7, 0.9]) == pytest.approx(hmean([0.2, 0.7, 0.9]))
    assert harmonic_mean([0.2, 0.0]) == 0
    for values in ([], [-0.1, 0.5]):
        with pytest.raises(InputError, match="at least 0"):
            harmonic_mean(values)
