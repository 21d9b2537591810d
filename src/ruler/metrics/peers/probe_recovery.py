"""Linear probe recovery: can the classes of forget records be read from frozen layers by a new linear head?"""

import math

import numpy as np
import numpy.typing as npt

from ruler.core.checks import as_matrix
from ruler.core.errors import InputError
from ruler.core.types import FloatArray, RowsLike
from ruler.metrics.peers.cka import States
from ruler.metrics.peers.peer import Peer, PeerValue


def probe_recovery(
    forget_states: States,
    retain_states: States,
    held_out_states: States,
    forget_labels: npt.ArrayLike,
    retain_labels: npt.ArrayLike,
    held_out_labels: npt.ArrayLike,
    *,
    penalty: float = 1.0,
) -> PeerValue:
    """What share of the forget records does a new linear head on frozen layers put in the right class? In [0, 1].

    Per layer, a ridge classifier on standardised states, one against the others, fitted to retain and held-out records
    (which have the forgotten class where all its training records are forgotten). The aggregate is the mean over
    layers; a head that has lost a class recovers it if the layers still tell that class apart.

    Args:
        forget_states: By layer, (n, p); likewise retain and held-out records.
        forget_labels: (n,) true classes; likewise.
        penalty: Weight of the squared norm of the coefficients beside the sum of squared errors.

    Raises:
        InputError: Layers that differ, or not one label per record.

    Example:
        >>> rows, classes = np.array([[0.0], [0.1], [1.0], [1.1]]), [0, 0, 1, 1]
        >>> apart, mixed = {"0": np.array([[0.2], [0.9]])}, {"0": np.array([[0.9], [0.2]])}
        >>> known = ({"0": rows}, {"0": rows}, [0, 1], classes, classes)
        >>> probe_recovery(apart, *known).value, probe_recovery(mixed, *known).value
        (1.0, 0.0)
    """
    if not list(forget_states) == list(retain_states) == list(held_out_states) or not forget_states:
        raise InputError("states must be of the same layers on all sides, at least one; got others.")
    own = np.asarray(forget_labels)
    known = np.concatenate([np.asarray(retain_labels), np.asarray(held_out_labels)])
    classes = np.unique(known)
    if len(classes) < 2:
        return PeerValue(math.nan, reason="The retain and held-out records are of one class, which needs no head.")
    hits = {}
    for name, rows in forget_states.items():
        sides = (retain_states[name], held_out_states[name])
        train = np.concatenate([np.asarray(as_matrix(side, "states"), dtype=np.float64) for side in sides])
        if len(train) != len(known):
            raise InputError(f"labels must be one per record; got {len(known)} for {len(train)} records.")
        found = classes[_score(train, known[:, None] == classes, rows, penalty).argmax(axis=1)]
        if found.shape != own.shape:
            raise InputError(f"forget_labels must be one per record; got {own.shape} for {len(found)} records.")
        hits[name] = found == own
    layers = {name: float(hit.mean()) for name, hit in hits.items()}
    return PeerValue(float(np.mean(list(layers.values()))), np.mean(list(hits.values()), axis=0), layers)


def _score(train: FloatArray, is_of: npt.NDArray[np.bool_], rows: RowsLike, penalty: float) -> FloatArray:
    """(n, classes) what ridge regressions to -1 and 1 say of rows, the intercepts not penalised."""
    centre, spread = train.mean(axis=0), train.std(axis=0)
    spread[spread == 0] = 1
    scaled, targets = (train - centre) / spread, np.where(is_of, 1.0, -1.0)
    offset = targets.mean(axis=0)
    if train.shape[1] <= len(train):
        weights = np.linalg.solve(scaled.T @ scaled + penalty * np.eye(scaled.shape[1]), scaled.T @ (targets - offset))
    else:
        weights = scaled.T @ np.linalg.solve(scaled @ scaled.T + penalty * np.eye(len(scaled)), targets - offset)
    asked = np.asarray(as_matrix(rows, "forget_states"), dtype=np.float64)
    return np.asarray((asked - centre) / spread @ weights + offset)


PROBE_RECOVERY = Peer(
    title="Linear probe recovery",
    question="What share of the forget records does a new linear head on the frozen layers put in the right class?",
    compute=probe_recovery,
    range=(0, 1),
    why_no_null="An oracle knows classes of records it never saw, too; measure it for comparison.",
    source="Alain and Bengio, 2017",
)
