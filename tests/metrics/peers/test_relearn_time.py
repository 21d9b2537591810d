import math

import numpy as np
import pytest
from tests.metrics.peers.answers import answer_rightly

from ruler.core.errors import InputError
from ruler.metrics.peers.information_difference import information_difference
from ruler.metrics.peers.relearn_time import anamnesis_index, relearn_time
from ruler.metrics.peers.weight_distance import weight_distance

ORIGINAL = answer_rightly(8, 10)  # 0.76 is near enough


def test_epochs_until_the_original_is_reached():
    assert relearn_time([0.1, 0.75, 0.76, 0.9], ORIGINAL).value == 2
    assert relearn_time([0.8, 0.1], ORIGINAL).value == 0
    assert "not reached" in relearn_time([0.1, 0.2], ORIGINAL).reason


def test_multiple_of_the_time_of_the_oracle():
    assert anamnesis_index([0.1, 0.5, 0.9], [0.1, 0.2, 0.3, 0.4, 0.8], ORIGINAL).value == 0.5
    assert anamnesis_index([0.1, 0.9], [0.1, 0.9], ORIGINAL).value == 1
    assert "without any training" in anamnesis_index([0.1, 0.9], [0.9], ORIGINAL).reason
    assert "not reached" in anamnesis_index([0.1], [0.1, 0.9], ORIGINAL).reason


def test_weights():
    rng = np.random.default_rng(0)
    one, two = ({name: rng.normal(size=shape) for name, shape in (("a", (4, 3)), ("b", (5,)))} for _ in range(2))
    flat = [np.concatenate([part.ravel() for part in weights.values()]) for weights in (one, two)]
    found = weight_distance(one, two)
    assert found.value == pytest.approx(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1]))
    assert found.layers["b"] == pytest.approx(np.linalg.norm(one["b"] - two["b"]) / np.linalg.norm(two["b"]))
    assert weight_distance(one, one).value == 0
    assert "all 0" in weight_distance({"a": np.ones(2)}, {"a": np.zeros(2)}).reason
    with pytest.raises(InputError, match="parameters of weights"):
        weight_distance(one, {"a": one["a"]})
    with pytest.raises(InputError, match="one shape"):
        weight_distance({"a": np.ones(2)}, {"a": np.ones(3)})


def test_information_is_1_for_the_original_and_0_for_the_oracle():
    rng = np.random.default_rng(0)

    def read(shift):
        return {name: rng.normal(shift, 1, (60, 3)) for name in ("a", "b")}, {
            name: rng.normal(0, 1, (60, 3)) for name in ("a", "b")
        }

    original, half, oracle = read(3.0), read(1.0), read(0.0)
    assert information_difference(*original, *oracle, *original).value == 1
    assert information_difference(*oracle, *oracle, *original).value == 0
    assert 0.1 < information_difference(*half, *oracle, *original).value < 0.9
    assert "tell no more" in information_difference(*half, *oracle, *oracle).reason
    one_group = information_difference(*half, *oracle, *original, np.zeros(60), np.arange(60))
    assert math.isnan(one_group.value)
    assert "at least two groups" in one_group.reason
