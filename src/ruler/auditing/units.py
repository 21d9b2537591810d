"""Records or, where groups are named, their groups: what an audit counts once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Side
from ruler.core.types import FloatArray
from ruler.stats.auc import ScorePool
from ruler.stats.samples import average_by_group


def rank_units(
    groups: Mapping[Side, npt.NDArray[Any]],
    scores: Mapping[Side, FloatArray],
    sides: tuple[Side, Side] = ("forget", "held_out"),
) -> list[FloatArray]:
    """One value per record of both sides, or per group where groups are named: the mean rank of its records.

    Each group has weight one. Means of the scores differ even if nothing else does: where scores are skewed, those of
    large groups lie to one side of those of small ones.
    """
    if not any(side in groups for side in sides):
        return [scores[side] for side in sides]
    joined, n_first = np.concatenate([scores[side] for side in sides]), len(scores[sides[0]])
    owners = [np.unique(groups.get(side, np.arange(len(scores[side]))), return_inverse=True)[1] for side in sides]
    weights = np.concatenate([1.0 / np.bincount(codes)[codes] for codes in owners])
    pool, ranks = ScorePool.of(joined), np.empty(len(joined))
    ranks[pool.order] = pool.place(weights[None, :])[0]
    return [average_by_group(part, codes) for part, codes in zip(np.split(ranks, [n_first]), owners, strict=True)]
