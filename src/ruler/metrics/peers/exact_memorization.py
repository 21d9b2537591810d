"""Exact memorisation: how many tokens of the true answers are the model's first choice?"""

from ruler.core.types import TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def exact_memorization(forget_tokens: TokenReading) -> PeerValue:
    """What share of an answer's tokens is the likeliest token, given the true tokens before it? In [0, 1], per record.

    Example:
        >>> import numpy as np
        >>> reading = TokenReading(np.zeros((1, 4)), np.array([[True, False, True, True]]))
        >>> exact_memorization(reading).value
        0.75
    """
    return average_records(forget_tokens.hits.sum(axis=1) / forget_tokens.lengths)


EXACT_MEMORIZATION = Peer(
    title="Exact memorisation",
    question="What share of the true answers' tokens is the model's first choice?",
    compute=exact_memorization,
    range=(0, 1),
    source="Tirumala et al., 2022; open-unlearning",
)
