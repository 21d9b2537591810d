"""Linear CKA: do the layers arrange the forget records as the oracle's do?"""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from ruler.core.checks import as_matrix
from ruler.core.errors import InputError
from ruler.core.types import FloatArray, RowsLike
from ruler.metrics.peers.peer import Peer, PeerValue, average_layers

States = Mapping[str, RowsLike]
_FEWEST_UNBIASED = 4


def linear_cka(a: RowsLike, b: RowsLike, *, debiased: bool = False) -> float:
    """How similar is the geometry of the same records in two spaces? 1 up to rotation, shift and one scale.

    HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) of the Gram matrices K and L of rows (n, p) and (n, q). The plain form is
    in [0, 1] and nears 1 for unrelated rows if p is large beside n; the debiased form (Song et al., 2012) is about 0
    there on average and can be negative. NaN where either side's rows are all equal.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(20, 3))
        >>> round(linear_cka(rows, 2 * rows[:, ::-1] + 1), 6)
        1.0
    """
    left, right = (rows @ rows.T for rows in centre_rows(a, b))
    if debiased and len(left) < _FEWEST_UNBIASED:
        raise InputError(f"debiased CKA must have at least {_FEWEST_UNBIASED} records; got {len(left)}.")
    compare = _hsic_unbiased if debiased else _hsic
    own, other = compare(left, left), compare(right, right)
    return compare(left, right) / math.sqrt(own * other) if own > 0 and other > 0 else math.nan


def centre_rows(a: RowsLike, b: RowsLike) -> list[FloatArray]:
    """The same records (n, p) and (n, q) in two spaces, less the mean of each, in float64."""
    both = [np.asarray(as_matrix(rows, name), dtype=np.float64) for rows, name in ((a, "a"), (b, "b"))]
    if len(both[0]) != len(both[1]):
        raise InputError(f"a and b must hold the same records; got {len(both[0])} and {len(both[1])} rows.")
    return [rows - rows.mean(axis=0) for rows in both]


def cka(forget_states: States, oracle_forget_states: States) -> PeerValue:
    """Do the model's layers arrange the forget records as the oracle's do? Mean over layers of `linear_cka`.

    Example:
        >>> states = {"0": np.eye(5), "1": np.arange(10.0).reshape(5, 2)}
        >>> cka(states, states).value
        1.0
    """
    return average_layers(forget_states, oracle_forget_states, linear_cka)


def cka_debiased(forget_states: States, oracle_forget_states: States) -> PeerValue:
    """`cka` in the debiased form."""
    return average_layers(forget_states, oracle_forget_states, partial(linear_cka, debiased=True))


def _hsic(left: FloatArray, right: FloatArray) -> float:
    return float((left * right).sum())


def _hsic_unbiased(left: FloatArray, right: FloatArray) -> float:
    n = len(left)
    left, right = (matrix - np.diag(np.diag(matrix)) for matrix in (left, right))
    ends, middle = left.sum() * right.sum() / ((n - 1) * (n - 2)), left.sum(axis=0) @ right.sum(axis=0) / (n - 2)
    return float(((left * right).sum() + ends - 2 * middle) / (n * (n - 3)))


CKA = Peer(
    title="Linear CKA",
    question="Do the layers arrange the forget records as the oracle's do?",
    compute=cka,
    range=(0, 1),
    knowledge=-1,
    why_no_null="Models that never saw the records differ by their seed; compare with a second oracle.",
    source="Kornblith et al., 2019",
)
CKA_DEBIASED = Peer(
    title="Linear CKA, debiased",
    question="Do the layers arrange the forget records as the oracle's do, apart from chance?",
    compute=cka_debiased,
    range=(-1, 1),
    knowledge=-1,
    why_no_null="Models that never saw the records differ by their seed; compare with a second oracle.",
    source="Song et al., 2012; Murphy et al., 2024",
)
