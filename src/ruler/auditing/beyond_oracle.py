"""Does a difference go beyond what an oracle, trained on neither side, shows of the records? That is no memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ruler.auditing.evidence import Evidence, LayerRows, Side
from ruler.auditing.strands import Strand, find_p_values, rank_units
from ruler.core.types import FloatArray
from ruler.stats.auc import ScorePool
from ruler.stats.logistic import reduce_rows

_SIDES: tuple[Side, Side] = ("forget", "held_out")
_N_COMPONENTS = 10
_UNITS_PER_COLUMN = 10
"""So many records (or groups) for every rank that is fitted, or the fit would take all scores with it."""


def find_p_values_beyond_oracle(
    names: Sequence[str], strands: Mapping[str, Sequence[Strand]], evidence: Evidence
) -> dict[str, float]:
    """Corrected p-values of contrasts without what the first oracle shows of the records at the same layer.

    From the ranks of a score, or of its distances from the middle, a least-squares fit is subtracted: on the ranks of
    the records' losses, norms and principal components in the oracle, for distances also on the squares of these ranks.
    The fit does not know which records are forget records, so the test is as exact for fair records as without it. If
    records differ because of how they were chosen, the part of the difference is left that the oracle does not see.

    Args:
        names: Of contrasts that were tested by permutation.
        strands: Of every contrast.
        evidence: With an oracle and held-out records.
    """
    layers = {strand.layer for name in names for strand in strands[name]}
    bases = {layer: _span_oracle(evidence, layer) for layer in layers}

    def subtract(strand: Strand) -> Strand:
        ranks, basis = _rank(strand.now), bases[strand.layer][strand.part]
        return replace(strand, now=ranks - basis @ (basis.T @ ranks))

    left = {name: [subtract(strand) for strand in strands[name]] for name in names}
    return {name: adjusted for name, (_, adjusted) in find_p_values(names, left, evidence).items()}


def _span_oracle(evidence: Evidence, layer: str) -> dict[str, FloatArray]:
    """(n, k) orthonormal columns that span what the oracle shows of the records (or groups), by part."""
    oracle = evidence.oracles[0][layer]
    columns = [*_describe(oracle), *reduce_rows(oracle.unit(_SIDES), _N_COMPONENTS).T]
    n_first = len(evidence.ids["forget"])
    units = [
        np.concatenate(rank_units(evidence.groups, dict(zip(_SIDES, np.split(column, [n_first]), strict=True))))
        for column in columns
    ]
    n = len(units[0])
    ranks = [_rank(unit) for unit in units[: n // _UNITS_PER_COLUMN]]
    squares = [(one - one.mean()) ** 2 for one in ranks]
    return {"place": _span([np.ones(n), *ranks]), "spread": _span([np.ones(n), *ranks, *squares])}


def _span(columns: Sequence[FloatArray]) -> FloatArray:
    left, singular, _ = np.linalg.svd(np.column_stack(columns), full_matrices=False)
    return left[:, singular > 1e-9 * singular[0]]


def _describe(oracle: LayerRows) -> list[FloatArray]:
    """Losses, where known, and norms of forget and held-out records."""
    scores = [oracle.log_norms] if oracle.losses is None else [oracle.losses, oracle.log_norms]
    return [np.concatenate([one[side] for side in _SIDES]) for one in scores]


def _rank(values: FloatArray) -> FloatArray:
    ranks: FloatArray = ScorePool.of(values).rank() / len(values)
    return ranks
