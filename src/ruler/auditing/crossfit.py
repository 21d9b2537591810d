"""How well does a simple classifier tell two sets of records apart, on records that it was not fitted on?"""

import warnings

import numpy as np
import numpy.typing as npt

from ruler.core.optional import load_optional
from ruler.core.types import FloatArray

_N_COMPONENTS = 10
_N_FOLDS = 5


def cross_fit(rows: FloatArray, n_first: int, units: npt.NDArray[np.intp] | None = None) -> FloatArray:
    """How much each record looks like one of the first set to a classifier that was fitted on the others: (n,).

    Logistic regression on ten principal components, in five folds.

    Args:
        rows: (n, p), the first set's rows first. Folds follow the rows' order, which must say nothing about them.
        n_first: Rows of the first set.
        units: (n,) codes of what must stay in one fold, such as groups; None for single records.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(60, 3)) + 4.0 * (np.arange(60) < 20)[:, None]
        >>> scores = cross_fit(rows, 20)
        >>> bool(scores[:20].min() > scores[20:].max())
        True
    """
    decomposition = load_optional("sklearn.decomposition", "checking held-out records")
    linear_model = load_optional("sklearn.linear_model", "checking held-out records")
    is_first = np.arange(len(rows)) < n_first
    if units is None:
        units = np.concatenate([np.arange(n_first), np.arange(len(rows) - n_first)])
    folds = units % _N_FOLDS
    if not np.ptp(rows, axis=0).any():
        return np.zeros(len(rows))  # rows that are all the same tell nothing
    n_components = min(_N_COMPONENTS, rows.shape[1], len(rows) - 1)
    reduced = decomposition.PCA(n_components, svd_solver="full").fit_transform(rows)
    spread = reduced.std(axis=0)
    reduced = reduced / np.where(spread > 1e-9 * max(1e-300, float(spread.max())), spread, np.inf)
    scores = np.zeros(len(rows))
    for fold in range(_N_FOLDS):
        rest, own = folds != fold, folds == fold
        if own.any() and len(np.unique(is_first[rest])) == 2:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = linear_model.LogisticRegression(max_iter=1000).fit(reduced[rest], is_first[rest])
            scores[own] = fitted.decision_function(reduced[own])
    return scores
