"""Probability: how likely does the model find the true answers?"""

import numpy as np

from ruler.core.types import TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def probability(forget_tokens: TokenReading) -> PeerValue:
    """How likely is the true answer, per token? p^(1/length) of each record, in [0, 1], and the mean.

    Example:
        >>> reading = TokenReading(np.log([[0.25, 1.0]]), np.ones((1, 2), dtype=bool))
        >>> round(probability(reading).value, 6)
        0.5
    """
    return average_records(np.exp(-forget_tokens.losses))


PROBABILITY = Peer(
    title="Probability",
    question="How likely are the true answers, per token?",
    compute=probability,
    range=(0, 1),
    source="TOFU (Maini et al., 2024)",
)
