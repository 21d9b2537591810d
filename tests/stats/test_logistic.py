import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from ruler.stats.logistic import fit_logistic, reduce_rows


@pytest.mark.parametrize(("n", "p", "shift"), [(40, 3, 0.0), (90, 15, 1.0), (12, 30, 8.0)])
def test_agrees_with_scikit_learn(n, p, shift, random):
    rows = random.normal(size=(n, p)) + shift * (np.arange(n) < n // 3)[:, None]
    k = min(10, p, n - 1)
    reduced = reduce_rows(rows, k)
    assert reduced == pytest.approx(PCA(k, svd_solver="full").fit_transform(rows), rel=1e-12, abs=1e-12)
    is_first = np.arange(n) < n // 3
    expected = LogisticRegression(max_iter=1000).fit(reduced, is_first)
    slopes, intercept = fit_logistic(reduced, is_first)
    assert slopes == pytest.approx(expected.coef_[0], rel=1e-6, abs=1e-9)
    assert intercept == pytest.approx(expected.intercept_[0], rel=1e-6, abs=1e-9)
