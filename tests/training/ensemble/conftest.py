import numpy as np
import pytest


@pytest.fixture(scope="module")
def table():
    """Features and labels of a small binary problem."""
    draw = np.random.RandomState(0)
    features = draw.randn(150, 5).astype(np.float32)
    labels = (features[:, 0] + 0.5 * draw.randn(150) > 0).astype(np.int64)
    return features, labels
