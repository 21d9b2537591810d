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
