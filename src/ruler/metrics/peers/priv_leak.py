"""PrivLeak: does Min-K tell forget from held-out records better than in the oracle?"""

import math

from ruler.core.types import TokenReading
from ruler.metrics.peers.min_k import SHARE, average_lowest
from ruler.metrics.peers.peer import Peer, PeerValue
from ruler.stats.auc import measure_effect


def priv_leak(
    forget_tokens: TokenReading,
    held_out_tokens: TokenReading,
    oracle_forget_tokens: TokenReading,
    oracle_held_out_tokens: TokenReading,
    *,
    share: float = SHARE,
) -> PeerValue:
    """How much better than in the oracle does Min-K tell forget from held-out records?

    (A - B) / B, where A is the AUC with which forget records have a higher Min-K than held-out ones in the model, and
    B the same in the oracle. At least -1; above 0 forget records look more like members than in the oracle.

    Example:
        >>> import numpy as np
        >>> low, high = (TokenReading(np.array([[p], [p - 1]]), np.ones((2, 1), dtype=bool)) for p in (-5.0, -2.0))
        >>> priv_leak(high, low, low, low).value
        1.0
    """

    def separate(forget: TokenReading, held_out: TokenReading) -> float:
        first, second = (average_lowest(one.log_probs, share) for one in (forget, held_out))
        return measure_effect(first, second).value

    own, other = separate(forget_tokens, held_out_tokens), separate(oracle_forget_tokens, oracle_held_out_tokens)
    if other == 0:
        return PeerValue(math.nan, reason="In the oracle every held-out record has a higher Min-K: its AUC is 0.")
    return PeerValue(own / other - 1)


PRIV_LEAK = Peer(
    title="PrivLeak",
    question="How much better than in the oracle does Min-K tell forget from held-out records?",
    compute=priv_leak,
    range=(-1, math.inf),
    null=0.0,
    source="MUSE (Shi et al., 2025)",
)
