import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.stats.samples import as_sample, average_by_group


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], 3.0])
def test_a_sample_is_one_dimensional_and_not_empty(values):
    with pytest.raises(InputError, match="scores must be one-dimensional with at least one value; got shape"):
        as_sample(values, "scores")


def test_a_sample_is_numbers():
    with pytest.raises(InputError, match="scores must be numbers; got list"):
        as_sample(["low", "high"], "scores")


def test_average_by_group_follows_sorted_labels():
    means = average_by_group([1.0, 10.0, 3.0, 20.0], ["b", "a", "b", "a"])
    np.testing.assert_array_equal(means, [15.0, 2.0])
