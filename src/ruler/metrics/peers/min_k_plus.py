"""Min-K++: how likely are the least likely tokens, by the standards of their places?"""

import math

import numpy as np

from ruler.core.types import TokenReading
from ruler.metrics.peers.min_k import SHARE, average_lowest
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def min_k_plus(forget_tokens: TokenReading, *, share: float = SHARE) -> PeerValue:
    """`min_k` of z = (log p - mean) / deviation, both over the model's own distribution at the token's place.

    A place where the model is entirely sure has no deviation. If the token is the one it is sure of, z is 0, its limit;
    if not, z is minus infinity.

    Example:
        >>> half = np.full((1, 1), 0.5)
        >>> reading = TokenReading(np.log([[0.25]]), half > 1, means=np.log([[0.5]]), deviations=np.log(2) * half)
        >>> round(min_k_plus(reading).value, 6)
        -2.0
    """
    if forget_tokens.means is None or forget_tokens.deviations is None:
        return PeerValue(math.nan, reason="The tokens were read without moments.")
    excess = forget_tokens.log_probs - forget_tokens.means
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where((forget_tokens.deviations == 0) & (excess == 0), 0.0, excess / forget_tokens.deviations)
    return average_records(average_lowest(scores, share))


MIN_K_PLUS = Peer(
    title="Min-K++",
    question="How likely are the least likely fifth of the tokens, by the standards of their places?",
    compute=min_k_plus,
    source="Zhang et al., 2025",
)
