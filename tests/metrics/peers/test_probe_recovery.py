import math

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler

from ruler.core.errors import InputError
from ruler.metrics.peers.probe_recovery import probe_recovery

RNG = np.random.default_rng(0)


def draw(n, width, classes=3):
    labels = RNG.integers(classes, size=n)
    return RNG.normal(size=(n, width)) + labels[:, None] * np.linspace(0, 1, width), labels


@pytest.mark.parametrize("width", [5, 200])
def test_it_is_the_accuracy_of_a_ridge_classifier_on_standardised_states(width):
    (forget, own), (retain, kept), (held_out, others) = (draw(n, width) for n in (60, 50, 40))
    for penalty in (1.0, 30.0):
        states = ({"a": forget}, {"a": retain}, {"a": held_out})
        found = probe_recovery(*states, own, kept, others, penalty=penalty)
        train, labels = np.concatenate([retain, held_out]), np.concatenate([kept, others])
        scaler = StandardScaler().fit(train)
        head = RidgeClassifier(alpha=penalty).fit(scaler.transform(train), labels)
        expected = head.predict(scaler.transform(forget)) == own
        assert np.array_equal(found.records, expected)
        assert found.value == expected.mean() == found.layers["a"]


def test_a_forgotten_class_is_recovered_from_layers_that_still_tell_it_apart_and_from_no_others():
    rows = RNG.normal(size=(300, 4))
    labels = RNG.integers(3, size=300)
    apart = rows + 6 * np.eye(4)[labels]
    is_forgotten = labels == 2
    forget, rest = np.flatnonzero(is_forgotten)[:50], np.flatnonzero(~is_forgotten)
    control = np.flatnonzero(is_forgotten)[50:]  # held-out records of the forgotten class alone
    sides = [labels[part] for part in (forget, rest, control)]
    known, gone = ([{"a": one[part]} for part in (forget, rest, control)] for one in (apart, rows))
    assert probe_recovery(*known, *sides).value > 0.95
    assert probe_recovery(*gone, *sides).value < 0.4


def test_layers_are_averaged_and_a_constant_column_does_no_harm():
    (forget, own), (retain, kept), (held_out, others) = (draw(n, 3) for n in (30, 30, 30))
    low = [{"a": one, "b": np.ones_like(one)} for one in (forget, retain, held_out)]
    found = probe_recovery(*low, own, kept, others)
    assert found.value == pytest.approx((found.layers["a"] + found.layers["b"]) / 2)
    commonest = np.bincount(np.concatenate([kept, others])).argmax()
    assert found.layers["b"] == np.mean(own == commonest)


def test_what_cannot_be_probed_is_said():
    (forget, own), (retain, kept), (held_out, others) = (draw(n, 3) for n in (30, 30, 30))
    states = ({"a": forget}, {"a": retain}, {"a": held_out})
    one_class = probe_recovery(*states, own, np.zeros(30), np.zeros(30))
    assert math.isnan(one_class.value)
    assert "of one class" in one_class.reason
    with pytest.raises(InputError, match="labels must be one per record; got 59 for 60"):
        probe_recovery(*states, own, kept, others[1:])
    with pytest.raises(InputError, match="forget_labels must be one per record"):
        probe_recovery(*states, own[1:], kept, others)
    with pytest.raises(InputError, match="same layers on all sides"):
        probe_recovery({"b": forget}, *states[1:], own, kept, others)
