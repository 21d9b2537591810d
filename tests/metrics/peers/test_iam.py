import math

import numpy as np
import pytest
from scipy.special import logit, softmax
from tests.metrics.peers.answers import draw_answers

from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.metrics.outputs import margins
from ruler.metrics.peers.iam import iam


def answer_with(wanted):
    return Predictions(np.stack([wanted, np.zeros(len(wanted))], axis=1), np.zeros(len(wanted), dtype=np.int64))


def test_it_is_the_place_between_oracle_and_original_on_the_scale_of_log_odds():
    own, original, oracle = (draw_answers(seed=seed) for seed in (0, 1, 2))
    m, high, low = (
        logit(softmax(one.logits, axis=1)[np.arange(len(one)), one.labels]) for one in (own, original, oracle)
    )
    expected = np.clip((m - low) / (high - low), 0, 1)
    expected[high - low < 0.05] = np.nan
    assert np.isnan(expected).any()
    found = iam(own, original, oracle)
    np.testing.assert_allclose(found.records, expected)
    assert found.value == pytest.approx(np.nanmean(expected))


def test_its_ends_are_the_two_models_and_what_lies_beyond_is_cut():
    rng = np.random.default_rng(0)
    low = rng.normal(size=50)
    high = low + rng.uniform(1, 2, 50)
    ends = answer_with(high), answer_with(low)
    assert iam(ends[1], *ends).value == 0
    assert iam(ends[0], *ends).value == 1
    assert iam(answer_with((low + high) / 2), *ends).value == pytest.approx(0.5)
    assert iam(answer_with(low - 9), *ends).value == 0
    assert iam(answer_with(high + 9), *ends).value == 1


def test_sure_models_do_not_overflow():
    found = iam(answer_with([850.0]), answer_with([900.0]), answer_with([800.0]))
    assert found.value == pytest.approx(0.5)


def test_records_that_the_original_has_not_fitted_have_no_number():
    found = iam(answer_with([1.0, 0.5]), answer_with([0.0, 1.0]), answer_with([2.0, 0.0]))
    assert math.isnan(found.records[0])
    assert found.value == 0.5
    none = iam(answer_with([1.0]), answer_with([0.04]), answer_with([0.0]))
    assert math.isnan(none.value)
    assert none.reason == "The original is surer than the oracle of no forget record."


def test_models_must_answer_for_the_same_records():
    with pytest.raises(InputError, match="the same 30 records; got 29 and 30"):
        iam(draw_answers(), draw_answers(n=29), draw_answers())
    assert len(margins(draw_answers())) == 30
