"""What models that never saw the records show of them, and scores without it."""

from collections.abc import Mapping, Sequence

import numpy as np

from ruler.auditing.contrasts import SideScores
from ruler.auditing.evidence import Evidence, Side
from ruler.core.types import FloatArray
from ruler.stats.auc import ScorePool
from ruler.stats.logistic import reduce_rows
from ruler.stats.samples import average_by_group

_SIDES: tuple[Side, Side] = ("forget", "held_out")
_ROUNDING = 1e-9
_N_COMPONENTS = 10
_UNITS_PER_COLUMN = 10
"""So many records (or groups) for every column that is fitted, or the fit would take all scores with it."""


def subtract_references(scores: SideScores, references: Sequence[SideScores], *, is_fitted: bool) -> SideScores:
    """Scores without the difficulty of the records, as far as reference models show it.

    A least-squares fit on held-out records predicts the score from the references' scores; each held-out record is
    predicted by a fit without itself. Forget records have no part in it. With few held-out records, or if these differ
    from the forget records by more than memory, the mean of the references is subtracted as it is: a fit would draw
    unusual records towards usual ones.

    Args:
        scores: By side, in the model that is measured.
        references: By side, in each reference.
        is_fitted: Whether a fit is allowed.
    """
    if not references:
        return scores
    n = len(scores["held_out"])
    if not is_fitted or n < _UNITS_PER_COLUMN * (1 + len(references)):
        return {side: own - np.mean([one[side] for one in references], axis=0) for side, own in scores.items()}
    columns = {
        side: np.column_stack([np.ones(len(own)), *(one[side] for one in references)]) for side, own in scores.items()
    }
    fitted = columns["held_out"]
    left, singular, right = np.linalg.svd(fitted, full_matrices=False)
    is_known = singular > 1e-10 * singular[0]
    weights = right[is_known].T @ ((left[:, is_known].T @ scores["held_out"]) / singular[is_known])
    found: dict[Side, FloatArray] = {side: own - columns[side] @ weights for side, own in scores.items()}
    leverage = np.square(left[:, is_known]).sum(axis=1)
    found["held_out"] = found["held_out"] / np.maximum(1e-6, 1 - leverage)
    # what rounding leaves of scores that the references explain wholly is no score
    least = _ROUNDING * float(np.abs(scores["held_out"]).max())
    return {side: np.where(np.abs(own) <= least, 0.0, own) for side, own in found.items()}


def span_neutral(evidence: Evidence, layer: str) -> FloatArray:
    """(n, k) orthonormal columns: the ranks of what a neutral model shows of forget and held-out records (or groups).

    Loss, norm and ten principal components in the first oracle, or in the first reference. Scores are compared after
    regressing them out: a difference that a model shows which was trained on neither side comes from how the records
    were chosen. The fit does not know which records are forget records, so for fair records the test stays exact.
    """
    units = evidence.count_units("forget") + evidence.count_units("held_out")
    neutral = next((one[layer] for one in [*evidence.oracles, *evidence.references] if one[layer].rows), None)
    if neutral is None:
        return np.zeros((units, 0))
    n = len(evidence.ids["forget"])
    scores = [neutral.log_norms] if neutral.losses is None else [neutral.losses, neutral.log_norms]
    described = [np.concatenate([one[side] for side in _SIDES]) for one in scores]
    described += list(reduce_rows(neutral.unit(_SIDES), _N_COMPONENTS).T)
    columns = [np.ones(units)]
    for one in described[: units // _UNITS_PER_COLUMN]:
        ranks = ScorePool.of(one).rank() / len(one)
        by_side: Mapping[Side, FloatArray] = dict(zip(_SIDES, np.split(ranks, [n]), strict=True))
        columns.append(
            np.concatenate(
                [
                    average_by_group(own, evidence.groups[side]) if side in evidence.groups else own
                    for side, own in by_side.items()
                ]
            )
        )
    left, singular, _ = np.linalg.svd(np.column_stack(columns), full_matrices=False)
    basis: FloatArray = left[:, singular > 1e-9 * singular[0]]
    return basis
