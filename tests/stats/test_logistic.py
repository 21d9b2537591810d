import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from ruler.stats.logistic import fit_logistic, fit_softmax, reduce_rows


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


@pytest.mark.parametrize(("n", "p", "n_classes", "ridge"), [(60, 4, 3, 1.0), (200, 10, 7, 10.0), (40, 30, 4, 0.1)])
def test_several_classes_agree_with_scikit_learn(n, p, n_classes, ridge, random):
    classes = np.append(np.arange(n_classes), random.integers(0, n_classes, size=n - n_classes))
    rows = random.normal(size=(n, p)) + random.normal(size=(n_classes, p))[classes]
    expected = LogisticRegression(C=1 / ridge, max_iter=5000, tol=1e-8).fit(rows, classes)
    weights = fit_softmax(rows, classes, n_classes, ridge=ridge)
    assert weights.shape == (p + 1, n_classes)

    def lose(slopes, intercepts):
        chance = log_softmax(rows @ slopes + intercepts, axis=1)
        return -chance[np.arange(n), classes].sum() + ridge * np.square(slopes).sum() / 2

    least = lose(expected.coef_.T, expected.intercept_)
    assert least <= lose(weights[:-1], weights[-1]) <= least * 1.01
    raw = rows @ weights[:-1] + weights[-1]
    centred = raw - raw.mean(axis=1, keepdims=True)
    assert np.corrcoef(centred.ravel(), expected.decision_function(rows).ravel())[0, 1] > 0.999


def test_a_class_without_records_is_never_the_answer(random):
    weights = fit_softmax(random.normal(size=(30, 2)), np.repeat([0, 2], 15), 3, ridge=1.0)
    assert (weights[-1, 1] < weights[-1, [0, 2]] - 3).all()
