"""Min-K: how likely are the least likely tokens of the answers?"""

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records

SHARE = 0.2


def min_k(forget_tokens: TokenReading, *, share: float = SHARE) -> PeerValue:
    """How likely are a record's least likely tokens? Mean log-probability of the lowest share of them, at most 0.

    Of ``length`` tokens the lowest ``int(share * length)`` count, at least one.

    Example:
        >>> reading = TokenReading(np.array([[-1.0, -4.0, -2.0, -3.0, -5.0]]), np.zeros((1, 5), dtype=bool))
        >>> min_k(reading).value, min_k(reading, share=0.4).value
        (-5.0, -4.5)
    """
    return average_records(average_lowest(forget_tokens.log_probs, share))


def average_lowest(scores: FloatArray, share: float) -> FloatArray:
    """Means (n,) of the lowest share of each row's numbers; NaN stands for no number.

    Example:
        >>> average_lowest(np.array([[3.0, 1.0, 2.0, np.nan]]), 0.67).tolist()
        [1.5]
    """
    if not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1; got {share!r}.")
    n_taken = np.maximum(1, (share * (~np.isnan(scores)).sum(axis=1)).astype(int))
    is_taken = np.arange(scores.shape[1]) < n_taken[:, None]
    ordered = np.sort(scores, axis=1)  # NaN last
    return np.asarray(np.where(is_taken, ordered, 0.0).sum(axis=1) / n_taken)


MIN_K = Peer(
    title="Min-K",
    question="How likely are the least likely fifth of the true answers' tokens?",
    compute=min_k,
    range=(-np.inf, 0),
    source="Shi et al., 2024",
)
