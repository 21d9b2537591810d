"""Neighbour overlap: do forget records have the same neighbours as in the oracle?"""

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, RowsLike
from ruler.metrics.peers.cka import States
from ruler.metrics.peers.peer import Peer, PeerValue
from ruler.neighbors import find_neighbors


def neighbor_overlap(
    forget_states: States,
    retain_states: States,
    oracle_forget_states: States,
    oracle_retain_states: States,
    *,
    k: int = 10,
) -> PeerValue:
    """What share of a forget record's k nearest retain records is the same in model and oracle? In [0, 1].

    Neighbours by cosine similarity, all retain records if there are fewer than k; per record the mean over layers.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(30, 4))
        >>> model = {"0": rows[:5]}, {"0": rows[5:]}
        >>> neighbor_overlap(*model, *model).value
        1.0
    """
    sides = (forget_states, retain_states, oracle_forget_states, oracle_retain_states)
    if not forget_states or any(list(one) != list(forget_states) for one in sides):
        raise InputError("states must be of the same layers on both sides of both models, at least one; got others.")
    by_layer = {name: _share(*(side[name] for side in sides), k=k) for name in forget_states}
    records = np.mean(list(by_layer.values()), axis=0)
    return PeerValue(float(records.mean()), records, {name: float(one.mean()) for name, one in by_layer.items()})


def _share(
    forget: RowsLike, retain: RowsLike, oracle_forget: RowsLike, oracle_retain: RowsLike, *, k: int
) -> FloatArray:
    k = min(k, len(np.asarray(retain)))
    own, other = find_neighbors(forget, retain, k=k).index, find_neighbors(oracle_forget, oracle_retain, k=k).index
    if own.shape != other.shape:
        raise InputError(f"records must be the same in both models; got {own.shape} and {other.shape} neighbours.")
    return np.asarray((own[:, :, None] == other[:, None, :]).sum(axis=(1, 2)) / k)


NEIGHBOR_OVERLAP = Peer(
    title="Neighbour overlap",
    question="What share of the forget records' nearest retain records is the same as in the oracle?",
    compute=neighbor_overlap,
    range=(0, 1),
    knowledge=-1,
    why_no_null="Models that never saw the records differ by their seed; compare with a second oracle.",
    source="Klabunde et al., 2025",
)
