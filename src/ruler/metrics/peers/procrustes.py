"""Procrustes distance: can the oracle's arrangement of the forget records be rotated onto the model's?"""

import math

import numpy as np

from ruler.core.types import RowsLike
from ruler.metrics.peers.cka import States, centre_rows
from ruler.metrics.peers.peer import Peer, PeerValue, average_layers


def procrustes_distance(a: RowsLike, b: RowsLike) -> float:
    """How far apart are two arrangements of the same records after the best rotation? 0 the same, at most 2.

    2 - 2 sum of the singular values of A^T B, where A and B are the rows, centred and scaled to norm 1 as a whole. NaN
    where either side's rows are all equal.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(9, 2))
        >>> round(procrustes_distance(rows, 3 * rows[:, ::-1] + 1), 9)
        0.0
    """
    left, right = centre_rows(a, b)
    size = np.linalg.norm(left) * np.linalg.norm(right)
    if size == 0:
        return math.nan
    return float(max(0.0, 2 - 2 * np.linalg.svd(left.T @ right, compute_uv=False).sum() / size))


def procrustes(forget_states: States, oracle_forget_states: States) -> PeerValue:
    """How far are the forget records' arrangements in model and oracle apart? Mean over layers, in [0, 2].

    Example:
        >>> procrustes({"0": np.eye(4)}, {"0": 2 * np.eye(4)}).value < 1e-9
        True
    """
    return average_layers(forget_states, oracle_forget_states, procrustes_distance)


PROCRUSTES = Peer(
    title="Procrustes distance",
    question="How far are the forget records' arrangements in model and oracle apart, up to rotation?",
    compute=procrustes,
    range=(0, 2),
    why_no_null="Models that never saw the records differ by their seed; compare with a second oracle.",
    source="Ding et al., 2021",
)
