"""Readout: what a linear head that is fitted anew can say of the forget records, from the layer itself."""

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.contrasts.loss import compress_confidence
from ruler.auditing.evidence import LayerRows, Side
from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.logistic import fit_softmax

_MOST_FITTED, _MOST_COLUMNS, _RIDGE = 2000, 128, 10.0
_DECIMALS = 9  # what the order of additions can change is no score


def score_readout(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Confidence of a head fitted on retain records in each record's label; NaN for the members it was fitted on.

    The head is a softmax regression with a ridge penalty on rows of this layer, centred and scaled as a whole, by at
    most 128 principal components. Whatever was done to the model's own head makes no difference.
    """
    assert model.classes is not None
    fitted = model.halves[0][:_MOST_FITTED]
    rows = np.asarray(model.rows["retain"][fitted], dtype=np.float64)
    middle = rows.mean(axis=0)
    rows = rows - middle
    scale = float(np.sqrt(np.square(rows).mean())) or 1.0
    axes = find_axes(rows, _MOST_COLUMNS)
    classes = model.classes
    n_classes = 1 + max(int(own.max()) for own in classes.values())
    weights = fit_softmax(rows @ axes / scale, classes["retain"][fitted], n_classes, ridge=_RIDGE)
    head, offset = axes @ weights[:-1] / scale, weights[-1]
    scores: dict[Side, FloatArray] = {}
    for side, own in model.rows.items():
        chosen = model.members if side == "retain" else np.arange(len(own))
        scores[side] = np.empty(len(chosen))
        for start, stop in iterate_blocks(len(chosen), block_rows_for(max(head.shape))):
            block = np.asarray(own[chosen[start:stop]], dtype=np.float64)
            losses = _measure_losses((block - middle) @ head + offset, classes[side][chosen[start:stop]])
            scores[side][start:stop] = np.round(compress_confidence(losses), _DECIMALS)
    scores["retain"][np.isin(model.members, fitted)] = np.nan
    return scores


def _measure_losses(logits: FloatArray, classes: IndexArray) -> FloatArray:
    """-log of the probability of each row's class."""
    logits = logits - logits.max(axis=1, keepdims=True)
    losses: FloatArray = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), classes]
    return losses


def find_axes(rows: FloatArray, n_most: int) -> FloatArray:
    """(p, k) principal axes of centred rows (n, p), at most ``n_most``; all columns as they are if there are no more.

    Example:
        >>> find_axes(np.eye(3), 5).shape, find_axes(np.outer([-1.0, 1.0], np.arange(6.0)), 3).shape
        ((3, 3), (6, 1))
    """
    n, p = rows.shape
    if p <= n_most:
        return np.eye(p)
    if p <= n:
        found: FloatArray = eigh(rows.T @ rows, subset_by_index=(p - n_most, p - 1))[1]
        return found
    strengths, left = eigh(rows @ rows.T, subset_by_index=(max(0, n - n_most), n - 1))
    is_known = strengths > 1e-12 * max(strengths[-1], 1e-300)
    axes: FloatArray = rows.T @ (left[:, is_known] / np.sqrt(strengths[is_known]))
    return axes


READOUT = Contrast(
    title="Readout",
    score_title="Confidence of a head fitted anew on retain records, beyond what reference models have",
    if_absent="No labels were given, so no head could be fitted to read the layers.",
    question="Do the layers still hold the answers to the forget records, whatever the model says?",
    reading=(
        "Mean confidence in the forget records\u2019 labels of a linear head that is fitted on retain records. More "
        "confidence than in held-out records, after subtracting what reference models have, means that the layer "
        "remembers the records."
    ),
    low="read from the layer worse than held-out records",
    high="read from the layer better than held-out records",
    family="layers",
    score=score_readout,
    is_ruler=True,
    is_adjusted=True,
    decides=True,
    residual_side=1,
    needs=("classes",),
)
