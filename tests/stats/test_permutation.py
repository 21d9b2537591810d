import numpy as np
import pytest

from ruler.stats.permutation import shuffle_labels


@pytest.mark.parametrize(("n", "n_first"), [(1, 1), (9, 4), (300, 100)])
def test_shuffled_labels_are_those_of_numpy(n, n_first):
    labels = np.arange(n) < n_first
    expected = np.random.default_rng(0).permuted(np.tile(labels, (20, 1)), axis=1)
    np.testing.assert_array_equal(shuffle_labels(np.random.default_rng(0), labels, 20), expected)
