"""A ridge logistic regression on principal components; scikit-learn gives the same but takes a second to import."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import svd
from scipy.optimize import minimize
from scipy.special import expit

from ruler.core.types import FloatArray

_LBFGS: Any = {"maxiter": 1000, "maxls": 50, "gtol": 1e-4, "ftol": 64 * float(np.finfo(float).eps)}


def reduce_rows(rows: FloatArray, n_components: int) -> FloatArray:
    """The rows (n, p) by their first principal components: (n, n_components), each with a sign of its own choice.

    Example:
        >>> abs(reduce_rows(np.array([[0.0, 0.0], [3.0, 4.0]]), 1)).round(6).tolist()
        [[2.5], [2.5]]
    """
    left, singular, right = svd(rows - rows.mean(axis=0), full_matrices=False)
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    scores: FloatArray = (left * signs)[:, :n_components] * singular[:n_components]
    return scores


def fit_logistic(rows: FloatArray, is_first: npt.NDArray[np.bool_]) -> tuple[FloatArray, float]:
    """Slopes (p,) and intercept of the logistic regression that minimises sum(log loss) + |slopes|^2 / 2.

    Example:
        >>> slopes, intercept = fit_logistic(np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.arange(4) > 1)
        >>> bool(slopes[0] > 0.5), abs(round(intercept, 3))
        (True, 0.0)
    """
    n = len(rows)
    target = is_first.astype(np.float64)

    def lose(weights: FloatArray) -> tuple[float, FloatArray]:
        slopes, raw = weights[:-1], rows @ weights[:-1] + weights[-1]
        error = (expit(raw) - target) / n
        loss = (np.logaddexp(0.0, raw) - target * raw).mean() + slopes @ slopes / (2 * n)
        return float(loss), np.append(rows.T @ error + slopes / n, error.sum())

    found = minimize(lose, np.zeros(rows.shape[1] + 1), method="L-BFGS-B", jac=True, options=_LBFGS).x
    return found[:-1], float(found[-1])


def fit_softmax(rows: FloatArray, classes: npt.NDArray[np.intp], n_classes: int, *, ridge: float) -> FloatArray:
    """Weights (p + 1, n_classes) that minimise sum(cross-entropy) + ridge |weights|^2 / 2; the last row are intercepts.

    Args:
        rows: (n, p).
        classes: (n,) codes 0..n_classes-1.
        n_classes: Number of classes.
        ridge: Penalty; intercepts are not penalised.

    Example:
        >>> weights = fit_softmax(np.array([[-1.0], [-2.0], [1.0], [2.0]]), np.array([0, 0, 1, 1]), 2, ridge=1.0)
        >>> bool(weights[0, 1] > weights[0, 0]), weights.shape
        (True, (2, 2))
    """
    n, p = rows.shape
    known = np.arange(n)

    def lose(flat: FloatArray) -> tuple[float, FloatArray]:
        weights = flat.reshape(p + 1, n_classes)
        raw = rows @ weights[:-1] + weights[-1]
        raw -= raw.max(axis=1, keepdims=True)
        parts = np.exp(raw)
        total = parts.sum(axis=1, keepdims=True)
        loss = np.log(total).sum() - raw[known, classes].sum() + ridge * float((weights[:-1] ** 2).sum()) / 2
        error = parts / total
        error[known, classes] -= 1.0
        slopes = np.vstack([rows.T @ error + ridge * weights[:-1], error.sum(axis=0)])
        return float(loss) / n, slopes.ravel() / n

    found = minimize(lose, np.zeros((p + 1) * n_classes), method="L-BFGS-B", jac=True, options=_LBFGS).x
    weights: FloatArray = found.reshape(p + 1, n_classes)
    return weights
