import math

import numpy as np
import pytest
from tests.embeddings.causal_models import make_llama, make_records
from tests.metrics.peers.readings import make_reading

from ruler.core.errors import InputError
from ruler.embeddings.language.tokens import read_tokens
from ruler.metrics.peers.min_k import min_k
from ruler.metrics.peers.min_k_plus import min_k_plus


def test_least_likely_share_of_each_length():
    rows = [[-1.0], [-3.0, -1.0, -2.0, -5.0], list(-np.arange(10.0)), list(-np.arange(14.0))]
    found = min_k(make_reading(rows))
    assert found.records.tolist() == [-1.0, -5.0, -8.5, -12.5]  # 1, 1, 2 and 2 tokens
    assert found.value == np.mean(found.records)
    with pytest.raises(InputError, match="share must be above 0"):
        min_k(make_reading(rows), share=0)
    with pytest.raises(InputError, match=r"share must be above 0 and at most 1; got 1\.5"):
        min_k(make_reading(rows), share=1.5)


def test_plus_standardises_by_place():
    model, data = make_llama(), make_records()
    reading = read_tokens(model, data, moments=True)
    z = (reading.log_probs - reading.means) / reading.deviations
    lowest = [np.sort(row[:n])[: max(1, int(0.2 * n))] for row, n in zip(z, reading.lengths, strict=True)]
    expected = [row.mean() for row in lowest]
    np.testing.assert_allclose(min_k_plus(reading).records, expected)


def test_plus_of_a_uniform_or_sure_place():
    zero = np.zeros((2, 1))
    reading = make_reading([[0.0], [-80.0]], means=zero, deviations=zero)
    assert min_k_plus(reading).records.tolist() == [0.0, -math.inf]


def test_plus_says_what_it_lacks():
    found = min_k_plus(make_reading([[-1.0]]))
    assert math.isnan(found.value)
    assert found.reason == "The tokens were read without moments."
