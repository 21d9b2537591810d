"""Known members as a control: retain records that are comparable with the held-out ones."""

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence
from ruler.core.types import FloatArray, IndexArray
from ruler.stats.auc import measure_effect
from ruler.stats.logistic import fit_logistic, reduce_rows

_LEAST_MEMBERS = 10
_OTHER_POPULATION = 0.65
"""AUC of a classifier on representations; of membership alone it was 0.49 to 0.63, of other populations near 1."""

_N_COMPONENTS, _N_FOLDS = 10, 5


def are_other_records(evidence: Evidence) -> bool:
    """Whether known members and held-out records differ by more than training: two populations, say.

    A classifier on the neutral model's representations hardly tells members of one population by their having been
    trained on.
    """
    neutral = evidence.neutral
    if neutral is None or not evidence.has_held_out:
        return False
    members = neutral.members[match_members(evidence, np.arange(len(neutral.members)))]
    if len(members) < _LEAST_MEMBERS or len(evidence.ids["held_out"]) < _LEAST_MEMBERS:
        return False
    rows = np.concatenate([neutral.take_unit("retain", members), neutral.unit(("held_out",))])
    scores = cross_fit(rows, len(members))
    return measure_effect(scores[: len(members)], scores[len(members) :]).value > _OTHER_POPULATION


def match_members(evidence: Evidence, places: IndexArray) -> IndexArray:
    """Those places among the known members whose labels stand in the held-out records' proportions.

    All of them without labels of classes; none if a class of the held-out records is missing.
    """
    if not {"retain", "held_out"} <= evidence.labels.keys():
        return places
    own, theirs = evidence.labels["retain"][evidence.main.members[places]], evidence.labels["held_out"]
    names, counts = np.unique(theirs, return_counts=True)
    if len(names) > max(20, len(theirs) // 10):  # numbers rather than classes
        return places
    available = np.array([(own == name).sum() for name in names])
    if (available == 0).any():
        return np.empty(0, dtype=np.int64)
    quota = np.floor((available / counts).min() * counts).astype(np.int64)
    chosen = [np.flatnonzero(own == name)[:n] for name, n in zip(names, quota, strict=True)]
    return places[np.sort(np.concatenate(chosen))]


def cross_fit(rows: FloatArray, n_first: int, units: npt.NDArray[np.intp] | None = None) -> FloatArray:
    """How much each record looks like one of the first set to a classifier that was fitted on the others: (n,).

    Logistic regression on ten principal components, in five folds that follow the rows' order.

    Args:
        rows: (n, p), the ``n_first`` rows of the first set first; their order must say nothing about them.
        n_first: Rows of the first set.
        units: (n,) codes of what must stay in one fold, such as groups; None for single records.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(60, 3)) + 4.0 * (np.arange(60) < 20)[:, None]
        >>> scores = cross_fit(rows, 20)
        >>> bool(scores[:20].min() > scores[20:].max())
        True
    """
    is_first = np.arange(len(rows)) < n_first
    if units is None:
        units = np.concatenate([np.arange(n_first), np.arange(len(rows) - n_first)])
    folds = units % _N_FOLDS
    if not np.ptp(rows, axis=0).any():
        return np.zeros(len(rows))  # rows that are all the same tell nothing
    n_components = min(_N_COMPONENTS, rows.shape[1], len(rows) - 1)
    reduced = reduce_rows(rows, n_components)
    spread = reduced.std(axis=0)
    reduced = reduced / np.where(spread > 1e-9 * max(1e-300, float(spread.max())), spread, np.inf)
    scores = np.zeros(len(rows))
    for fold in range(_N_FOLDS):
        rest, own = folds != fold, folds == fold
        if own.any() and len(np.unique(is_first[rest])) == 2:
            slopes, intercept = fit_logistic(reduced[rest], is_first[rest])
            scores[own] = reduced[own] @ slopes + intercept
    return scores
